"""Bounded metrics watched without asymptotics: betting on the next value, exact from the first unit on.

Always holds: for values in the stated bounds, error rates hold at every look and every sample size; only their order of
arrival is fixed. Slower to decide than `sequential` where n is large, and right where it is not: rare tool errors, the
first hundred units of a canary.
Not here: unbounded metrics (sequential), batches (bootstrap).

Source: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS-B 2024 (arXiv
2010.09686), hedged capital process with the predictable plug-in bet; two arms by inverse-probability weighting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from hat_stats.arrays import Bounds, Floats, binary, check_bounds, open_unit, same_length, vector
from hat_stats.errors import InputError
from hat_stats.sequential import Look

Alternative = Literal["two-sided", "greater", "less"]

_CAP = 0.5
"""A bet risks at most this share of the capital, so that no value can end the game."""
_STEPS = 60
"""Bisection steps; the interval's ends are then exact to double precision."""


@dataclass(frozen=True, slots=True)
class Bets:
    """The capital of a gambler who bets against the null; a fair game unless the null is false."""

    log_e: Floats
    """[n] natural log of the e-value after each unit."""
    p: Floats
    """[n] always-valid p after each unit, never rising."""


def betting_test(
    values: ArrayLike, null: float, *, bounds: Bounds = (0.0, 1.0), alternative: Alternative = "two-sided"
) -> Bets:
    """E-values and always-valid p of "the mean is `null`" over the values [n] in their order of arrival.

    `greater` and `less` test one side and stay valid for every mean on the other. Raises InputError for a missing or
    impossible value: what could not be judged is filled at its bound by the caller, who knows which side is worse.
    """
    z, scale = _scaled(values, bounds)
    m = (null - bounds[0]) / scale
    open_unit(m, "null")
    bets = _bets(z, 0.05)
    up, down = _capital(z, bets, m, 1), _capital(z, bets, m, -1)
    both = {"greater": up, "less": down, "two-sided": np.logaddexp(up, down) - math.log(2)}
    if alternative not in both:
        raise InputError(f"{alternative!r} is no alternative", place="alternative", cure="two-sided, greater or less")
    log_e = both[alternative]
    best = np.maximum.accumulate(log_e) if log_e.size else log_e
    return Bets(log_e, np.exp(-np.maximum(best, 0.0)))


def betting_mean(
    values: ArrayLike, *, bounds: Bounds = (0.0, 1.0), level: float = 0.95, null: float | None = None
) -> Look:
    """The mean of bounded values [n] with the interval that holds at every look up to this one.

    p tests `null` (None: not tested, p = 1). No values: the interval is the bounds.
    """
    alpha = 1.0 - open_unit(level, "level")
    z, scale = _scaled(values, bounds)
    if not z.size:
        return Look(None, bounds[0], bounds[1], 1.0, 0, level, "too_few")
    low, high = _interval(z, alpha)
    p = 1.0 if null is None else float(betting_test(values, null, bounds=bounds).p[-1])
    mean = bounds[0] + scale * float(z.mean())
    return Look(mean, bounds[0] + scale * low, bounds[0] + scale * high, p, len(z), level, "ok")


def betting_difference(
    values: ArrayLike,
    in_a: ArrayLike,
    *,
    share_a: float,
    bounds: Bounds = (0.0, 1.0),
    level: float = 0.95,
) -> Look:
    """Difference a − b of a bounded metric in a randomised experiment, exact at every look.

    values [n] in order of arrival, in_a [n] is 1 where the unit was assigned to arm a, share_a the probability of that
    (fixed over these units). Each unit becomes φ = (y − centre)·(A/π − (1 − A)/(1 − π)), whose mean is the difference;
    the centre is the mean of the values before it.
    """
    pi, alpha = open_unit(share_a, "share_a"), 1.0 - open_unit(level, "level")
    y, scale = _scaled(values, bounds)
    arm = binary(in_a, "in_a")
    same_length("values, in_a", y, arm)
    if np.isnan(arm).any():
        raise InputError("an assignment is missing", place="in_a", cure="exposure is logged at assignment")
    if not y.size:
        return Look(None, -scale, scale, 1.0, 0, level, "too_few")
    centre = np.concatenate([[0.5], np.cumsum(y)[:-1] / np.arange(1, len(y))]) if len(y) > 1 else np.array([0.5])
    phi = (y - centre) * (arm / pi - (1 - arm) / (1 - pi))
    reach = 1.0 / min(pi, 1 - pi)
    z = (phi + reach) / (2 * reach)
    low, high = _interval(z, alpha)
    p = float(betting_test(phi, 0.0, bounds=(-reach, reach)).p[-1])
    ends = np.clip(np.array([low, high]) * 2 * reach - reach, -1.0, 1.0) * scale
    return Look(float(phi.mean()) * scale, float(ends[0]), float(ends[1]), p, len(y), level, "ok")


def _scaled(values: ArrayLike, bounds: Bounds) -> tuple[Floats, float]:
    x = vector(values, "values")
    if np.isnan(x).any():
        raise InputError("a value is missing", place="values", cure="fill it at the bound that is worse for the claim")
    low, high = check_bounds(bounds, x)
    return (x - low) / (high - low), high - low


def _bets(z: Floats, alpha: float) -> Floats:
    """The predictable plug-in bet for each value: √(2 log(2/α) / (σ̂²_{i−1} · i · log(1 + i)))."""
    i = np.arange(1, len(z) + 1)
    mean = (0.5 + np.cumsum(z)) / (i + 1)
    variance = (0.25 + np.cumsum((z - mean) ** 2)) / (i + 1)
    before = np.concatenate([[0.25], variance[:-1]]) if len(z) else variance
    return np.sqrt(2 * math.log(2 / alpha) / (before * i * np.log1p(i)))


def _capital(z: Floats, bets: Floats, m: float, side: int) -> Floats:
    """Log capital [n] of betting that the mean lies above (side 1) or below (side −1) m in (0, 1)."""
    # Where all values sit on a bound the search ends at that bound itself.
    limit = _CAP / max(m if side > 0 else 1.0 - m, 1e-12)
    return np.cumsum(np.log1p(side * np.minimum(bets, limit) * (z - m)))


def _interval(z: Floats, alpha: float) -> tuple[float, float]:
    """All m in [0, 1] that neither gambler has refuted up to now.

    The upward capital falls in m at every look and the downward one rises, so both ends are found by bisection and no
    grid of candidate means is needed. Half of the capital is on each side: a side refutes m at 2/α.
    """
    bets, edge = _bets(z, alpha), math.log(2 / alpha)

    def refuted(m: float, side: int) -> bool:
        return bool(_capital(z, bets, m, side).max() >= edge)

    ends = []
    for side, gone in ((1, 0.0), (-1, 1.0)):
        kept = 1.0 - gone
        for _ in range(_STEPS):
            middle = 0.5 * (gone + kept)
            if refuted(middle, side):
                gone = middle
            else:
                kept = middle
        ends.append(gone)
    low, high = ends
    return (low, high) if low <= high else (min(max(float(z.mean()), high), low),) * 2
