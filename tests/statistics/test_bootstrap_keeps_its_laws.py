"""Antisymmetry, order, monotony, missing values and the edges of the bootstrap."""

from __future__ import annotations

import math
import resource

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hat_stats.bootstrap import Contrast, bootstrap_mean, paired_bootstrap, paired_bootstrap_runs
from hat_stats.errors import InputError

NAN = math.nan
score = st.sampled_from([0.0, 0.25, 0.5, 1.0])
pairs = st.lists(st.tuples(score | st.just(NAN), score | st.just(NAN)), min_size=0, max_size=30)


def contrast(items: list[tuple[float, float]], **options: object) -> Contrast:
    a, b = [x for x, _ in items], [y for _, y in items]
    return paired_bootstrap(a, b, **{"seed": 7, "draws": 200, **options})  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(pairs)
def test_swapping_the_runs_negates_the_result_exactly(items: list[tuple[float, float]]) -> None:
    there, back = contrast(items), contrast([(b, a) for a, b in items])
    assert back.delta == (None if there.delta is None else -there.delta)
    assert (back.low, back.high) == (-there.high, -there.low)
    assert (back.low_observed, back.high_observed) == (-there.high_observed, -there.low_observed)
    assert (back.n, back.missing) == (there.n, there.missing)
    assert (back.p_le_0, back.p_ge_0, back.p) == (there.p_ge_0, there.p_le_0, there.p)
    assert there.p_le_0 + there.p_ge_0 >= 1.0 - 1e-12 or there.method == "constant"


@settings(max_examples=60, deadline=None)
@given(pairs, st.randoms(use_true_random=False))
def test_the_order_of_the_items_changes_nothing(items: list[tuple[float, float]], random: object) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert contrast(shuffled) == contrast(items)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(score, score), min_size=2, max_size=30), st.data())
def test_a_value_that_goes_missing_never_narrows_the_interval_to_exclude_what_it_was(
    items: list[tuple[float, float]], data: st.DataObject
) -> None:
    """Whatever the missing value truly was, the full-data interval's estimate lies in the widened interval."""
    lost = data.draw(st.integers(0, len(items) - 1))
    holed = [(NAN, b) if k == lost else (a, b) for k, (a, b) in enumerate(items)]
    full, partial = contrast(items), contrast(holed)
    assert full.delta is not None
    assert partial.missing == 1
    assert partial.n == len(items) - 1
    assert partial.low <= full.delta + 1e-9
    assert partial.high >= full.delta - 1e-9
    assert partial.low <= partial.low_observed
    assert partial.high >= partial.high_observed


def test_more_missing_items_widen_more() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.random(200) < 0.8).astype(float), (rng.random(200) < 0.6).astype(float)
    widths = []
    for lost in (0, 5, 20, 60):
        holed = a.copy()
        holed[:lost] = NAN
        seen = paired_bootstrap(holed, b, seed=1, draws=2000)
        assert seen.missing == lost
        widths.append(seen.high - seen.low)
    assert widths == sorted(widths)
    assert widths[3] > widths[0] + 0.25  # 30 % unjudged leave 30 points open


def test_improving_the_candidate_moves_the_interval_up() -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.random(300) < 0.6).astype(float), (rng.random(300) < 0.6).astype(float)
    better = a.copy()
    better[np.flatnonzero(a == 0)[:60]] = 1.0
    low, high = (paired_bootstrap(x, b, seed=1, draws=4000) for x in (a, better))
    assert high.low > low.low
    assert high.high > low.high
    assert high.p_le_0 < low.p_le_0


def test_a_higher_level_gives_a_wider_interval() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.random(100), rng.random(100)
    widths = [
        (r.high - r.low) for r in (paired_bootstrap(a, b, seed=1, draws=2000, level=q) for q in (0.8, 0.95, 0.99))
    ]
    assert widths == sorted(widths)


def test_no_item_says_nothing() -> None:
    empty = paired_bootstrap([], [], seed=1)
    assert (empty.delta, empty.low, empty.high, empty.p_le_0, empty.method) == (None, -1.0, 1.0, 1.0, "empty")
    unbounded = paired_bootstrap([], [], seed=1, bounds=None)
    assert (unbounded.low, unbounded.high) == (-math.inf, math.inf)


def test_all_missing_says_nothing_and_counts_them() -> None:
    gone = paired_bootstrap([NAN] * 4, [NAN] * 4, seed=1)
    assert (gone.delta, gone.n, gone.missing, gone.method) == (None, 0, 4, "empty")
    assert gone.low == -1.0
    assert gone.high == 1.0
    mean = bootstrap_mean([NAN] * 4, seed=1)
    assert (mean.value, mean.low, mean.high, mean.missing) == (None, 0.0, 1.0, 4)


def test_one_item_leaves_nearly_everything_open() -> None:
    one = paired_bootstrap([1.0], [0.0], seed=1)
    assert (one.delta, one.n, one.method) == (1.0, 1, "constant")
    assert one.low == pytest.approx(1 - 0.975 * 2)
    assert one.high == 1.0


def test_constant_differences_get_the_exact_bound_of_what_was_never_drawn() -> None:
    same = paired_bootstrap([1.0] * 100, [1.0] * 100, seed=1)
    unseen = 1 - 0.025 ** (1 / 100)
    assert (same.delta, same.method) == (0.0, "constant")
    assert (same.low, same.high) == pytest.approx((-unseen, unseen))
    assert same.p_le_0 == 1.0
    won = paired_bootstrap([1.0] * 3, [0.0] * 3, seed=1)
    assert won.low < 0 < won.high  # three wins of three are no proof
    assert won.p_le_0 == pytest.approx(0.5**3)


def test_unbounded_metrics_need_every_value() -> None:
    assert paired_bootstrap([3.0, 4.0, 9.0], [1.0, 2.0, 3.0], seed=1, bounds=None).delta == pytest.approx(10 / 3)
    with pytest.raises(InputError, match="no bounds"):
        paired_bootstrap([3.0, NAN], [1.0, 2.0], seed=1, bounds=None)
    with pytest.raises(InputError, match="outside"):
        paired_bootstrap([3.0, NAN], [1.0, 2.0], seed=1)


@pytest.mark.parametrize(
    ("a", "b", "options"),
    [
        ([1.0], [1.0, 0.0], {}),
        ([math.inf], [0.0], {}),
        (["x"], [0.0], {}),
        ([[1.0]], [[0.0]], {}),
        ([1.0], [0.0], {"level": 1.0}),
        ([1.0], [0.0], {"draws": 1}),
        ([1.0, 0.0], [0.0, 0.0], {"cluster": ["only one label"]}),
        ([1.0, 0.0], [0.0, 0.0], {"cluster": ["c", "c"], "strata": ["s", "t"]}),
        ([1.0, NAN], [0.0, 0.0], {"bounds": (1.0, 0.0)}),
    ],
)
def test_bad_input_names_the_place(a: list[float], b: list[float], options: dict[str, object]) -> None:
    with pytest.raises(InputError) as caught:
        paired_bootstrap(a, b, **{"seed": 1, **options})  # type: ignore[arg-type]
    assert caught.value.kind == "invalid_input"
    assert caught.value.place


def test_runs_keep_missing_items_visible() -> None:
    a, b = np.full((2, 50), 0.8), np.full((2, 50), 0.6)
    a[0, :5] = NAN
    seen = paired_bootstrap_runs(a, b, seed=1, draws=500)
    assert (seen.n, seen.missing) == (45, 5)
    assert seen.low < seen.low_observed
    assert seen.high > seen.high_observed
    with pytest.raises(InputError, match="share no items"):
        paired_bootstrap_runs(np.zeros((2, 3)), np.zeros((2, 4)), seed=1)


def test_large_runs_stay_within_memory() -> None:
    """Two runs of 100,000 items with all values distinct: what is held does not grow with draws × items."""
    rng = np.random.default_rng(1)
    a, b = rng.random(100_000), rng.random(100_000)
    paired_bootstrap(a[:1000], b[:1000], seed=1, draws=100)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = paired_bootstrap(a, b, seed=1, draws=400)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert seen.n == 100_000
    assert grown_kib < 128 * 1024  # 400 × 100,000 indices at once would take 320 MiB


def test_two_sided_p_of_equal_runs_is_one_and_has_a_floor() -> None:
    rng = np.random.default_rng(6)
    a = (rng.random(200) < 0.7).astype(float)
    assert paired_bootstrap(a, a, seed=1).p == 1.0
    assert paired_bootstrap(a, a[::-1], seed=1, draws=500).p > 0.5
    apart = paired_bootstrap(np.ones(200), (rng.random(200) < 0.3).astype(float), seed=1, draws=500)
    assert apart.p_le_0 == 0.0
    assert apart.p == pytest.approx(2 / 501)


def test_two_sided_p_is_uniform_under_no_difference() -> None:
    rng = np.random.default_rng(7)
    p = [paired_bootstrap(rng.random(150) < 0.7, rng.random(150) < 0.7, seed=k, draws=500).p for k in range(1000)]
    assert np.mean(np.array(p) <= 0.05) == pytest.approx(0.05, abs=0.025)
    assert np.mean(np.array(p) <= 0.5) == pytest.approx(0.5, abs=0.06)
