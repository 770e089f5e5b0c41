"""Intervals and p-values that hold at every look, so that a canary may be watched and stopped at any time.

Always holds: over a whole experiment the chance that any interval misses the truth, or that any p falls below α under
the null, is at most α (in large samples: nothing is claimed before `burn_in` units per arm). A look that cannot be
judged has an infinite interval, p = 1 and a state that says why.
Not here: bounded metrics at small n (betting), fixed-sample intervals (bootstrap), the words (verdict).

Sources: Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas, "Time-uniform central limit theory and asymptotic confidence
sequences", Annals of Statistics 2024 (arXiv 2103.06476), Theorem 2.2 and Appendix on ρ; Robbins 1970; Johari, Koomen,
Pekelis, Walsh, "Always valid inference", Operations Research 2022 (mixture SPRT).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from scipy import special

from hat_stats.arrays import Bounds, check_bounds, open_unit, positive
from hat_stats.errors import InputError
from hat_stats.moments import Arm, Moments

State = Literal["ok", "too_few", "no_variance", "undefined"]


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the data says."""

    delta: float | None
    """The estimate: a mean, a difference a − b, or a relative change a/b − 1; None where it does not exist."""
    low: float
    high: float
    p: float
    """Always-valid p of "delta = null"; with `previous` given, the smallest up to this look."""
    n: int
    """Units, both arms together."""
    level: float
    state: State
    missing: int = 0


def mixture_rho(target_n: float, level: float = 0.95) -> float:
    """The ρ that makes the interval narrowest at `target_n` units.

    ρ² = (−W₋₁(−α² e⁻¹) − 1) / target_n, with W₋₁ the lower branch of Lambert's function.
    """
    alpha = 1.0 - open_unit(level, "level")
    best = -special.lambertw(-(alpha**2) / math.e, -1).real - 1.0
    return math.sqrt(best / positive(target_n, "target_n"))


def sequential_mean(
    arm: Arm | Moments,
    *,
    target_n: float,
    level: float = 0.95,
    null: float = 0.0,
    burn_in: int = 100,
    bounds: Bounds | None = None,
    previous: Look | None = None,
) -> Look:
    """Confidence sequence of one mean or ratio.

    mean ± σ̂ √( 2(nρ² + 1)/(n²ρ²) · log(√(nρ² + 1)/α) ). target_n: units at which it should be narrowest, fixed before
    the first look. null: what p tests. bounds: what a unit's value can be, needed where values are missing. previous:
    the look before; then p never rises. Raises InputError for settings out of range.
    """
    one = Arm.mean(arm) if isinstance(arm, Moments) else arm
    slack = _slack(bounds, one)
    look = _look(one.value, one.variance / max(one.n, 1), one.n, target_n, level, null, one.n < burn_in, slack)
    return _chain(replace(look, missing=one.missing), previous)


def sequential_difference(
    a: Arm | Moments,
    b: Arm | Moments,
    *,
    target_n: float,
    level: float = 0.95,
    null: float = 0.0,
    burn_in: int = 100,
    bounds: Bounds | None = None,
    previous: Look | None = None,
) -> Look:
    """Confidence sequence of a − b for two independent arms of any sizes; target_n counts units of both together.

    With N = n_a + n_b and v = s²_a/n_a + s²_b/n_b the difference is a mean of N terms of variance N·v. Where the split
    changed under way use `sequential_staged`. Arguments as in `sequential_mean`; burn_in holds for each arm.
    """
    left, right = (Arm.mean(arm) if isinstance(arm, Moments) else arm for arm in (a, b))
    few = min(left.n, right.n) < max(burn_in, 1)
    noise = 0.0 if few else left.variance / left.n + right.variance / right.n
    above, below = _slack(bounds, left), _slack(bounds, right)
    slack = (above[0] - below[1], above[1] - below[0])
    value = left.value - right.value if left.n and right.n else math.nan
    look = _look(value, noise, left.n + right.n, target_n, level, null, few, slack)
    return _chain(replace(look, missing=left.missing + right.missing), previous)


def sequential_staged(
    stages: Sequence[tuple[Arm | Moments, Arm | Moments]],
    *,
    target_n: float,
    level: float = 0.95,
    null: float = 0.0,
    burn_in: int = 100,
    previous: Look | None = None,
) -> Look:
    """Difference a − b over a ramp: each stage compares its own arms, and stages weigh by their units.

    A plain difference would mix time into the comparison when the split moves from 5 % to 50 %. Stages with fewer than
    `burn_in` units in an arm are left out. Source: as `sequential_mean`, Theorem 2.5 (variances that change).
    """
    pairs = [tuple(Arm.mean(arm) if isinstance(arm, Moments) else arm for arm in stage) for stage in stages]
    if any(arm.missing for pair in pairs for arm in pair):
        raise InputError("values are missing", place="stages", cure="fill them at the metric's bounds and compare both")
    used = [pair for pair in pairs if min(arm.n for arm in pair) >= max(burn_in, 1)]
    total = sum(arm.n for pair in used for arm in pair)
    value, noise = 0.0, 0.0
    for left, right in used:
        weight = (left.n + right.n) / total
        value += weight * (left.value - right.value)
        noise += weight**2 * (left.variance / left.n + right.variance / right.n)
    look = _look(value if used else math.nan, noise, total, target_n, level, null, not used, (0.0, 0.0))
    return _chain(look, previous)


def sequential_lift(
    a: Arm | Moments,
    b: Arm | Moments,
    *,
    target_n: float,
    level: float = 0.95,
    burn_in: int = 100,
    previous: Look | None = None,
) -> Look:
    """Relative change a/b − 1 with its confidence sequence, from the difference of logs (delta method).

    Both estimates must be above 0, else the state is `undefined`; p tests "no change".
    """
    left, right = (Arm.mean(arm) if isinstance(arm, Moments) else arm for arm in (a, b))
    if left.missing or right.missing:
        raise InputError("values are missing", place="a, b", cure="use sequential_difference with bounds")
    logs = sequential_difference(left.log(), right.log(), target_n=target_n, level=level, burn_in=burn_in)
    if logs.delta is None:
        return _chain(replace(logs, low=-1.0), previous)
    low = max(-1.0, math.expm1(logs.low)) if math.isfinite(logs.low) else -1.0
    high = math.expm1(min(logs.high, 700.0)) if math.isfinite(logs.high) else math.inf
    return _chain(replace(logs, delta=math.expm1(logs.delta), low=low, high=high), previous)


def msprt_p(delta: float, variance: float, tau: float) -> float:
    """Mixture-SPRT p of "delta = 0" at one look: min(1, 1/Λ), the mixture being N(0, tau²) over the true delta.

    Λ = √(v/(v + τ²)) · exp(δ̂² τ² / (2 v (v + τ²))), v = variance of δ̂. Always valid; keep the smallest over looks.
    """
    v, t2 = positive(variance, "variance"), positive(tau, "tau") ** 2
    log_ratio = 0.5 * math.log(v / (v + t2)) + delta**2 * t2 / (2 * v * (v + t2))
    return min(1.0, math.exp(-log_ratio)) if log_ratio > 0 else 1.0


def _slack(bounds: Bounds | None, arm: Arm) -> tuple[float, float]:
    """How far the arm's missing values could move its mean down and up."""
    if not arm.missing:
        return 0.0, 0.0
    if bounds is None:
        raise InputError("values are missing and the metric has no bounds", place="bounds", cure="give bounds")
    low, high = check_bounds(bounds)
    if not arm.n:
        return -math.inf, math.inf
    share = arm.missing / (arm.n + arm.missing)
    return share * (low - arm.value), share * (high - arm.value)


def _look(
    value: float,
    noise: float,
    n: int,
    target_n: float,
    level: float,
    null: float,
    few: bool,
    slack: tuple[float, float],
) -> Look:
    """One look at an estimate whose variance is `noise`; `slack` is what missing values could add to it."""
    alpha, rho = 1.0 - open_unit(level, "level"), mixture_rho(target_n, level)
    if n == 0 or math.isnan(value):
        return Look(None, -math.inf, math.inf, 1.0, n, level, "too_few" if n == 0 else "undefined")
    if few:
        return Look(value, -math.inf, math.inf, 1.0, n, level, "too_few")
    if noise <= 0:
        return Look(value, -math.inf, math.inf, 1.0, n, level, "no_variance")
    grown = n * rho * rho
    half = math.sqrt(noise * 2 * (grown + 1) / grown * (0.5 * math.log1p(grown) - math.log(alpha)))
    gap = value - null
    gap = max(gap + slack[0], 0.0) if gap > 0 else min(gap + slack[1], 0.0)
    log_ratio = grown / (grown + 1) * gap * gap / (2 * noise) - 0.5 * math.log1p(grown)
    p = math.exp(-log_ratio) if log_ratio > 0 else 1.0
    return Look(value, value - half + slack[0], value + half + slack[1], p, n, level, "ok")


def _chain(look: Look, previous: Look | None) -> Look:
    return look if previous is None else replace(look, p=min(look.p, previous.p))
