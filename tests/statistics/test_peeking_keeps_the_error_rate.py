"""Looking at every batch of 2,000 simulated null studies raises a false alarm in at most α of them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from hat_stats.betting import betting_difference, betting_mean, betting_test
from hat_stats.errors import InputError
from hat_stats.moments import Arm, Moments, PairMoments
from hat_stats.sequential import (
    Look,
    mixture_rho,
    msprt_p,
    sequential_difference,
    sequential_lift,
    sequential_mean,
    sequential_staged,
)
from hat_stats.srm import sequential_sample_ratio

STUDIES = 2000
ALPHA = 0.05


def allowed(alpha: float) -> int:
    """Most false alarms among the studies that chance explains: exceeded once in 10,000 runs at an exact rate alpha."""
    return int(stats.binom.isf(1e-4, STUDIES, alpha))


def running(values: np.ndarray, every: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per look [studies, looks]: count, mean, Σ(x − mean)² of the values [studies, n] so far."""
    n = np.arange(every, values.shape[1] + 1, every)
    sums = np.cumsum(values, axis=1)[:, n - 1]
    squares = np.cumsum(values**2, axis=1)[:, n - 1]
    return n, sums / n, np.maximum(squares - sums**2 / n, 0)


def looks(a: np.ndarray, b: np.ndarray, every: int) -> list[list[tuple[Moments, Moments]]]:
    n, mean_a, m2_a = running(a, every)
    _, mean_b, m2_b = running(b, every)
    return [
        [
            (Moments(int(n[t]), mean_a[s, t], m2_a[s, t]), Moments(int(n[t]), mean_b[s, t], m2_b[s, t]))
            for t in range(len(n))
        ]
        for s in range(len(a))
    ]


@pytest.mark.parametrize("metric", ["binary", "skewed"])
def test_two_arms_of_a_mean(metric: str) -> None:
    rng = np.random.default_rng(31)
    shape = (2, STUDIES, 1500)
    values = (rng.random(shape) < 0.12).astype(float) if metric == "binary" else rng.exponential(1.0, shape)
    wrong_interval = wrong_p = naive = 0
    for study in looks(values[0], values[1], 100):
        seen = [sequential_difference(a, b, target_n=1500, level=1 - ALPHA) for a, b in study]
        wrong_interval += any(not look.low <= 0 <= look.high for look in seen)
        wrong_p += any(look.p <= ALPHA for look in seen)
        naive += any(abs(a.mean - b.mean) > 1.96 * math.sqrt((a.variance + b.variance) / a.n) for a, b in study)
    assert wrong_interval <= allowed(ALPHA)
    assert wrong_p <= allowed(ALPHA)
    assert naive > 3 * ALPHA * STUDIES  # the same peeking with fixed-sample intervals


def test_one_mean_and_the_mixture_test() -> None:
    rng = np.random.default_rng(32)
    n, mean, m2 = running(rng.exponential(1.0, (STUDIES, 1500)), 50)
    wrong = wrong_msprt = 0
    for s in range(STUDIES):
        moments = [Moments(int(n[t]), mean[s, t], m2[s, t]) for t in range(len(n))]
        seen = [sequential_mean(m, target_n=800, null=1.0) for m in moments]
        wrong += any(look.p <= ALPHA for look in seen)
        wrong_msprt += any(msprt_p(m.mean - 1, m.variance / m.n, 0.1) <= ALPHA for m in moments if m.n >= 100)
    assert wrong <= allowed(ALPHA)
    assert wrong_msprt <= allowed(ALPHA)


def test_ratio_metrics_and_relative_change() -> None:
    rng = np.random.default_rng(33)
    studies, step, batches = 1000, 150, 8
    wrong = 0
    for _ in range(studies):
        a = b = PairMoments()
        alarm = False
        for _ in range(batches):
            y = 1 + rng.poisson(3, (2, step))
            x = rng.binomial(y, 0.4)
            a, b = a.merge(PairMoments.of(x[0], y[0])), b.merge(PairMoments.of(x[1], y[1]))
            alarm |= sequential_lift(Arm.ratio(a), Arm.ratio(b), target_n=1200).p <= ALPHA
        wrong += alarm
    assert wrong <= int(stats.binom.isf(1e-4, studies, ALPHA))


def test_a_ramp_that_meets_a_trend_raises_no_false_alarm_when_stages_are_compared_apart() -> None:
    """Time of day moves the metric while the canary grows from 5 % to 50 %; both arms are the same."""
    rng = np.random.default_rng(34)
    studies, wrong, mixed = 500, 0, 0
    for _ in range(studies):
        stages = []
        for share, base in ((0.05, 0.2), (0.2, 0.3), (0.5, 0.4)):
            size = int(4000 * share)
            stages.append((Moments.of(rng.random(size) < base), Moments.of(rng.random(4000 - size) < base)))
        wrong += sequential_staged(stages, target_n=8000).p <= ALPHA
        a, b = stages[0]
        for left, right in stages[1:]:
            a, b = a.merge(left), b.merge(right)
        mixed += sequential_difference(a, b, target_n=8000).p <= ALPHA
    assert wrong <= int(stats.binom.isf(1e-4, studies, ALPHA))
    assert mixed > 0.9 * studies


def test_betting_on_rare_errors_at_every_unit() -> None:
    rng = np.random.default_rng(35)
    values = (rng.random((STUDIES, 400)) < 0.02).astype(float)
    wrong = sum(betting_test(row, 0.02).p[-1] <= ALPHA for row in values)
    assert wrong <= allowed(ALPHA)
    missed = sum(not look.low <= 0.02 <= look.high for look in map(betting_mean, values[:500]))
    assert missed <= int(stats.binom.isf(1e-4, 500, ALPHA))


def test_betting_on_two_arms_at_every_unit() -> None:
    rng = np.random.default_rng(36)
    wrong = 0
    for _ in range(500):
        look = betting_difference(rng.random(600) < 0.1, rng.random(600) < 0.3, share_a=0.3)
        wrong += look.p <= ALPHA
        wrong += not look.low <= 0 <= look.high and look.p > ALPHA
    assert wrong <= int(stats.binom.isf(1e-4, 500, ALPHA))


def test_sample_ratio_watched_through_a_ramp() -> None:
    rng = np.random.default_rng(37)
    stages = [(0.05, 2000), (0.2, 2000), (0.5, 4000)]
    wrong = naive = 0
    for _ in range(STUDIES):
        done: list[tuple[list[int], list[float]]] = []
        alarm = plain = False
        for share, size in stages:
            counts, weights = [0, 0], [share, 1 - share]
            for _ in range(4):
                a = int(rng.binomial(size // 4, share))
                counts = [counts[0] + a, counts[1] + size // 4 - a]
                alarm |= sequential_sample_ratio([*done, (counts, weights)], alpha=ALPHA).mismatch
                plain |= (counts[0] - sum(counts) * share) ** 2 > 3.84 * sum(counts) * share * (1 - share)
            done.append((counts, weights))
        wrong += alarm
        naive += plain
    assert wrong <= allowed(ALPHA)
    assert naive > 3 * ALPHA * STUDIES


def test_real_differences_are_found() -> None:
    rng = np.random.default_rng(38)
    found = {"mean": 0, "betting": 0, "ratio": 0}
    for _ in range(200):
        a, b = (rng.random(3000) < 0.20).astype(float), (rng.random(3000) < 0.12).astype(float)
        found["mean"] += sequential_difference(Moments.of(a), Moments.of(b), target_n=4000).low > 0
        arm = rng.random(6000) < 0.5
        found["betting"] += (
            betting_difference(np.where(arm, np.resize(a, 6000), np.resize(b, 6000)), arm, share_a=0.5).low > 0
        )
        count = int(rng.binomial(20_000, 0.53))
        found["ratio"] += sequential_sample_ratio([([count, 20_000 - count], [1, 1])]).mismatch
    assert found["mean"] > 190
    assert found["betting"] > 180
    assert found["ratio"] > 190


def test_nothing_is_claimed_before_the_burn_in_or_without_spread() -> None:
    few = sequential_difference(Moments.of([1.0] * 99), Moments.of([0.0] * 500), target_n=1000)
    assert (few.state, few.p, few.low, few.high) == ("too_few", 1.0, -math.inf, math.inf)
    flat = sequential_difference(Moments.of([0.0] * 500), Moments.of([0.0] * 500), target_n=1000)
    assert (flat.state, flat.delta, flat.p, flat.high) == ("no_variance", 0.0, 1.0, math.inf)
    none = sequential_difference(Moments(), Moments(), target_n=1000)
    assert (none.state, none.delta, none.n) == ("too_few", None, 0)
    assert sequential_lift(Moments.of([0.0, 1.0] * 200), Moments.of([0.0] * 400), target_n=99).state == "undefined"
    assert sequential_staged([], target_n=10).delta is None
    assert betting_mean([]).delta is None


def test_missing_values_widen_and_never_help() -> None:
    rng = np.random.default_rng(39)
    a, b = (rng.random(1000) < 0.3).astype(float), (rng.random(1000) < 0.2).astype(float)
    whole = sequential_difference(Moments.of(a), Moments.of(b), target_n=2000)
    holed = a.copy()
    holed[np.flatnonzero(a == 0)[:50]] = math.nan
    seen = sequential_difference(Moments.of(holed), Moments.of(b), target_n=2000, bounds=(0, 1))
    assert seen.missing == 50
    assert seen.low < whole.low
    assert seen.high > whole.high
    bare = sequential_difference(Moments.of(holed[~np.isnan(holed)]), Moments.of(b), target_n=2000)
    assert seen.p > bare.p
    with pytest.raises(InputError, match="no bounds"):
        sequential_difference(Moments.of(holed), Moments.of(b), target_n=2000)


def test_p_never_rises_from_look_to_look() -> None:
    rng = np.random.default_rng(40)
    seen: list[Look] = []
    a = b = Moments()
    for _ in range(30):
        a, b = a.merge(Moments.of(rng.normal(0.2, 1, 50))), b.merge(Moments.of(rng.normal(0, 1, 50)))
        seen.append(sequential_difference(a, b, target_n=1000, previous=seen[-1] if seen else None))
    assert all(late.p <= early.p for early, late in itertools.pairwise(seen))
    assert seen[-1].p < ALPHA
    path = betting_test((rng.random(500) < 0.7).astype(float), 0.5).p
    assert (np.diff(path) <= 0).all()


def test_the_interval_is_narrowest_where_it_was_asked_to_be() -> None:
    def width(n: int, target: float) -> float:
        look = sequential_mean(Arm(n, 0.0, 1.0), target_n=target)
        return look.high - look.low

    at_target = width(1000, 1000)
    assert all(width(1000, other) > at_target for other in (50, 500, 2000, 20_000))
    rho = mixture_rho(1000)
    grid = [
        (k, math.sqrt((1000 * k**2 + 1) / k**2 * math.log((1000 * k**2 + 1) / 0.05**2)))
        for k in np.linspace(rho / 3, rho * 3, 2001)
    ]
    assert min(grid, key=lambda cell: cell[1])[0] == pytest.approx(rho, rel=0.01)


def test_swapping_the_arms_negates_the_look() -> None:
    a, b = Arm(700, 0.31, 0.2), Arm(400, 0.28, 0.25)
    there, back = (sequential_difference(*arms, target_n=900) for arms in ((a, b), (b, a)))
    assert back.delta == -there.delta  # type: ignore[operator]
    assert (back.low, back.high, back.p) == (-there.high, -there.low, there.p)
    up, down = (sequential_lift(*arms, target_n=900) for arms in ((a, b), (b, a)))
    assert (1 + up.low) * (1 + down.high) == pytest.approx(1.0)
    assert (1 + up.delta) * (1 + down.delta) == pytest.approx(1.0)  # type: ignore[operator]
