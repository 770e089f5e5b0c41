"""What an experiment keeps of an arm: sums per bucketed unit, mergeable, small, and enough for every interval here.

Always holds: one number (or one pair of numbers) per unit, zeros included, so that a unit that did nothing counts.
`Moments` and `PairMoments` of parts merge to those of the whole. Not here: the intervals (sequential), bucketing units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hat_stats.arrays import same_length, vector
from hat_stats.errors import InputError


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean and sum of squared deviations of one value per unit."""

    n: int = 0
    mean: float = 0.0
    m2: float = 0.0
    """Σ (x − mean)²."""
    missing: int = 0
    """Units whose value could not be judged."""

    @classmethod
    def of(cls, values: ArrayLike) -> Moments:
        """Moments of `values` [n], NaN counted as missing."""
        x = vector(values, "values")
        known = x[~np.isnan(x)]
        if not known.size:
            return cls(missing=len(x))
        mean = float(known.mean())
        return cls(known.size, mean, float(((known - mean) ** 2).sum()), len(x) - known.size)

    @classmethod
    def from_sums(cls, n: int, total: float, squares: float, missing: int = 0) -> Moments:
        """From Σx and Σx², as counters keep them. Loses digits where the mean is large beside the spread."""
        if n < 0 or squares < 0 or (n == 0 and (total or squares)):
            raise InputError(f"n={n}, total={total:g}, squares={squares:g} fit no data", place="sums")
        if n == 0:
            return cls(missing=missing)
        m2 = squares - total * total / n
        if m2 < -1e-6 * max(squares, 1.0):
            raise InputError("the sum of squares is smaller than the total allows", place="squares")
        return cls(n, total / n, max(m2, 0.0), missing)

    def merge(self, other: Moments) -> Moments:
        """Moments of both samples together. Source: Chan, Golub and LeVeque 1983."""
        n = self.n + other.n
        missing = self.missing + other.missing
        if not n:
            return Moments(missing=missing)
        gap = other.mean - self.mean
        mean = self.mean + gap * other.n / n
        return Moments(n, mean, self.m2 + other.m2 + gap * gap * self.n * other.n / n, missing)

    @property
    def variance(self) -> float:
        """Sample variance (n − 1); 0 below two values."""
        return self.m2 / (self.n - 1) if self.n > 1 else 0.0


@dataclass(frozen=True, slots=True)
class PairMoments:
    """Moments of (x, y) per unit, for ratio metrics Σx / Σy such as replies per conversation."""

    n: int = 0
    mean_x: float = 0.0
    mean_y: float = 0.0
    xx: float = 0.0
    yy: float = 0.0
    xy: float = 0.0
    """xx, yy, xy: sums of squared and crossed deviations."""

    @classmethod
    def of(cls, x: ArrayLike, y: ArrayLike) -> PairMoments:
        """Moments of numerators x [n] and denominators y [n], none missing."""
        x_n, y_n = vector(x, "x"), vector(y, "y")
        same_length("x, y", x_n, y_n)
        if np.isnan(x_n).any() or np.isnan(y_n).any():
            raise InputError("a ratio's parts are sums and cannot be missing", place="x, y", cure="give 0 for nothing")
        if not len(x_n):
            return cls()
        mean_x, mean_y = float(x_n.mean()), float(y_n.mean())
        dx, dy = x_n - mean_x, y_n - mean_y
        return cls(len(x_n), mean_x, mean_y, float(dx @ dx), float(dy @ dy), float(dx @ dy))

    def merge(self, other: PairMoments) -> PairMoments:
        """Moments of both samples together."""
        n = self.n + other.n
        if not n:
            return PairMoments()
        gx, gy, weight = other.mean_x - self.mean_x, other.mean_y - self.mean_y, self.n * other.n / n
        return PairMoments(
            n,
            self.mean_x + gx * other.n / n,
            self.mean_y + gy * other.n / n,
            self.xx + other.xx + gx * gx * weight,
            self.yy + other.yy + gy * gy * weight,
            self.xy + other.xy + gx * gy * weight,
        )


@dataclass(frozen=True, slots=True)
class Arm:
    """What an interval needs of an arm: an estimate that behaves like a mean of `n` terms of variance `variance`."""

    n: int
    value: float
    variance: float
    """Per unit: the variance of `value` itself is variance / n."""
    missing: int = 0

    @classmethod
    def mean(cls, moments: Moments) -> Arm:
        """The mean per unit."""
        return cls(moments.n, moments.mean, moments.variance, moments.missing)

    @classmethod
    def ratio(cls, pair: PairMoments) -> Arm:
        """The ratio Σx / Σy by the delta method over units; value NaN where Σy = 0.

        z_i = (x_i − R·y_i) / mean(y), Var(R) ≈ Var(z)/n. Source: Deng, Knoblich and Lu 2018.
        """
        if pair.n == 0 or pair.mean_y == 0:
            return cls(pair.n, math.nan, 0.0)
        ratio = pair.mean_x / pair.mean_y
        if pair.n < 2:
            return cls(pair.n, ratio, 0.0)
        spread = pair.xx - 2 * ratio * pair.xy + ratio * ratio * pair.yy
        return cls(pair.n, ratio, max(spread, 0.0) / (pair.n - 1) / pair.mean_y**2)

    def log(self) -> Arm:
        """The same estimate on the log scale, by the delta method; value NaN unless above 0."""
        if not self.value > 0:
            return Arm(self.n, math.nan, 0.0, self.missing)
        return Arm(self.n, math.log(self.value), self.variance / self.value**2, self.missing)
