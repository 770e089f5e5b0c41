"""How well two raters, or a judge and people, agree: kappa, alpha, and the judge's right answers per class.

Always holds: an item that one side could not judge is counted as missing and never as disagreement; an agreement that
is undefined (nobody ever used a second label) says so in `state` and has no value. Not here: correcting scores for
what is measured here (correction).

Sources: Cohen 1960, 1968; Fleiss, Cohen, Everitt 1969 (standard error); Krippendorff 2011 through `krippendorff`;
Wilson 1927; Clopper and Pearson 1934.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import krippendorff
import numpy as np
from scipy import stats

from hat_stats.arrays import Floats, Ints, open_unit
from hat_stats.errors import InputError

Label = Hashable
"""A class; None and NaN mean "could not be judged"."""
AgreementState = Literal["ok", "empty", "one_class"]
Weights = Literal["none", "linear", "quadratic"]
Level = Literal["nominal", "ordinal", "interval"]


@dataclass(frozen=True, slots=True)
class Proportion:
    """A share with its interval."""

    value: float | None
    """None where nothing was counted; the interval is then [0, 1]."""
    low: float
    high: float
    successes: int
    n: int
    missing: int
    level: float


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts of (truth, judged); rows and columns in the order of `labels`."""

    labels: tuple[Label, ...]
    counts: tuple[tuple[int, ...], ...]
    n: int
    missing: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """An agreement coefficient: 1 is perfect, 0 is what chance would give."""

    value: float | None
    """None unless `state` is ok."""
    low: float
    high: float
    state: AgreementState
    """`one_class`: every rating is the same, so that chance alone would agree as well and the coefficient is 0/0."""
    observed: float | None
    """Share of agreement before the correction for chance (weighted where weights are); None where empty."""
    n: int
    missing: int
    level: float


@dataclass(frozen=True, slots=True)
class ClassRates:
    """How a judge does on one class, the others taken together."""

    sensitivity: Proportion
    """Of the items that truly are of the class, the share judged so."""
    specificity: Proportion
    """Of the others, the share judged otherwise."""
    precision: Proportion
    """Of the items judged so, the share that truly is."""


def proportion(
    successes: int, n: int, *, level: float = 0.95, missing: int = 0, method: Literal["wilson", "exact"] = "wilson"
) -> Proportion:
    """Share successes/n with Wilson's score or the exact (Clopper-Pearson) interval.

    `missing` further items could not be judged: the interval covers what they could have been.
    """
    if not 0 <= successes <= n or missing < 0:
        raise InputError(f"{successes} of {n} with {missing} missing is no count", place="successes, n, missing")
    open_unit(level, "level")
    value = successes / n if n else None
    if n + missing == 0:
        return Proportion(None, 0.0, 1.0, 0, 0, 0, level)
    lowest = stats.binomtest(successes, n + missing).proportion_ci(level, method)
    highest = stats.binomtest(successes + missing, n + missing).proportion_ci(level, method)
    return Proportion(value, float(lowest.low), float(highest.high), successes, n, missing, level)


def confusion(truth: Sequence[Label], judged: Sequence[Label], *, labels: Sequence[Label] | None = None) -> Confusion:
    """Counts of truth against judged; `labels` fixes classes and order, else those that occur, sorted by their text."""
    table, names, missing = _table(truth, judged, labels)
    counts = tuple(tuple(int(cell) for cell in row) for row in table)
    return Confusion(tuple(names), counts, int(table.sum()), missing)


def cohen_kappa(
    a: Sequence[Label],
    b: Sequence[Label],
    *,
    weights: Weights = "none",
    labels: Sequence[Label] | None = None,
    level: float = 0.95,
) -> Agreement:
    """Cohen's kappa of two raters, symmetric in them; linear or quadratic weights for ordered labels (give `labels`).

    Interval by the large-sample standard error; at perfect agreement, where that is 0, by the largest share of
    disagreement that n agreeing items leave possible.
    """
    alpha = 1.0 - open_unit(level, "level")
    if weights != "none" and labels is None:
        raise InputError("weights need the order of the labels", place="labels", cure="give labels from low to high")
    table, names, missing = _table(a, b, labels)
    n = int(table.sum())
    if not n:
        return Agreement(None, -1.0, 1.0, "empty", None, 0, missing, level)
    weight = _weights(len(names), weights)
    p = table / n
    rows, columns = p.sum(axis=1), p.sum(axis=0)
    observed, chance = float((weight * p).sum()), float(rows @ weight @ columns)
    if chance >= 1.0 - 1e-12:
        return Agreement(None, -1.0, 1.0, "one_class", observed, n, missing, level)
    value = (observed - chance) / (1.0 - chance)
    if observed >= 1.0 - 1e-12:
        unseen = 1.0 - (alpha / 2) ** (1.0 / n)
        return Agreement(1.0, max(-1.0, 1.0 - unseen / (1.0 - chance)), 1.0, "ok", 1.0, n, missing, level)
    lean = (weight @ columns)[:, None] + (rows @ weight)[None, :]
    inner = (p * (weight * (1 - chance) - lean * (1 - observed)) ** 2).sum()
    variance = (inner - (observed * chance - 2 * chance + observed) ** 2) / (n * (1 - chance) ** 4)
    half = float(stats.norm.isf(alpha / 2)) * math.sqrt(max(float(variance), 0.0))
    return Agreement(value, max(-1.0, value - half), min(1.0, value + half), "ok", observed, n, missing, level)


def krippendorff_alpha(
    ratings: Sequence[Sequence[Label]],
    *,
    measure: Level = "nominal",
    level: float = 0.95,
    draws: int = 1000,
    seed: int,
) -> Agreement:
    """Krippendorff's alpha of any number of raters; ratings [rater][item], None where a rater gave none.

    `ordinal` and `interval` need numeric ratings. Items with fewer than two ratings carry no information and are
    counted as missing. The interval is a bootstrap over items; draws without a second label are left out.
    """
    alpha = 1.0 - open_unit(level, "level")
    counts, values, missing = _value_counts(ratings, measure)
    n = len(counts)
    if not n:
        return Agreement(None, -1.0, 1.0, "empty", None, 0, missing, level)
    observed = _pair_agreement(counts)
    value = _alpha(counts, values, measure)
    if value is None:
        return Agreement(None, -1.0, 1.0, "one_class", observed, n, missing, level)
    rng = np.random.default_rng(seed)
    rows, order = np.unique(counts, axis=0, return_counts=True)
    times = rng.multinomial(n, order / n, size=draws)
    drawn = [_alpha(np.repeat(rows, row, axis=0), values, measure) for row in times]
    known = [one for one in drawn if one is not None]
    low, high = np.quantile(known, [alpha / 2, 1 - alpha / 2]) if known else (-1.0, 1.0)
    if value >= 1.0 - 1e-12:
        share = counts.sum(axis=0) / counts.sum()
        low = 1.0 - (1.0 - (alpha / 2) ** (1.0 / n)) / (1.0 - float(share @ share))
    return Agreement(value, max(-1.0, float(low)), float(high), "ok", observed, n, missing, level)


def class_rates(
    truth: Sequence[Label],
    judged: Sequence[Label],
    *,
    labels: Sequence[Label] | None = None,
    level: float = 0.95,
    method: Literal["wilson", "exact"] = "exact",
) -> dict[Label, ClassRates]:
    """Sensitivity, specificity and precision of every class, one against the rest.

    An item of known truth that the judge could not judge widens the intervals of its truth's rates.
    """
    table, names, _ = _table(truth, judged, labels)
    silent = [t for t, j in zip(truth, judged, strict=True) if not _absent(t) and _absent(j)]
    rates: dict[Label, ClassRates] = {}
    for k, name in enumerate(names):
        own, others = int(table[k].sum()), int(table.sum() - table[k].sum())
        said = int(table[:, k].sum())
        hit = int(table[k, k])
        mine = sum(t == name for t in silent)
        rates[name] = ClassRates(
            proportion(hit, own, level=level, method=method, missing=mine),
            proportion(others - (said - hit), others, level=level, method=method, missing=len(silent) - mine),
            proportion(hit, said, level=level, method=method),
        )
    return rates


def _absent(label: Label) -> bool:
    return label is None or (isinstance(label, float) and math.isnan(label))


def _by_text(label: Label) -> tuple[str, str]:
    return type(label).__name__, str(label)


def _by_size(label: Label) -> float:
    return float(label)  # type: ignore[arg-type]  # its caller has checked that every label is a number


def _table(a: Sequence[Label], b: Sequence[Label], labels: Sequence[Label] | None) -> tuple[Ints, list[Label], int]:
    if len(a) != len(b):
        raise InputError(f"lengths differ: {len(a)}, {len(b)}", place="ratings", cure="align them by item id")
    left = [x.item() if isinstance(x, np.generic) else x for x in a]
    right = [x.item() if isinstance(x, np.generic) else x for x in b]
    pairs = [(x, y) for x, y in zip(left, right, strict=True) if not _absent(x) and not _absent(y)]
    names = sorted({x for x in (*left, *right) if not _absent(x)}, key=_by_text) if labels is None else list(labels)
    place = {name: k for k, name in enumerate(names)}
    table = np.zeros((len(names), len(names)), dtype=np.int64)
    for x, y in pairs:
        if x not in place or y not in place:
            odd = x if x not in place else y
            raise InputError(f"{odd!r} is none of the labels", place="labels", cure="list every label that can occur")
        table[place[x], place[y]] += 1
    return table, names, len(a) - len(pairs)


def _weights(k: int, kind: Weights) -> Floats:
    if kind == "none":
        return np.eye(k)
    away = np.abs(np.subtract.outer(np.arange(k), np.arange(k))) / max(k - 1, 1)
    return 1.0 - (away if kind == "linear" else away**2)


def _value_counts(ratings: Sequence[Sequence[Label]], measure: Level) -> tuple[Ints, list[Label], int]:
    """[items, values] counts of the items with at least two ratings, the values, and how many items were left out."""
    if len({len(row) for row in ratings}) > 1:
        raise InputError("raters have different numbers of items", place="ratings", cure="give None for no rating")
    rows = [[x.item() if isinstance(x, np.generic) else x for x in row] for row in ratings]
    present = {x for row in rows for x in row if not _absent(x)}
    if measure != "nominal" and not all(isinstance(x, (int, float)) for x in present):
        raise InputError("ratings are not numbers", place="ratings", cure="use measure='nominal' or map them")
    values = sorted(present, key=_by_text if measure == "nominal" else _by_size)
    place = {value: k for k, value in enumerate(values)}
    total = len(rows[0]) if rows else 0
    counts = np.zeros((total, len(values)), dtype=np.int64)
    for row in rows:
        for item, x in enumerate(row):
            if not _absent(x):
                counts[item, place[x]] += 1
    useful = counts.sum(axis=1) >= 2
    return counts[useful], values, int((~useful).sum())


def _pair_agreement(counts: Ints) -> float:
    """Share of agreeing pairs of ratings, items weighted alike."""
    raters = counts.sum(axis=1)
    return float(((counts * (counts - 1)).sum(axis=1) / (raters * (raters - 1))).mean())


def _alpha(counts: Ints, values: list[Label], measure: Level) -> float | None:
    used = counts.any(axis=0)
    if used.sum() < 2:
        return None
    domain = np.arange(used.sum()) if measure == "nominal" else np.array(values, dtype=np.float64)[used]
    return float(krippendorff.alpha(value_counts=counts[:, used], value_domain=domain, level_of_measurement=measure))
