"""Has a distribution moved since the reference? Two-sample checks with a false-alarm rate that one can choose.

Always holds: the alarm's rate of false alarms is `alpha` per check, whatever the sizes of the samples, because the
threshold comes from reshuffling the pooled data, not from a rule of thumb. Missing values are a bin of their own, so
that a judge that stops answering is drift. Not here: what to do about it (nightly DAG), intervals (bootstrap).

Sources: population stability index as in Siddiqi 2006, its permutation null as in Good 2005; Kolmogorov-Smirnov.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from hat_stats.arrays import Floats, Ints, open_unit, vector
from hat_stats.errors import InputError
from hat_stats.significance import holm

_MOST_CELLS = 1 << 21


@dataclass(frozen=True, slots=True)
class Drift:
    """One check of one quantity."""

    alarm: bool
    p: float
    statistic: float
    """PSI, or the KS distance."""
    threshold: float
    """The statistic from which the alarm rings at this alpha."""
    kind: Literal["psi", "ks"]
    n_reference: int
    n_current: int
    missing_reference: float
    """Share in [0, 1]."""
    missing_current: float
    alpha: float


def psi(reference: Sequence[int], current: Sequence[int]) -> float:
    """Population stability index Σ (q − p) log(q/p) of counts over the same bins, half an item added to each."""
    p, q = vector(reference, "reference"), vector(current, "current")
    if len(p) != len(q) or not len(p):
        raise InputError(f"{len(p)} and {len(q)} bins", place="reference, current", cure="count over the same bins")
    return float(_psi(p[None], q[None])[0])


def drift_numeric(
    reference: ArrayLike,
    current: ArrayLike,
    *,
    kind: Literal["psi", "ks"] = "psi",
    bins: int = 10,
    alpha: float = 0.01,
    draws: int = 2000,
    seed: int,
) -> Drift:
    """Drift of a number (latency, reply length, score).

    psi: over quantile bins of both samples pooled, plus one for missing values. ks: the distance of the distribution
    functions of the known values; conservative where many values are equal.
    """
    ref, cur = vector(reference, "reference"), vector(current, "current")
    if kind == "ks":
        return _ks(ref, cur, alpha)
    pooled = np.concatenate([ref, cur])
    known = pooled[~np.isnan(pooled)]
    edges = np.unique(np.quantile(known, np.linspace(0, 1, bins + 1)[1:-1])) if known.size else np.empty(0)
    counts = [_binned(sample, edges) for sample in (ref, cur)]
    return _shuffled(counts[0], counts[1], _missing(ref), _missing(cur), alpha, draws, seed)


def drift_categories(
    reference: Sequence[Hashable],
    current: Sequence[Hashable],
    *,
    alpha: float = 0.01,
    draws: int = 2000,
    seed: int,
) -> Drift:
    """Drift of a label (intent, skill, verdict). Every label that occurs on either side is a bin; None is missing."""
    left, right = Counter(map(_key, reference)), Counter(map(_key, current))
    names = sorted(set(left) | set(right))
    if not names:
        raise InputError("both samples are empty", place="reference, current")
    ref = np.array([left[name] for name in names], dtype=np.int64)
    cur = np.array([right[name] for name in names], dtype=np.int64)
    gone = [left[_ABSENT] / max(len(reference), 1), right[_ABSENT] / max(len(current), 1)]
    return _shuffled(ref, cur, gone[0], gone[1], alpha, draws, seed)


def drift_alarms(checks: Mapping[str, Drift], *, alpha: float = 0.01) -> dict[str, bool]:
    """Which of one night's checks raise the alarm when the chance of any false one shall be `alpha` (Holm)."""
    open_unit(alpha, "alpha")
    adjusted = holm([check.p for check in checks.values()])
    return {name: p <= alpha for name, p in zip(checks, adjusted, strict=True)}


_ABSENT = "\x00missing"


def _key(label: Hashable) -> str:
    absent = label is None or (isinstance(label, float) and np.isnan(label))
    return _ABSENT if absent else f"{type(label).__name__}:{label}"


def _missing(values: Floats) -> float:
    return float(np.isnan(values).mean()) if len(values) else 0.0


def _binned(values: Floats, edges: Floats) -> Ints:
    known = values[~np.isnan(values)]
    inner = np.bincount(np.searchsorted(edges, known, side="right"), minlength=len(edges) + 1)
    return np.append(inner, len(values) - known.size).astype(np.int64)


def _psi(p: Floats, q: Floats) -> Floats:
    """PSI per row of counts [rows, bins]."""
    p, q = p + 0.5, q + 0.5
    p, q = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
    return np.asarray(((q - p) * np.log(q / p)).sum(axis=1))


def _shuffled(ref: Ints, cur: Ints, gone_ref: float, gone_cur: float, alpha: float, draws: int, seed: int) -> Drift:
    """PSI with its permutation null: who is in the current sample is redrawn without replacement."""
    open_unit(alpha, "alpha")
    if draws < 1 / alpha:
        raise InputError(f"{draws} draws cannot reach alpha {alpha:g}", place="draws", cure=f"give {int(2 / alpha)}")
    keep = ref + cur > 0
    ref, cur = ref[keep], cur[keep]
    n_ref, n_cur = int(ref.sum()), int(cur.sum())
    if not n_ref or not n_cur:
        raise InputError(f"{n_ref} and {n_cur} values", place="reference, current", cure="give both samples")
    total = ref + cur
    rng = np.random.default_rng(seed)
    seen = float(_psi(ref[None].astype(float), cur[None].astype(float))[0])
    drawn = np.empty(draws)
    rows = max(1, _MOST_CELLS // len(total))
    for start in range(0, draws, rows):
        moved = rng.multivariate_hypergeometric(total, n_cur, size=min(rows, draws - start), method="marginals")
        drawn[start : start + rows] = _psi((total - moved).astype(float), moved.astype(float))
    p = (1 + int((drawn >= seen - 1e-12).sum())) / (draws + 1)
    threshold = float(np.quantile(drawn, 1 - alpha, method="higher"))
    return Drift(p <= alpha, p, seen, threshold, "psi", n_ref, n_cur, gone_ref, gone_cur, alpha)


def _ks(ref: Floats, cur: Floats, alpha: float) -> Drift:
    open_unit(alpha, "alpha")
    known = ref[~np.isnan(ref)], cur[~np.isnan(cur)]
    if not known[0].size or not known[1].size:
        raise InputError("one sample has no known value", place="reference, current")
    result = stats.ks_2samp(*known)
    n_ref, n_cur = known[0].size, known[1].size
    threshold = float(stats.kstwobign.isf(alpha) * np.sqrt((n_ref + n_cur) / (n_ref * n_cur)))
    p = float(result.pvalue)
    return Drift(p <= alpha, p, float(result.statistic), threshold, "ks", len(ref), len(cur), _missing(ref),
                 _missing(cur), alpha)  # fmt: skip
