"""Bootstrap intervals for means and paired differences: percentile interval and P(Δ ≤ 0), as reports give them.

Always holds: swapping the two runs exactly negates the result, and the order of the items changes nothing, because the
differences are brought into one canonical order and orientation before the first draw. Missing values widen the
interval to every value that they could have taken; they never move it silently.
Not here: significance tests (significance), intervals that may be watched while data arrive (sequential).

Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, ch. 13; Field and Welsh 2007 (clusters);
Owen 2007, "The pigeonhole bootstrap" (items crossed with training seeds); Manski 2003 (bounds for missing values).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from hat_stats.arrays import Bounds, Floats, Ints, check_bounds, codes, matrix, open_unit, same_length, vector
from hat_stats.errors import InputError

Method = Literal["percentile", "constant", "empty"]
Labels = Sequence[Any] | np.ndarray[Any, Any]

_CELLS = 1 << 16
"""Resampled cells held at a time: half a MiB of indices and of values (they stay in cache), whatever the draws."""
_MULTINOMIAL_GAIN = 8
"""A multinomial count costs about this many gathered cells (measured), so few distinct values are counted instead."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """A paired difference mean(a) − mean(b)."""

    delta: float | None
    """Over the pairs where both values are known; None where there is no such pair."""
    low: float
    high: float
    """Interval at `level`, missing values included at their worst; infinite where nothing bounds it."""
    p_le_0: float
    """Share of resampled differences at or below 0, missing values at their worst."""
    n: int
    """Pairs with both values."""
    clusters: int
    """Units that were resampled: clusters, or pairs where no clusters were given."""
    draws: int
    missing: int
    """Pairs with at least one value that could not be judged."""
    level: float
    method: Method
    """`constant`: every unit gave the same value, so that resampling shows no spread and an exact bound stands in."""
    low_observed: float
    high_observed: float
    """The interval that ignores missing pairs; equal to low and high where none are missing."""
    p_ge_0: float
    """Share at or above 0; draws of exactly 0 count on both sides, so that equal runs have p = 1."""

    @property
    def p(self) -> float:
        """Two-sided p of "no difference": twice the smaller share, at least what the number of draws can tell."""
        return min(1.0, 2 * max(min(self.p_le_0, self.p_ge_0), 1 / (self.draws + 1)))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its interval; fields as in Contrast."""

    value: float | None
    low: float
    high: float
    n: int
    clusters: int
    draws: int
    missing: int
    level: float
    method: Method
    low_observed: float
    high_observed: float


@dataclass(frozen=True, slots=True)
class _Spread:
    """What resampling one vector of values gave."""

    low: float
    high: float
    p_le_0: float
    p_ge_0: float
    clusters: int
    method: Method


@dataclass(frozen=True, slots=True)
class _Hull:
    """The spread of the known values, and that over all fillings of the missing ones."""

    core: _Spread
    low: float
    high: float
    p_le_0: float
    p_ge_0: float


def paired_bootstrap(
    a: ArrayLike,
    b: ArrayLike,
    *,
    draws: int = 10_000,
    seed: int,
    level: float = 0.95,
    strata: Labels | None = None,
    cluster: Labels | None = None,
    bounds: Bounds | None = (0.0, 1.0),
) -> Contrast:
    """Mean difference of two runs over the same items, with percentile interval and P(Δ ≤ 0).

    a, b: values [n] of the same items in the same order, NaN where an item could not be judged.
    strata: label per item; each stratum keeps its size in every draw. cluster: label per item; whole clusters
    (sessions, rooms) are drawn, each within one stratum. bounds: what a single value can be; used where values are
    missing or all differences are equal. None: the metric is unbounded, and then no value may be missing.
    Raises InputError for arrays that do not pair up or values outside `bounds` when bounds are needed.
    """
    a_n, b_n = vector(a, "a"), vector(b, "b")
    same_length("a, b", a_n, b_n)
    reach, fills = _fills(bounds, a_n, b_n)
    observed, lowest, highest = a_n - b_n, fills[0] - fills[3], fills[1] - fills[2]
    resample = _resampler(len(a_n), draws, seed, level, strata, cluster)
    gap = None if reach is None else (reach[0] - reach[1], reach[1] - reach[0])
    hull = _hull(observed, lowest, highest, resample, gap)
    known = observed[~np.isnan(observed)]
    delta = math.fsum(known) / known.size if known.size else None
    return Contrast(
        delta, hull.low, hull.high, hull.p_le_0, known.size, hull.core.clusters, draws, len(a_n) - known.size, level,
        hull.core.method, hull.core.low, hull.core.high, hull.p_ge_0,
    )  # fmt: skip


def bootstrap_mean(
    values: ArrayLike,
    *,
    draws: int = 10_000,
    seed: int,
    level: float = 0.95,
    strata: Labels | None = None,
    cluster: Labels | None = None,
    bounds: Bounds | None = (0.0, 1.0),
) -> Estimate:
    """Mean of `values` [n] with a percentile interval; arguments as in `paired_bootstrap`."""
    v_n = vector(values, "values")
    reach, fills = _fills(bounds, v_n)
    resample = _resampler(len(v_n), draws, seed, level, strata, cluster)
    hull = _hull(v_n, fills[0], fills[1], resample, reach)
    known = v_n[~np.isnan(v_n)]
    value = math.fsum(known) / known.size if known.size else None
    return Estimate(
        value, hull.low, hull.high, known.size, hull.core.clusters, draws, len(v_n) - known.size, level,
        hull.core.method, hull.core.low, hull.core.high,
    )  # fmt: skip


def paired_bootstrap_runs(
    a: ArrayLike,
    b: ArrayLike,
    *,
    draws: int = 10_000,
    seed: int,
    level: float = 0.95,
    bounds: Bounds | None = (0.0, 1.0),
) -> Contrast:
    """Difference of two trainings that were each repeated with several seeds and scored on the same items.

    a [R, n], b [S, n]: one row per training seed. Items are drawn jointly, seeds of the two sides independently (the
    pigeonhole bootstrap), so the interval covers both another test set and another training run. With one row on each
    side it equals the interval over items alone. R seeds understate the spread over seeds by about (R − 1)/R.
    """
    a_rn, b_sn = matrix(a, "a"), matrix(b, "b")
    if a_rn.shape[1] != b_sn.shape[1] or not len(a_rn) or not len(b_sn):
        raise InputError(f"shapes {a_rn.shape} and {b_sn.shape} share no items", place="a, b", cure="rows are seeds")
    _check_draws(draws)
    alpha = 1.0 - open_unit(level, "level")
    reach, fills = _fills(bounds, a_rn, b_sn)
    whole = ~np.isnan(a_rn).any(axis=0) & ~np.isnan(b_sn).any(axis=0)
    n, missing = int(whole.sum()), int((~whole).sum())
    pairs = [(a_rn[:, whole], b_sn[:, whole])]
    if missing:
        pairs += [(fills[0], fills[3]), (fills[1], fills[2])]
    gap = (-math.inf, math.inf) if reach is None else (reach[0] - reach[1], reach[1] - reach[0])
    if not n:
        return Contrast(None, *gap, 1.0, 0, 0, draws, missing, level, "empty", *gap, 1.0)
    spreads = []
    for left, right in pairs:
        drawn = _pigeonhole(left, right, draws, np.random.default_rng(seed))
        ends = np.quantile(drawn, [alpha / 2, 1.0 - alpha / 2])
        spreads.append((float(ends[0]), float(ends[1]), float(np.mean(drawn <= 0)), float(np.mean(drawn >= 0))))
    delta = float(pairs[0][0].mean() - pairs[0][1].mean())
    low, high = min(s[0] for s in spreads), max(s[1] for s in spreads)
    le_0, ge_0 = max(s[2] for s in spreads), max(s[3] for s in spreads)
    return Contrast(delta, low, high, le_0, n, n, draws, missing, level, "percentile", *spreads[0][:2], ge_0)


def _check_draws(draws: int) -> None:
    if draws < 100:
        raise InputError(f"{draws} draws", place="draws", cure="give at least 100; 10,000 for a report")


def _fills(bounds: Bounds | None, *arrays: Floats) -> tuple[Bounds | None, list[Floats]]:
    """The metric's bounds, where they apply, and each array with its missing values at the low and the high bound."""
    absent = any(np.isnan(array).any() for array in arrays)
    if bounds is None:
        if absent:
            raise InputError(
                "values are missing and the metric has no bounds", place="bounds", cure="give bounds=(low, high)"
            )
        return None, [array for array in arrays for _ in range(2)]
    if absent:
        check_bounds(bounds, *arrays)
    low, high = check_bounds(bounds)
    fits = all(array.size == 0 or (np.nanmin(array, initial=high) >= low and np.nanmax(array, initial=low) <= high)
               for array in arrays)  # fmt: skip
    filled = [np.where(np.isnan(array), end, array) for array in arrays for end in (low, high)]
    return ((low, high) if fits else None), filled


Resample = Callable[[Floats, Bounds | None], _Spread]


def _resampler(n: int, draws: int, seed: int, level: float, strata: Labels | None, cluster: Labels | None) -> Resample:
    """A function from values [n] (NaN left out) to their spread, with groups and settings fixed."""
    _check_draws(draws)
    alpha = 1.0 - open_unit(level, "level")
    stratum_n = codes(strata, n, "strata") if strata is not None else np.zeros(n, dtype=np.int64)
    cluster_n = codes(cluster, n, "cluster") if cluster is not None else None
    if cluster_n is not None and strata is not None and n:
        homes = np.unique(np.stack([cluster_n, stratum_n]), axis=1).shape[1]
        if homes > cluster_n.max() + 1:
            raise InputError("a cluster lies in two strata", place="cluster", cure="stratify by a property of clusters")

    def resample(values: Floats, reach: Bounds | None) -> _Spread:
        known = ~np.isnan(values)
        groups = None if cluster_n is None else cluster_n[known]
        return _spread(values[known], stratum_n[known], groups, draws, seed, alpha, reach)

    return resample


def _hull(observed: Floats, lowest: Floats, highest: Floats, resample: Resample, reach: Bounds | None) -> _Hull:
    """The known values alone, and together with both extreme fillings of the missing ones."""
    core = resample(observed, reach)
    if not np.isnan(observed).any():
        return _Hull(core, core.low, core.high, core.p_le_0, core.p_ge_0)
    worst, best = resample(lowest, reach), resample(highest, reach)
    low, high = min(core.low, worst.low), max(core.high, best.high)
    return _Hull(core, low, high, max(core.p_le_0, worst.p_le_0), max(core.p_ge_0, best.p_ge_0))


def _spread(
    values: Floats, stratum: Ints, cluster: Ints | None, draws: int, seed: int, alpha: float, reach: Bounds | None
) -> _Spread:
    """Percentile interval and P(≤ 0) of the mean of `values`, none missing."""
    if not values.size:
        low, high = reach or (-math.inf, math.inf)
        return _Spread(low, high, 1.0, 1.0, 0, "empty")
    parts, turn = _oriented(values, stratum, cluster)
    sign = -1.0 if turn < 0 else 1.0
    clusters = sum(len(sums) for sums, _ in parts)
    means = np.concatenate([sums / counts for sums, counts in parts])
    if means.min() == means.max():
        return _constant(float(sign * means[0]), clusters, alpha, reach)
    rng = np.random.default_rng(seed)
    total, count = np.zeros(draws), np.zeros(draws)
    for sums, counts in parts:
        part_total, part_count = _totals(sums, counts, draws, rng)
        total += part_total
        count += part_count
    drawn = total / count
    drawn[np.abs(drawn) < 1e-12 * np.abs(means).max()] = 0.0  # sums that cancel must count as "no difference"
    low, high = (float(end) for end in np.quantile(drawn, [alpha / 2, 1.0 - alpha / 2]))
    if turn == 0:  # v and −v are one sample, so the interval must be its own mirror image
        half, share = (high - low) / 2, 0.5 + float(np.mean(drawn == 0)) / 2
        return _Spread(-half, half, share, share, clusters, "percentile")
    le_0, ge_0 = float(np.mean(drawn <= 0)), float(np.mean(drawn >= 0))
    if turn < 0:
        return _Spread(-high, -low, ge_0, le_0, clusters, "percentile")
    return _Spread(low, high, le_0, ge_0, clusters, "percentile")


def _oriented(values: Floats, stratum: Ints, cluster: Ints | None) -> tuple[list[tuple[Floats, Floats]], int]:
    """The units of v or of −v, whichever comes first in a fixed order, and which: 1, −1, or 0 where both are one."""
    total = math.fsum(values)
    if total != 0.0:
        return _units(values if total > 0 else -values, stratum, cluster), 1 if total > 0 else -1
    ahead, back = _units(values, stratum, cluster), _units(-values, stratum, cluster)
    left, right = (np.concatenate([np.concatenate(part) for part in parts]) for parts in (ahead, back))
    differ = np.flatnonzero(left != right)
    if not differ.size:
        return ahead, 0
    return (ahead, 1) if left[differ[0]] > right[differ[0]] else (back, -1)


def _units(values: Floats, stratum: Ints, cluster: Ints | None) -> list[tuple[Floats, Floats]]:
    """Per stratum the resampled units as (sum, count), in canonical order."""
    if cluster is None:
        order = np.lexsort((values, stratum))
        sums, counts, home = values[order], np.ones(len(values)), stratum[order]
    else:
        order = np.lexsort((values, cluster))
        starts = np.flatnonzero(np.diff(cluster[order], prepend=-1))
        sums = np.add.reduceat(values[order], starts)
        counts = np.diff(starts, append=len(values)).astype(np.float64)
        home = stratum[order][starts]
        order = np.lexsort((counts, sums, home))
        sums, counts, home = sums[order], counts[order], home[order]
    cuts = np.flatnonzero(np.diff(home)) + 1
    return list(zip(np.split(sums, cuts), np.split(counts, cuts), strict=True))


def _totals(sums: Floats, counts: Floats, draws: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Resampled totals (sum, count), each [draws]. Few distinct units are counted, many are gathered; same law."""
    m = len(sums)
    heads = np.flatnonzero(np.append(True, (np.diff(sums) != 0) | (np.diff(counts) != 0)))
    if len(heads) * _MULTINOMIAL_GAIN <= m:
        share = np.diff(heads, append=m) / m
        total, count = np.empty(draws), np.empty(draws)
        rows = max(1, _CELLS // len(heads))
        for start in range(0, draws, rows):
            times = rng.multinomial(m, share, size=min(rows, draws - start)).astype(np.float64)
            total[start : start + rows] = times @ sums[heads]
            count[start : start + rows] = times @ counts[heads]
        return total, count
    total, count = np.empty(draws), np.full(draws, float(m))
    rows, even = max(1, _CELLS // m), bool((counts == 1.0).all())
    for start in range(0, draws, rows):
        index = rng.integers(0, m, size=(min(rows, draws - start), m))
        total[start : start + rows] = sums[index].sum(axis=1)
        if not even:
            count[start : start + rows] = counts[index].sum(axis=1)
    return total, count


def _constant(value: float, clusters: int, alpha: float, reach: Bounds | None) -> _Spread:
    """All units equal: resampling shows no spread, so bound the mass that can lie elsewhere and was never drawn.

    With m units alike, a share u of others stays unseen with probability (1 − u)^m; u = 1 − (α/2)^(1/m) is the largest
    share that the data leave possible (the rule of three, exact), and it may sit at the far end of the metric.
    """
    if reach is None:
        low, high = (value, value) if clusters > 1 else (-math.inf, math.inf)
    else:
        unseen = 1.0 - (alpha / 2) ** (1.0 / clusters)
        low = value - unseen * (value - reach[0])
        high = value + unseen * (reach[1] - value)
    ends = reach or (-math.inf, math.inf)
    le_0, ge_0 = _sign_tail(value, ends[0], clusters), _sign_tail(-value, -ends[1], clusters)
    return _Spread(low, high, le_0, ge_0, clusters, "constant")


def _sign_tail(value: float, least: float, clusters: int) -> float:
    """How likely m units all at `value` are when the true mean is 0 and the others could be as low as `least`."""
    if value <= 0:
        return 1.0
    if math.isinf(least) or least >= 0:
        return float(0.5**clusters)
    return float((-least / (value - least)) ** clusters)


def _pigeonhole(a_rn: Floats, b_sn: Floats, draws: int, rng: np.random.Generator) -> Floats:
    """Resampled differences [draws]: items jointly, rows of each side apart."""
    n = a_rn.shape[1]
    weights_dr = rng.multinomial(len(a_rn), np.full(len(a_rn), 1 / len(a_rn)), size=draws) / len(a_rn)
    weights_ds = rng.multinomial(len(b_sn), np.full(len(b_sn), 1 / len(b_sn)), size=draws) / len(b_sn)
    drawn = np.empty(draws)
    rows = max(1, _CELLS // n)
    for start in range(0, draws, rows):
        index = rng.integers(0, n, size=(min(rows, draws - start), n))
        part = slice(start, start + len(index))
        left = np.stack([row[index].mean(axis=1) for row in a_rn], axis=1)
        right = np.stack([row[index].mean(axis=1) for row in b_sn], axis=1)
        drawn[part] = (left * weights_dr[part]).sum(axis=1) - (right * weights_ds[part]).sum(axis=1)
    drawn[np.abs(drawn) < 1e-12] = 0.0
    return drawn
