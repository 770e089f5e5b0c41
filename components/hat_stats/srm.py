"""Sample-ratio mismatch: did the units arrive in the shares that the experiment promised?

Always holds: a mismatch says that assignment or logging is broken, so no effect of that experiment may be read.
Not here: the effects (sequential).

Sources: Fabijan et al., KDD 2019 (why α is small); Lindon and Malek, "Anytime-valid inference for multinomial count
data", NeurIPS 2022 (the sequential test).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from hat_stats.arrays import Floats, open_unit, positive, same_length, vector
from hat_stats.errors import InputError


@dataclass(frozen=True, slots=True)
class SampleRatio:
    """Counts held against the promised shares."""

    p: float
    mismatch: bool
    """p below alpha: do not read the experiment."""
    alpha: float
    n: int
    shares: tuple[float, ...]
    """Observed, in the order of the counts; empty where no unit came."""
    expected: tuple[float, ...]


def sample_ratio(counts: Sequence[int], weights: Sequence[float], *, alpha: float = 0.001) -> SampleRatio:
    """One look: χ² test of `counts` per arm against `weights` (any positive scale).

    Under 5 expected units in an arm the exact binomial (two arms) takes its place. For a running experiment that is
    looked at more than once use `sequential_sample_ratio`.
    """
    seen, share = _checked(counts, weights)
    total = float(seen.sum())
    if total == 0:
        p = 1.0
    elif len(seen) == 2 and (share * total).min() < 5:
        p = float(stats.binomtest(int(seen[0]), int(total), float(share[0])).pvalue)
    else:
        p = float(stats.chisquare(seen, share * total).pvalue)
    return _result(p, alpha, seen, share)


def sequential_sample_ratio(
    stages: Sequence[tuple[Sequence[int], Sequence[float]]],
    *,
    alpha: float = 0.001,
    concentration: float = 100.0,
    previous: SampleRatio | None = None,
) -> SampleRatio:
    """The same, valid at every look and through a ramp: one (counts, weights) per stage with its own shares.

    The Bayes factor of a Dirichlet(concentration·weights) mixture against the promised shares is an e-process, and
    those of successive stages multiply; p = min(1, 1/E), with `previous` the smallest so far. A larger concentration
    looks for smaller mismatches. Shares of the result are those of the last stage.
    """
    if not stages:
        raise InputError("no stage", place="stages")
    positive(concentration, "concentration")
    log_e = 0.0
    for counts, weights in stages:
        seen, share = _checked(counts, weights)
        log_e += _log_factor(seen, share, concentration)
    p = math.exp(-log_e) if log_e > 0 else 1.0
    return _result(p if previous is None else min(p, previous.p), alpha, seen, share)


def _log_factor(seen: Floats, share: Floats, concentration: float) -> float:
    """log of ∫ Π θ^x Dirichlet(θ) dθ − log Π share^x; the multinomial coefficient cancels."""
    prior = concentration * share
    mixed = special.gammaln(prior + seen).sum() - special.gammaln(prior.sum() + seen.sum())
    mixed -= special.gammaln(prior).sum() - special.gammaln(prior.sum())
    return float(mixed - (seen * np.log(share)).sum())


def _checked(counts: ArrayLike, weights: ArrayLike) -> tuple[Floats, Floats]:
    seen, share = vector(counts, "counts"), vector(weights, "weights")
    same_length("counts, weights", seen, share)
    if len(seen) < 2:
        raise InputError("fewer than two arms", place="counts")
    if np.isnan(seen).any() or (seen < 0).any() or (seen % 1 != 0).any():
        raise InputError("counts are whole numbers from 0", place="counts")
    if np.isnan(share).any() or (share <= 0).any():
        raise InputError("weights are positive", place="weights", cure="leave out an arm that gets no traffic")
    return seen, share / share.sum()


def _result(p: float, alpha: float, seen: Floats, share: Floats) -> SampleRatio:
    open_unit(alpha, "alpha")
    total = seen.sum()
    observed = tuple(float(x) for x in seen / total) if total else ()
    return SampleRatio(p, p < alpha, alpha, int(total), observed, tuple(float(x) for x in share))
