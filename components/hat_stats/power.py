"""How many items a comparison needs, and the smallest difference that a set can show.

Always holds: `required_*` returns a whole number of items (pairs, or units of the smaller arm), rounded up;
`detectable_*` is its inverse. All tests two-sided. Multiply by `design_effect` 1 + (m − 1)·ICC where items come in
clusters of m. Not here: designs that are watched, whose interval is 1.55 times as wide at its target (sequential).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy import optimize, stats

from hat_stats.arrays import open_unit, positive
from hat_stats.errors import InputError

_MOST = 10**9
"""Above this many items a comparison is refused as impossible rather than planned."""


def required_n_paired_proportions(
    delta: float, discordance: float, *, alpha: float = 0.05, power: float = 0.8, design_effect: float = 1.0
) -> int:
    """Pairs needed to see a difference `delta` of two success rates when a share `discordance` of pairs disagrees.

    n = (z_{1−α/2} √ψ + z_power √(ψ − δ²))² / δ². Source: Miettinen 1968; Connor 1987.
    """
    gap, share = abs(delta), open_unit(discordance, "discordance")
    positive(gap, "delta")
    if gap > share:
        raise InputError(
            f"a difference of {gap:g} needs at least that discordance, not {share:g}", place="discordance",
            cure="measure the share of items on which the two runs disagree",
        )  # fmt: skip
    z_alpha, z_power = _quantiles(alpha, power)
    n = (z_alpha * math.sqrt(share) + z_power * math.sqrt(share - gap * gap)) ** 2 / gap**2
    return _whole(n * positive(design_effect, "design_effect"))


def detectable_paired_proportions(n: int, discordance: float, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """Smallest difference that n pairs can show at that discordance; the discordance itself where n is too small."""
    share = open_unit(discordance, "discordance")
    z_alpha, z_power = _quantiles(alpha, power)

    def shortfall(gap: float) -> float:
        return z_alpha * math.sqrt(share) + z_power * math.sqrt(max(share - gap * gap, 0.0)) - gap * math.sqrt(n)

    return _root(shortfall, share, n)


def required_n_proportions(
    base: float,
    delta: float,
    *,
    ratio: float = 1.0,
    alpha: float = 0.05,
    power: float = 0.8,
    design_effect: float = 1.0,
) -> int:
    """Units of the base arm needed to tell rate base + delta from base; the other arm has `ratio` times as many.

    Pooled variance under the null, separate under the alternative. Source: Fleiss, Levin and Paik 2003, ch. 4.
    """
    other = open_unit(open_unit(base, "base") + delta, "base + delta")
    positive(abs(delta), "delta")
    positive(ratio, "ratio")
    z_alpha, z_power = _quantiles(alpha, power)
    n = (_proportion_noise(base, other, ratio, z_alpha, z_power) / delta) ** 2
    return _whole(n * positive(design_effect, "design_effect"))


def detectable_proportions(
    n: int, base: float, *, ratio: float = 1.0, alpha: float = 0.05, power: float = 0.8
) -> float:
    """Smallest rise over `base` that n units per base arm can show; 1 − base where none can."""
    open_unit(base, "base")
    positive(ratio, "ratio")
    z_alpha, z_power = _quantiles(alpha, power)

    def shortfall(gap: float) -> float:
        return _proportion_noise(base, base + gap, ratio, z_alpha, z_power) - gap * math.sqrt(n)

    return _root(shortfall, 1.0 - base, n)


def required_n_paired_means(
    delta: float, sd: float, *, alpha: float = 0.05, power: float = 0.8, design_effect: float = 1.0
) -> int:
    """Pairs needed to see a mean difference `delta` when paired differences have standard deviation `sd` (t-test)."""
    effect = positive(abs(delta), "delta") / positive(sd, "sd")
    return _required_t(effect, 1, 1.0, alpha, power, design_effect)


def detectable_paired_means(n: int, sd: float, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """Smallest mean difference that n pairs with standard deviation `sd` can show; infinite below 2 pairs."""
    return positive(sd, "sd") * _detectable_t(n, 1, 1.0, alpha, power)


def required_n_means(
    delta: float,
    sd: float,
    *,
    ratio: float = 1.0,
    alpha: float = 0.05,
    power: float = 0.8,
    design_effect: float = 1.0,
) -> int:
    """Units of the base arm to tell two means apart by `delta` at a common `sd`; the other arm has `ratio` as many."""
    effect = positive(abs(delta), "delta") / positive(sd, "sd")
    return _required_t(effect, 2, positive(ratio, "ratio"), alpha, power, design_effect)


def detectable_means(n: int, sd: float, *, ratio: float = 1.0, alpha: float = 0.05, power: float = 0.8) -> float:
    """Smallest difference of means that n units of the base arm can show; infinite below 2."""
    return positive(sd, "sd") * _detectable_t(n, 2, positive(ratio, "ratio"), alpha, power)


def _quantiles(alpha: float, power: float) -> tuple[float, float]:
    z_alpha = float(stats.norm.isf(open_unit(alpha, "alpha") / 2))
    return z_alpha, float(stats.norm.ppf(open_unit(power, "power")))


def _proportion_noise(base: float, other: float, ratio: float, z_alpha: float, z_power: float) -> float:
    """√n times the smallest detectable difference, for units of the base arm."""
    pooled = (base + ratio * other) / (1 + ratio)
    null = math.sqrt(pooled * (1 - pooled) * (1 + 1 / ratio))
    return z_alpha * null + z_power * math.sqrt(base * (1 - base) + max(other * (1 - other), 0.0) / ratio)


def _whole(n: float) -> int:
    if n > _MOST:
        raise InputError(f"{n:.3g} items are out of reach", place="delta", cure="ask for a larger difference")
    return max(2, math.ceil(n - 1e-9))


def _root(shortfall: Callable[[float], float], most: float, n: int) -> float:
    if n < 1 or shortfall(most) > 0:
        return most
    return float(optimize.brentq(shortfall, 0.0, most, xtol=1e-12))


def _power_t(effect: float, n: float, arms: int, ratio: float, alpha: float) -> float:
    """Power of the two-sided t-test; n pairs (arms 1) or units of the base arm (arms 2)."""
    freedom = n - 1 if arms == 1 else n * (1 + ratio) - 2
    shift = effect * math.sqrt(n if arms == 1 else n * ratio / (1 + ratio))
    edge = stats.t.isf(alpha / 2, freedom)
    upper, lower = stats.nct.sf(edge, freedom, shift), stats.nct.cdf(-edge, freedom, shift)
    return float(upper) + (0.0 if math.isnan(lower) else float(lower))  # the far tail underflows for large shifts


def _required_t(effect: float, arms: int, ratio: float, alpha: float, power: float, design_effect: float) -> int:
    z_alpha, z_power = _quantiles(alpha, power)
    guess = (z_alpha + z_power) ** 2 / effect**2 * (1 if arms == 1 else (1 + ratio) / ratio)
    _whole(guess)

    def shortfall(n: float) -> float:
        return _power_t(effect, n, arms, ratio, alpha) - power

    least = 2.0 if arms == 1 else 2.0 / min(1.0, ratio)
    if shortfall(least) >= 0:
        n = least
    else:
        n = float(optimize.brentq(shortfall, least, 2 * guess + 20 * max(1.0, 1 / ratio), xtol=1e-6))
    return _whole(n * positive(design_effect, "design_effect") - 1e-5)


def _detectable_t(n: int, arms: int, ratio: float, alpha: float, power: float) -> float:
    """Smallest standardised effect."""
    z_alpha, z_power = _quantiles(alpha, power)
    if n < 2 or n * ratio < 2:
        return math.inf
    scale = (z_alpha + z_power) / math.sqrt(n if arms == 1 else n * ratio / (1 + ratio))
    high = scale
    while _power_t(high, n, arms, ratio, alpha) < power:
        high *= 2
    return float(optimize.brentq(lambda effect: _power_t(effect, n, arms, ratio, alpha) - power, 0.0, high))
