"""CUPED: less noise in an experiment by subtracting what each unit's past already explained.

Always holds: the adjusted difference estimates the same effect, because the covariate was measured before assignment;
units without a past keep their value. Not here: intervals; feed the two `Moments` to `sequential`.

Source: Deng, Xu, Kohavi, Walker, "Improving the sensitivity of online controlled experiments", WSDM 2013.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hat_stats.arrays import Floats, same_length, vector
from hat_stats.errors import InputError
from hat_stats.moments import Moments


@dataclass(frozen=True, slots=True)
class Cuped:
    """Both arms after adjustment: y − theta·(x − mean x)."""

    a: Moments
    b: Moments
    theta: float
    """Slope of the metric on the covariate within arms; 0 where the covariate does not vary."""
    variance_reduction: float
    """Share of the within-arm variance that is gone, in [0, 1]."""
    without_past: int
    """Units whose covariate was missing."""


def cuped(y_a: ArrayLike, x_a: ArrayLike, y_b: ArrayLike, x_b: ArrayLike) -> Cuped:
    """Adjust the metric y of both arms by the pre-experiment covariate x; NaN in x: a unit without a past.

    theta = Σ within-arm cov(x, y) / Σ within-arm var(x), one for both arms. Raises InputError where y is missing.
    """
    arms = [(vector(y, "y"), vector(x, "x")) for y, x in ((y_a, x_a), (y_b, x_b))]
    for y, x in arms:
        same_length("y, x", y, x)
        if np.isnan(y).any():
            raise InputError("a metric is missing", place="y", cure="zeros count; leave out what was never measured")
    pasts = np.concatenate([x for _, x in arms])
    known = pasts[~np.isnan(pasts)]
    centre = float(known.mean()) if known.size else 0.0
    filled = [(y, np.where(np.isnan(x), centre, x) - centre) for y, x in arms]
    cross = sum(_cross(y, x) for y, x in filled)
    own = sum(_cross(x, x) for _, x in filled)
    theta = cross / own if own > 0 else 0.0
    raw = sum(_cross(y, y) for y, _ in filled)
    adjusted = [y - theta * x for y, x in filled]
    left = sum(_cross(y, y) for y in adjusted)
    gone = 1.0 - left / raw if raw > 0 else 0.0
    return Cuped(Moments.of(adjusted[0]), Moments.of(adjusted[1]), theta, max(gone, 0.0), int(np.isnan(pasts).sum()))


def _cross(u: Floats, v: Floats) -> float:
    """Σ (u − ū)(v − v̄) within one arm."""
    return float((u - u.mean()) @ (v - v.mean())) if len(u) else 0.0
