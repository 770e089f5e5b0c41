"""A unit keeps its arm, a ramp moves it at most once, shares come out as weighted, salts are independent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hat_serving.errors import SettingsError
from hat_serving.experiment.assignment import Arm, Split, assign, slot

UNITS = [f"viewer-{number}" for number in range(20_000)]


def two(canary: float, salt: str = "s") -> Split:
    return Split(salt, (Arm("stable", 100 - canary), Arm("canary", canary)))


def test_a_ramp_moves_each_unit_at_most_once_and_never_back() -> None:
    ramp = [two(weight) for weight in (0, 1, 10, 50, 99.5, 100)]
    for unit in UNITS[:3000]:
        seen = [assign(unit, split).name for split in ramp]
        assert seen == sorted(seen, reverse=True), unit


@given(st.floats(0, 50), st.floats(0, 50), st.floats(0, 50), st.text(max_size=20))
def test_growing_arms_within_their_share_never_trade_units(a: float, b: float, more: float, unit: str) -> None:
    def split(x: float, y: float) -> Split:
        return Split("s", (Arm("control", 100 - x - y), Arm("a", x), Arm("b", y)))

    before = assign(unit, split(a, b)).name
    after = assign(unit, split(min(50, a + more), b)).name
    assert after in {before, "a"}


@pytest.mark.parametrize("weights", [(90, 10), (50, 50), (34, 33, 33), (10, 80, 10), (0, 100), (25, 5, 60, 10)])
def test_shares_come_out_as_weighted(weights: tuple[float, ...]) -> None:
    split = Split("salt", tuple(Arm(f"arm{index}", weight) for index, weight in enumerate(weights)))
    counts = [0] * len(weights)
    for unit in UNITS:
        counts[int(assign(unit, split).name[3:])] += 1
    used = [(count, weight) for count, weight in zip(counts, weights, strict=True) if weight]
    assert all(count == 0 for count, weight in zip(counts, weights, strict=True) if not weight)
    if len(used) > 1:
        expected = [len(UNITS) * weight / 100 for _, weight in used]
        assert stats.chisquare([count for count, _ in used], expected).pvalue > 1e-4


def test_salts_are_independent() -> None:
    both = sum(slot(unit, "one") < 5000 and slot(unit, "two") < 5000 for unit in UNITS)
    assert abs(both / len(UNITS) - 0.25) < 0.02


def test_overrides_win_and_bad_splits_are_refused() -> None:
    split = Split("s", (Arm("stable", 100), Arm("canary", 0)), {"tester": "canary"})
    assert assign("tester", split).name == "canary"
    with pytest.raises(SettingsError, match="sum to 90"):
        Split("s", (Arm("a", 90),))
    with pytest.raises(SettingsError, match="names of their own"):
        Split("s", (Arm("a", 50), Arm("a", 50)))
    with pytest.raises(SettingsError, match="unknown arm"):
        Split("s", (Arm("a", 100),), {"x": "b"})
