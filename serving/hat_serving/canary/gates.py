"""From measured numbers to a verdict: success, failure, inconclusive, or waiting for more data. Pure.

Always holds: too little data is "waiting", never a success; a share is judged by an interval that stays valid however
often it is looked at (hat_stats.sequential), so watching a canary all day does not make a false alarm likelier than
stated. Not here: queries (metrics), how verdicts add up (machine.fold).
"""

from __future__ import annotations

from dataclasses import dataclass

from hat_serving.canary.spec import Metric, SampleRatio, Share, Threshold
from hat_serving.canary.state import Measurement

BURN_IN = 100
"""Units per arm before an asymptotic interval is believed."""
EXACT_UNITS = 20_000
"""Units beyond which the exact interval is not narrowed further; it then only errs on the safe side."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Units of one arm and how many of them had the event."""

    events: float
    total: float


def judge_threshold(metric: Metric, rule: Threshold, value: float | None, sample: float | None) -> Measurement:
    """One number against its bounds."""
    if value is None:
        return Measurement(metric.name, "waiting", None, "the query has no data yet")
    if metric.minimum_sample and (sample is None or sample < metric.minimum_sample):
        return Measurement(metric.name, "waiting", value, f"{sample or 0:g} of {metric.minimum_sample} units")
    if rule.success.holds(value):
        return Measurement(metric.name, "success", value, f"{value:g}")
    if rule.failure is None or rule.failure.holds(value):
        return Measurement(metric.name, "failure", value, f"{value:g} is outside {_bound(rule)}")
    return Measurement(metric.name, "inconclusive", value, f"{value:g} lies between success and failure")


def judge_share(metric: Metric, rule: Share, canary: Counts, stable: Counts) -> Measurement:
    """A share of both arms: failure when harm is shown, success when harm beyond the margin is ruled out."""
    n_canary, n_stable = round(canary.total), round(stable.total)
    needed = max(metric.minimum_sample, 1)
    if n_canary < needed or n_stable < 1:
        return Measurement(
            metric.name, "waiting", None, f"{n_canary} of {needed} units on the canary, {n_stable} on stable"
        )
    hits = (min(round(canary.events), n_canary), min(round(stable.events), n_stable))
    low, high = _difference(rule, hits, (n_canary, n_stable))
    sign = 1.0 if rule.better == "lower" else -1.0
    harm_low, harm_high = sorted((sign * low, sign * high))
    gap = hits[0] / n_canary - hits[1] / n_stable
    said = f"difference {gap:+.4f}, interval {low:+.4f} to {high:+.4f}, n = {n_canary} and {n_stable}"
    if harm_low > 0:
        return Measurement(metric.name, "failure", gap, f"worse: {said}")
    if harm_high < rule.margin:
        return Measurement(metric.name, "success", gap, f"no harm beyond {rule.margin:g}: {said}")
    return Measurement(metric.name, "waiting", gap, f"not decided yet: {said}")


def judge_ratio(metric: Metric, rule: SampleRatio, canary: float, stable: float, percent: int) -> Measurement:
    """Units per arm against the split that is in force."""
    from hat_stats.srm import sequential_sample_ratio

    counts = (round(canary), round(stable))
    if sum(counts) < max(metric.minimum_sample, 1) or not 0 < percent < 100:
        return Measurement(metric.name, "waiting", None, f"{sum(counts)} units at {percent} %")
    found = sequential_sample_ratio([(counts, (percent, 100 - percent))], alpha=rule.alpha)
    said = f"{found.shares[0]:.2%} of units against {percent} %, p = {found.p:.2g}"
    return Measurement(metric.name, "failure" if found.mismatch else "success", found.shares[0], said)


def _difference(rule: Share, hits: tuple[int, int], totals: tuple[int, int]) -> tuple[float, float]:
    """Interval of canary − stable: sequential where both arms vary, exact and wider where one of them does not."""
    from hat_stats.moments import Moments
    from hat_stats.sequential import sequential_difference

    arms = [Moments.from_sums(n, k, k) for k, n in zip(hits, totals, strict=True)]
    target = float(rule.target_sample)
    look = sequential_difference(arms[0], arms[1], target_n=target, level=rule.level, burn_in=BURN_IN)
    if look.state == "ok" and all(0 < k < n for k, n in zip(hits, totals, strict=True)):
        return look.low, look.high
    half = 1.0 - (1.0 - rule.level) / 2
    (canary_low, canary_high), (stable_low, stable_high) = (
        _exact(k, n, half) for k, n in zip(hits, totals, strict=True)
    )
    return canary_low - stable_high, canary_high - stable_low


def _exact(events: int, total: int, level: float) -> tuple[float, float]:
    """Interval of one share that holds at every look, whatever the share (betting).

    Counts have lost the order in which events came; they are spread evenly, which for exchangeable units changes only
    how fast the interval narrows.
    """
    import numpy as np

    from hat_stats.betting import betting_mean

    n = min(total, EXACT_UNITS)
    k = round(events * n / total)
    steps = np.floor(np.arange(1, n + 1) * (k / n) + 1e-9)
    look = betting_mean(np.diff(steps, prepend=0.0), level=level)
    return look.low, look.high


def _bound(rule: Threshold) -> str:
    low, high = rule.success.at_least, rule.success.at_most
    return " and ".join(
        ([f"at least {low:g}"] if low is not None else []) + ([f"at most {high:g}"] if high is not None else [])
    )
