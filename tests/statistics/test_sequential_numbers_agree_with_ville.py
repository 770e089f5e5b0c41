"""Sequential numbers against the independent package ville, written from the same papers."""

from __future__ import annotations

import numpy as np
import pytest
import ville

from hat_stats.betting import betting_difference, betting_mean, betting_test
from hat_stats.moments import Arm, Moments, PairMoments
from hat_stats.sequential import mixture_rho, msprt_p, sequential_difference, sequential_mean

RNG = np.random.default_rng(50)
SKEWED = RNG.exponential(1.0, 1200)
RARE = (RNG.random(900) < 0.07).astype(float)


@pytest.mark.parametrize("n", [100, 500, 1200])
@pytest.mark.parametrize("level", [0.9, 0.95, 0.999])
def test_asymptotic_confidence_sequence(n: int, level: float) -> None:
    theirs = ville.AsymptoticCS(alpha=1 - level, t_opt=500, min_samples=100).fit(SKEWED)
    ours = sequential_mean(Moments.of(SKEWED[:n]), target_n=500, level=level)
    assert ours.delta == pytest.approx(theirs.estimate_[n - 1])
    assert ours.low == pytest.approx(theirs.lower_[n - 1], rel=1e-6)
    assert ours.high == pytest.approx(theirs.upper_[n - 1], rel=1e-6)


def test_mixture_width() -> None:
    assert mixture_rho(500) ** -2 == pytest.approx(ville.best_rho(500, 0.05), rel=1e-4)


def test_p_is_one_minus_the_level_at_which_the_interval_first_excludes_the_null() -> None:
    """Not a comparison with ville, but the tie between its two notions: interval and p."""
    x = SKEWED[:600]
    p = sequential_mean(Moments.of(x), target_n=300, null=0.9).p
    rho = mixture_rho(300)  # p uses the ρ of the stated level, so the interval is compared at that same ρ
    n, mean, sd = len(x), x.mean(), x.std(ddof=1)
    half = sd * np.sqrt(2 * (n * rho**2 + 1) / (n**2 * rho**2) * np.log(np.sqrt(n * rho**2 + 1) / p))
    assert abs(mean - 0.9) == pytest.approx(half, rel=1e-9)


def test_mixture_sprt() -> None:
    x = RNG.normal(0.15, 1.0, 400)
    theirs = ville.MSPRT(theta0=0.0, sigma=1.0, tau=0.2).fit(x)
    for n in (50, 200, 400):
        ours = msprt_p(float(x[:n].mean()), 1.0 / n, 0.2)
        assert ours == pytest.approx(min(1.0, 1.0 / theirs.e_values_[n - 1]), rel=1e-9)


@pytest.mark.parametrize("alternative", ["two-sided", "greater", "less"])
def test_betting_capital(alternative: str) -> None:
    theirs = ville.BettingTest(0.1, alternative=alternative).fit(RARE)
    ours = betting_test(RARE, 0.1, alternative=alternative)  # type: ignore[arg-type]
    np.testing.assert_allclose(ours.log_e, theirs.log_e_values_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.p, theirs.p_values_, rtol=1e-9)


def test_betting_interval() -> None:
    grid = 5000
    theirs = ville.BettingCS(grid=grid).fit(RARE)
    ours = betting_mean(RARE)
    low, high = theirs.interval()
    assert ours.low == pytest.approx(low, abs=2.5 / grid)  # theirs is rounded outwards to its grid
    assert ours.high == pytest.approx(high, abs=2.5 / grid)


def test_two_arms_by_betting() -> None:
    treated = (RNG.random(900) < 0.5).astype(float)
    theirs = ville.BettingABTest(propensity=0.5, grid=8000).fit(RARE, treated)
    ours = betting_difference(RARE, treated, share_a=0.5)
    low, high = theirs.interval()
    assert ours.delta == pytest.approx(theirs.estimate_[-1])
    assert ours.low == pytest.approx(low, abs=3 * 4 / 8000)
    assert ours.high == pytest.approx(high, abs=3 * 4 / 8000)


def test_two_arms_in_large_samples() -> None:
    """The weighting estimator and the difference of means are two estimators of one effect: close, not equal."""
    rng = np.random.default_rng(51)
    treated = (rng.random(20_000) < 0.3).astype(float)
    y = rng.normal(1.0 + 0.1 * treated, 1.0)
    theirs = ville.AsymptoticABTest(propensity=0.3, t_opt=20_000).fit(y, treated).interval()
    ours = sequential_difference(Moments.of(y[treated == 1]), Moments.of(y[treated == 0]), target_n=20_000)
    assert ours.high - ours.low == pytest.approx(theirs[1] - theirs[0], rel=0.05)
    assert ours.low == pytest.approx(theirs[0], abs=0.02)


def test_moments_merge_to_those_of_the_whole() -> None:
    parts = [Moments.of(part) for part in np.array_split(SKEWED, 7)]
    merged = Moments()
    for part in parts:
        merged = merged.merge(part)
    assert merged.mean == pytest.approx(SKEWED.mean(), rel=1e-12)
    assert merged.variance == pytest.approx(SKEWED.var(ddof=1), rel=1e-12)
    sums = Moments.from_sums(len(SKEWED), float(SKEWED.sum()), float((SKEWED**2).sum()))
    assert sums.variance == pytest.approx(SKEWED.var(ddof=1), rel=1e-9)


def test_ratio_variance_agrees_with_resampling_units() -> None:
    rng = np.random.default_rng(52)
    y = 1 + rng.poisson(3, 800)
    x = rng.binomial(y, 0.4)
    arm = Arm.ratio(PairMoments.of(x, y))
    assert arm.value == pytest.approx(x.sum() / y.sum())
    index = rng.integers(0, 800, (4000, 800))
    drawn = x[index].sum(axis=1) / y[index].sum(axis=1)
    assert np.sqrt(arm.variance / arm.n) == pytest.approx(drawn.std(), rel=0.06)
    halves = PairMoments.of(x[:300], y[:300]).merge(PairMoments.of(x[300:], y[300:]))
    assert Arm.ratio(halves).variance == pytest.approx(arm.variance, rel=1e-9)
