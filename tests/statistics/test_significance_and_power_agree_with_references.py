"""Tests, corrections and sample sizes against statsmodels, hand-written definitions and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from statsmodels.stats.contingency_tables import mcnemar as sm_mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestIndPower, TTestPower

from hat_stats.errors import InputError
from hat_stats.power import (
    detectable_means,
    detectable_paired_means,
    detectable_paired_proportions,
    detectable_proportions,
    required_n_means,
    required_n_paired_means,
    required_n_paired_proportions,
    required_n_proportions,
)
from hat_stats.significance import benjamini_hochberg, fisher, holm, mcnemar, mcnemar_p, wilcoxon

NAN = math.nan


def binomial_p(k: int, n: int) -> float:
    """Two-sided exact p of k of n at one half, from the definition."""
    weights = [math.comb(n, i) for i in range(n + 1)]
    return sum(w for w in weights if w <= weights[k]) / 2**n


@pytest.mark.parametrize(("a_only", "b_only"), [(0, 0), (1, 0), (3, 12), (12, 3), (30, 31), (0, 9)])
def test_mcnemar_is_exact(a_only: int, b_only: int) -> None:
    assert mcnemar_p(a_only, b_only) == pytest.approx(binomial_p(a_only, a_only + b_only))
    table = [[5, a_only], [b_only, 7]]
    if a_only + b_only:
        assert mcnemar_p(a_only, b_only) == pytest.approx(sm_mcnemar(table, exact=True).pvalue)


def test_mcnemar_counts_pairs_and_keeps_missing_ones_apart() -> None:
    seen = mcnemar([1, 1, 0, 0, NAN, 1], [1, 0, 1, 0, 1, NAN])
    assert (seen.both, seen.a_only, seen.b_only, seen.neither, seen.n, seen.missing) == (1, 1, 1, 1, 4, 2)


def test_missing_pairs_can_only_raise_the_worst_p() -> None:
    a, b = [1] * 12 + [0] * 2 + [NAN] * 4, [0] * 12 + [1] * 2 + [1] * 4
    seen = mcnemar(a, b)
    assert seen.p == pytest.approx(mcnemar_p(12, 2))
    assert seen.p_worst == pytest.approx(max(mcnemar_p(12, 2 + k) for k in range(5)))
    assert mcnemar([1] * 3 + [NAN] * 9, [0] * 12).p_worst == 1.0


def test_fisher_sums_the_tables_that_are_no_likelier() -> None:
    a, b, c, d = 8, 2, 3, 9

    def weight(k: int) -> int:
        return math.comb(a + b, k) * math.comb(c + d, a + c - k)

    tables = [weight(k) for k in range(max(0, a - d), min(a + b, a + c) + 1)]
    expected = sum(w for w in tables if w <= weight(a)) / sum(tables)
    assert fisher([[a, b], [c, d]]) == pytest.approx(expected)
    assert fisher([[0, 0], [3, 4]]) == 1.0
    for bad in ([[1, 2, 3], [1, 2, 3]], [[1, -2], [3, 4]]):
        with pytest.raises(InputError):
            fisher(bad)


def test_wilcoxon_agrees_with_scipy_and_survives_ties() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random(40), rng.random(40) + 0.1
    seen = wilcoxon(a, b)
    reference = stats.wilcoxon(a, b)
    assert (seen.p, seen.statistic) == pytest.approx((reference.pvalue, reference.statistic))
    tied = wilcoxon([0.5] * 5 + [NAN], [0.5] * 6)
    assert (tied.p, tied.nonzero, tied.n, tied.missing) == (1.0, 0, 5, 1)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_corrections_agree_with_statsmodels(p: list[float]) -> None:
    assert holm(p) == pytest.approx(multipletests(p, method="holm")[1])
    assert benjamini_hochberg(p) == pytest.approx(multipletests(p, method="fdr_bh")[1])
    assert all(adjusted >= raw - 1e-15 for adjusted, raw in zip(holm(p), p, strict=True))


def test_corrections_of_nothing_and_of_nonsense() -> None:
    assert holm([]) == []
    assert benjamini_hochberg([]) == []
    for bad in ([-0.1], [1.1], [NAN]):
        with pytest.raises(InputError):
            holm(bad)


def test_holm_holds_the_chance_of_any_false_claim() -> None:
    """Ten questions, no true difference: with Holm in 5 % of 2,000 studies any claim, without in 40 %."""
    rng = np.random.default_rng(2)
    p = rng.random((2000, 10))
    wrong = sum(min(holm(row.tolist())) < 0.05 for row in p)
    assert wrong <= stats.binom.isf(1e-4, 2000, 0.05)
    assert (p.min(axis=1) < 0.05).sum() > 700


@pytest.mark.parametrize("effect", [0.1, 0.3, 1.2])
def test_sample_sizes_for_means_agree_with_statsmodels(effect: float) -> None:
    paired = TTestPower().solve_power(effect_size=effect, alpha=0.05, power=0.8)
    assert required_n_paired_means(effect, 1.0) == math.ceil(paired - 1e-6)
    two = TTestIndPower().solve_power(effect_size=effect, alpha=0.05, power=0.9, ratio=2.0)
    assert required_n_means(2 * effect, 2.0, ratio=2.0, power=0.9) == math.ceil(two - 1e-6)


def integrated_power(effect: float, n: int) -> float:
    """Power of the paired t-test by integrating over the sample variance, without the noncentral t."""
    freedom, shift = n - 1, effect * math.sqrt(n)
    edge, spread = stats.t.isf(0.025, freedom), stats.chi2(freedom)

    def density(v: float) -> float:
        t = edge * math.sqrt(v / freedom)
        return float((stats.norm.cdf(shift - t) + stats.norm.cdf(-shift - t)) * spread.pdf(v))

    reach = 12 * math.sqrt(2 * freedom)
    return integrate.quad(density, max(freedom - reach, 0), freedom + reach, epsabs=1e-12, limit=500)[0]


@pytest.mark.parametrize("n", [20, 200, 2000])
def test_detectable_means_agree_with_integration_and_statsmodels(n: int) -> None:
    ours = detectable_paired_means(n, 3.0)
    assert integrated_power(ours / 3, n) == pytest.approx(0.8, abs=1e-8)
    paired = TTestPower().solve_power(nobs=n, alpha=0.05, power=0.8)
    assert ours == pytest.approx(3 * paired, rel=1e-4)  # statsmodels' own root is good to about five digits
    two = TTestIndPower().solve_power(nobs1=n, alpha=0.05, power=0.8, ratio=0.5)
    assert detectable_means(n, 3.0, ratio=0.5) == pytest.approx(3 * two, rel=1e-4)
    assert detectable_paired_means(1, 3.0) == math.inf


def simulated_power_paired(n: int, delta: float, discordance: float, studies: int = 4000) -> float:
    rng = np.random.default_rng(3)
    up, down = (discordance + delta) / 2, (discordance - delta) / 2
    counts = rng.multinomial(n, [up, down, 1 - discordance], size=studies)
    z = (counts[:, 0] - counts[:, 1]) / np.sqrt(np.maximum(counts[:, 0] + counts[:, 1], 1))
    return float((np.abs(z) > 1.96).mean())


@pytest.mark.parametrize(("delta", "discordance"), [(0.05, 0.2), (0.08, 0.3), (0.03, 0.1)])
def test_paired_sample_sizes_give_the_power_they_promise(delta: float, discordance: float) -> None:
    n = required_n_paired_proportions(delta, discordance)
    assert simulated_power_paired(n, delta, discordance) == pytest.approx(0.8, abs=0.025)
    assert detectable_paired_proportions(n, discordance) == pytest.approx(delta, rel=0.01)


@pytest.mark.parametrize(("base", "delta", "ratio"), [(0.1, 0.03, 1.0), (0.6, 0.05, 2.0), (0.02, 0.01, 0.25)])
def test_unpaired_sample_sizes_give_the_power_they_promise(base: float, delta: float, ratio: float) -> None:
    n = required_n_proportions(base, delta, ratio=ratio)
    rng = np.random.default_rng(4)
    other = round(n * ratio)
    x, y = rng.binomial(n, base, 4000), rng.binomial(other, base + delta, 4000)
    pooled = (x + y) / (n + other)
    z = (y / other - x / n) / np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / other))
    assert (np.abs(z) > 1.96).mean() == pytest.approx(0.8, abs=0.025)
    assert detectable_proportions(n, base, ratio=ratio) == pytest.approx(delta, rel=0.01)


def test_sample_sizes_move_the_right_way_and_refuse_the_impossible() -> None:
    assert required_n_paired_proportions(0.02, 0.2) > required_n_paired_proportions(0.05, 0.2)
    assert required_n_paired_proportions(0.05, 0.4) > required_n_paired_proportions(0.05, 0.2)
    assert required_n_paired_proportions(0.05, 0.2, design_effect=2.0) == pytest.approx(
        2 * required_n_paired_proportions(0.05, 0.2), abs=1
    )
    for call in (
        lambda: required_n_paired_proportions(0.3, 0.2),
        lambda: required_n_proportions(0.95, 0.1),
        lambda: required_n_proportions(0.5, 0.0),
        lambda: required_n_means(1e-9, 1.0),
        lambda: required_n_means(0.1, 0.0),
        lambda: required_n_paired_means(0.1, 1.0, power=1.0),
    ):
        with pytest.raises(InputError):
            call()
