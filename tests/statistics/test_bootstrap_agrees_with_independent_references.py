"""Bootstrap numbers against exhaustive enumeration, a naive loop and scipy's own bootstrap."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats

from hat_stats.bootstrap import bootstrap_mean, paired_bootstrap, paired_bootstrap_runs


def close_share(seen: float, exact: float, draws: int) -> bool:
    """Within five standard errors of a binomial share: a false failure about once in two million runs."""
    return abs(seen - exact) <= 5 * math.sqrt(max(exact * (1 - exact), 1 / draws) / draws)


def exact_means(values: list[float]) -> list[float]:
    """Mean of every one of the n^n equally likely resamples."""
    return [sum(pick) / len(values) for pick in itertools.product(values, repeat=len(values))]


@pytest.mark.parametrize(
    "gaps",
    [
        [1.0, 0.0, 0.0, 1.0, -1.0],
        [0.31, -0.22, 0.05, 0.11, -0.4],
        [1.0, 1.0, 1.0, 0.0, 1.0, 1.0],
    ],
)
def test_tail_share_and_interval_equal_the_enumeration_of_all_resamples(gaps: list[float]) -> None:
    means = np.array(exact_means(gaps))
    means[np.abs(means) < 1e-12] = 0.0
    draws = 100_000
    seen = paired_bootstrap(gaps, [0.0] * len(gaps), seed=3, draws=draws, bounds=(-1, 1))
    assert close_share(seen.p_le_0, float((means <= 0).mean()), draws)
    assert seen.delta == pytest.approx(sum(gaps) / len(gaps), abs=1e-15)
    for end, q in ((seen.low, 0.025), (seen.high, 0.975)):
        below, up_to = (means < end - 1e-12).mean(), (means <= end + 1e-12).mean()
        slack = 5 * math.sqrt(q * (1 - q) / draws)
        assert below - slack <= q <= up_to + slack  # `end` is a q-quantile of the exact law


def test_many_distinct_values_agree_with_scipy() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.random(400), rng.random(400) - 0.05
    ours = paired_bootstrap(a, b, seed=1, draws=20_000, bounds=(-1, 1))
    theirs = stats.bootstrap(((a - b),), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(2))
    width = ours.high - ours.low
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.02 * width)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.02 * width)


def test_counted_and_gathered_draws_follow_one_law() -> None:
    """Binary items take the multinomial path; the same items with a tiny jitter take the gather path."""
    rng = np.random.default_rng(9)
    a, b = (rng.random(600) < 0.8).astype(float), (rng.random(600) < 0.72).astype(float)
    counted = paired_bootstrap(a, b, seed=1, draws=40_000)
    gathered = paired_bootstrap(a + rng.uniform(0, 1e-9, 600), b, seed=1, draws=40_000, bounds=(0, 1.1))
    width = counted.high - counted.low
    assert gathered.low == pytest.approx(counted.low, abs=0.03 * width)
    assert gathered.high == pytest.approx(counted.high, abs=0.03 * width)
    assert close_share(gathered.p_le_0, counted.p_le_0, 20_000)


def naive_cluster_means(values: list[float], labels: list[str], draws: int, seed: int) -> list[float]:
    groups: dict[str, list[float]] = {}
    for value, label in zip(values, labels, strict=True):
        groups.setdefault(label, []).append(value)
    rng, names, means = random.Random(seed), list(groups), []
    for _ in range(draws):
        drawn = [value for _ in names for value in groups[rng.choice(names)]]
        means.append(sum(drawn) / len(drawn))
    return means


def test_clusters_are_drawn_whole() -> None:
    rng = np.random.default_rng(4)
    labels = [f"session-{k}" for k in range(40) for _ in range(1 + k % 5)]
    base = {f"session-{k}": rng.normal(0.5, 0.2) for k in range(40)}
    values = [float(base[label] + rng.normal(0, 0.02)) for label in labels]
    ours = bootstrap_mean(values, seed=2, draws=20_000, cluster=labels, bounds=None)
    means = naive_cluster_means(values, labels, 8000, 6)
    width = ours.high - ours.low
    assert ours.low == pytest.approx(np.quantile(means, 0.025), abs=0.05 * width)
    assert ours.high == pytest.approx(np.quantile(means, 0.975), abs=0.05 * width)
    assert ours.clusters == 40
    alone = bootstrap_mean(values, seed=2, draws=2000, bounds=None)
    assert alone.high - alone.low < 0.8 * width  # items of one session are not independent


def test_strata_keep_their_size_in_every_draw() -> None:
    """Two strata of constant value: only their sizes could vary, and they must not."""
    values = [0.0] * 30 + [1.0] * 70
    strata = ["a"] * 30 + ["b"] * 70
    fixed = bootstrap_mean(values, seed=1, draws=500, strata=strata)
    assert (fixed.low, fixed.high) == pytest.approx((0.7, 0.7), abs=1e-12)
    loose = bootstrap_mean(values, seed=1, draws=500)
    assert loose.high - loose.low > 0.15


def test_runs_with_one_seed_each_reduce_to_the_item_bootstrap() -> None:
    rng = np.random.default_rng(8)
    a, b = (rng.random(300) < 0.8).astype(float), (rng.random(300) < 0.7).astype(float)
    items = paired_bootstrap(a, b, seed=1, draws=20_000)
    runs = paired_bootstrap_runs([a], [b], seed=1, draws=20_000)
    assert runs.delta == pytest.approx(items.delta)
    assert runs.low == pytest.approx(items.low, abs=0.006)
    assert runs.high == pytest.approx(items.high, abs=0.006)


def test_seeds_that_differ_widen_the_interval() -> None:
    rng = np.random.default_rng(8)
    items = rng.normal(0, 0.05, 400)
    a = np.clip(0.7 + items + np.array([[-0.1], [0.0], [0.1]]), 0, 1)
    b = np.clip(0.6 + items + np.zeros((3, 1)), 0, 1)
    several = paired_bootstrap_runs(a, b, seed=1, draws=4000)
    single = paired_bootstrap_runs(a[1:2], b[1:2], seed=1, draws=4000)
    assert several.delta == pytest.approx(0.1, abs=0.02)
    assert several.high - several.low > 3 * (single.high - single.low)
    # Over seeds alone the spread is that of a mean of three drawn from three: sd 0.1·√(2/3)/√3.
    assert (several.high - several.low) / (2 * 1.96) == pytest.approx(0.1 * math.sqrt(2 / 3) / math.sqrt(3), rel=0.25)
