"""Sample-ratio mismatch and CUPED."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from hat_stats.cuped import cuped
from hat_stats.errors import InputError
from hat_stats.moments import Moments
from hat_stats.sequential import sequential_difference
from hat_stats.srm import sample_ratio, sequential_sample_ratio


def test_chi_square_agrees_with_its_definition() -> None:
    seen = sample_ratio([5120, 4880], [1, 1])
    chi2 = 2 * (5120 - 5000) ** 2 / 5000
    assert seen.p == pytest.approx(math.erfc(math.sqrt(chi2 / 2)))
    assert not seen.mismatch
    assert seen.shares == pytest.approx((0.512, 0.488))
    three = sample_ratio([100, 200, 320], [1, 2, 3])
    assert three.p == pytest.approx(stats.chisquare([100, 200, 320], [620 / 6, 620 / 3, 310]).pvalue)


def test_small_counts_use_the_exact_test() -> None:
    assert sample_ratio([0, 8], [1, 1]).p == pytest.approx(2 * 0.5**8)
    assert sample_ratio([0, 0], [1, 1]).p == 1.0
    assert sample_ratio([0, 0], [1, 1]).shares == ()


def test_sequential_evidence_is_the_integral_it_claims_to_be() -> None:
    """Two arms: the Bayes factor by numerical integration over a Beta prior."""
    a, b, share, k = 30, 50, 0.5, 10.0
    prior = stats.beta(k * share, k * (1 - share))

    def integrand(theta: float) -> float:
        return float((theta / share) ** a * ((1 - theta) / (1 - share)) ** b * prior.pdf(theta))

    factor = integrate.quad(integrand, 0, 1, limit=200)[0]
    seen = sequential_sample_ratio([([a, b], [1, 1])], concentration=k)
    assert seen.p == pytest.approx(min(1.0, 1 / factor), rel=1e-6)
    late = sequential_sample_ratio([([500, 500], [1, 1])], previous=seen)
    assert late.p == seen.p  # evidence that was seen once stays


def test_a_broken_split_is_caught_and_bad_counts_are_refused() -> None:
    assert sample_ratio([5300, 4700], [1, 1]).mismatch
    assert sequential_sample_ratio([([5300, 4700], [1, 1])]).mismatch
    for counts, weights in (([1], [1]), ([1, -1], [1, 1]), ([1.5, 2], [1, 1]), ([1, 2], [0, 1]), ([1, 2], [1, 1, 1])):
        with pytest.raises(InputError):
            sample_ratio(counts, weights)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        sequential_sample_ratio([])


def units(rng: np.random.Generator, n: int, effect: float) -> tuple[np.ndarray, np.ndarray]:
    past = rng.gamma(2.0, 10.0, n)
    return past + rng.normal(5 + effect, 8, n), past


def test_cuped_keeps_the_effect_and_removes_what_the_past_explains() -> None:
    rng = np.random.default_rng(5)
    effects, raw_effects, gone = [], [], []
    for _ in range(300):
        (y_a, x_a), (y_b, x_b) = units(rng, 400, 1.0), units(rng, 400, 0.0)
        seen = cuped(y_a, x_a, y_b, x_b)
        effects.append(seen.a.mean - seen.b.mean)
        raw_effects.append(y_a.mean() - y_b.mean())
        gone.append(seen.variance_reduction)
    assert np.mean(effects) == pytest.approx(1.0, abs=0.1)
    expected = 200 / (200 + 64)  # var(past) / var(metric)
    assert np.mean(gone) == pytest.approx(expected, abs=0.02)
    assert np.var(effects) / np.var(raw_effects) == pytest.approx(1 - expected, abs=0.08)


def test_cuped_agrees_with_least_squares_within_arms() -> None:
    rng = np.random.default_rng(6)
    (y_a, x_a), (y_b, x_b) = units(rng, 300, 2.0), units(rng, 200, 0.0)
    seen = cuped(y_a, x_a, y_b, x_b)
    design = np.column_stack([np.r_[np.ones(300), np.zeros(200)], np.r_[np.zeros(300), np.ones(200)], np.r_[x_a, x_b]])
    slope = np.linalg.lstsq(design, np.r_[y_a, y_b], rcond=None)[0][2]
    assert seen.theta == pytest.approx(slope)


def test_cuped_with_newcomers_constants_and_gaps() -> None:
    rng = np.random.default_rng(7)
    (y_a, x_a), (y_b, x_b) = units(rng, 300, 0.0), units(rng, 300, 0.0)
    x_a[:50] = math.nan
    seen = cuped(y_a, x_a, y_b, x_b)
    assert seen.without_past == 50
    assert 0 < seen.variance_reduction < 1
    flat = cuped(y_a, np.ones(300), y_b, np.ones(300))
    assert (flat.theta, flat.variance_reduction) == (0.0, 0.0)
    assert flat.a.mean == pytest.approx(y_a.mean())
    empty = cuped([], [], [], [])
    assert (empty.a.n, empty.theta) == (0, 0.0)
    with pytest.raises(InputError):
        cuped([math.nan], [1.0], [1.0], [1.0])


def test_cuped_narrows_the_sequential_interval() -> None:
    rng = np.random.default_rng(8)
    (y_a, x_a), (y_b, x_b) = units(rng, 800, 1.0), units(rng, 800, 0.0)
    seen = cuped(y_a, x_a, y_b, x_b)
    raw = sequential_difference(Moments.of(y_a), Moments.of(y_b), target_n=1600)
    sharp = sequential_difference(seen.a, seen.b, target_n=1600)
    assert sharp.high - sharp.low < 0.65 * (raw.high - raw.low)
