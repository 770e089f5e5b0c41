"""The words for every kind of interval, in both languages."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hat_stats.bootstrap import paired_bootstrap
from hat_stats.errors import InputError
from hat_stats.moments import Moments
from hat_stats.sequential import Look, sequential_difference
from hat_stats.verdict import Interval, Verdict, Wording, verdict

ends = st.floats(-1, 1)


def look(low: float, high: float, missing: int = 0) -> Look:
    return Look((low + high) / 2, low, high, 0.5, 541, 0.95, "ok", missing)


@given(ends, ends, st.none() | st.floats(0.001, 0.5), st.booleans())
def test_claims_need_the_whole_interval(x: float, y: float, margin: float | None, up: bool) -> None:
    low, high = min(x, y), max(x, y)
    seen = verdict(look(low, high), margin=margin, wording=Wording(higher_is_better=up))
    if seen.kind == "better":
        assert (low > 0) if up else (high < 0)
    if seen.kind == "worse":
        assert (high < 0) if up else (low > 0)
    if seen.kind == "equivalent":
        assert margin is not None
        assert max(abs(low), abs(high)) < margin
    if seen.kind == "no_difference_shown":
        assert low <= 0 <= high
    if low <= 0 <= high:
        assert seen.kind not in ("better", "worse")
        assert " is better than " not in seen.text_en
        assert "优于" not in seen.text_zh


@given(ends, ends, st.none() | st.floats(0.001, 0.5))
def test_swapping_the_runs_swaps_the_words(x: float, y: float, margin: float | None) -> None:
    low, high = min(x, y), max(x, y)
    swapped = {"better": "worse", "worse": "better"}
    there, back = verdict(look(low, high), margin=margin), verdict(look(-high, -low), margin=margin)
    assert back.kind == swapped.get(there.kind, there.kind)


def test_the_words_carry_the_numbers_in_both_languages() -> None:
    seen = verdict(look(0.0444, 0.1238), wording=Wording(a="ours", b="naive SFT", a_zh="本方法", b_zh="朴素 SFT"))
    assert seen == Verdict(
        "better",
        "Ours is better than naive SFT by 8.41 points (95 % interval +4.44 to +12.38, n = 541).",
        "本方法优于朴素 SFT，相差 8.41 个百分点（95 % 区间 +4.44 至 +12.38，n = 541）。",
    )
    seconds = Wording(scale=1, unit="s", unit_zh="秒", digits=1, higher_is_better=False)
    assert verdict(look(0.4, 0.8), wording=seconds).kind == "worse"
    assert "by 0.6 s" in verdict(look(0.4, 0.8), wording=seconds).text_en


def test_an_interval_that_touches_zero_shows_nothing() -> None:
    assert verdict(look(0.0, 0.2)).kind == "no_difference_shown"
    assert "not proof that there is none" in verdict(look(-0.1, 0.2)).text_en
    assert "并不证明没有差异" in verdict(look(-0.1, 0.2)).text_zh


def test_a_margin_turns_no_difference_into_an_answer_or_an_open_question() -> None:
    assert verdict(look(-0.01, 0.012), margin=0.02).kind == "equivalent"
    ruled_out = verdict(look(-0.01, 0.05), margin=0.02)
    assert ruled_out.kind == "inconclusive"
    assert "a loss of 2.00 points is ruled out" in ruled_out.text_en
    assert "可排除 2.00 个百分点的损失" in ruled_out.text_zh
    latency = Wording(higher_is_better=False)
    assert "a gain of 2.00 points is ruled out" in verdict(look(-0.01, 0.05), margin=0.02, wording=latency).text_en
    assert "both a gain and a loss" in verdict(look(-0.1, 0.1), margin=0.02).text_en
    with pytest.raises(InputError):
        verdict(look(0, 1), margin=0.0)


def test_a_correction_for_many_questions_can_hold_a_claim_back() -> None:
    assert verdict(look(0.01, 0.2), p_adjusted=0.04).kind == "better"
    held = verdict(look(0.01, 0.2), p_adjusted=0.2)
    assert held.kind == "no_difference_shown"
    assert "p = 0.2 after correction" in held.text_en
    assert "多重比较校正后 p = 0.2" in held.text_zh


def test_items_that_could_not_be_judged_are_named() -> None:
    seen = verdict(look(0.01, 0.2, missing=60))
    assert seen.kind == "better"
    assert "60 not judged" in seen.text_en
    assert "60 条未能评判" in seen.text_zh


def test_observed_claim_lost_to_missing_items_says_why() -> None:
    a = [1.0] * 60 + [0.0] * 20 + [math.nan] * 30
    b = [0.0] * 30 + [1.0] * 30 + [0.0] * 20 + [1.0] * 30
    contrast = paired_bootstrap(a, b, seed=1)
    assert contrast.low_observed > 0 > contrast.low
    seen = verdict(contrast)
    assert seen.kind == "inconclusive"
    assert "may turn it around" in seen.text_en
    assert "可能改变结论" in seen.text_zh


@pytest.mark.parametrize(
    "interval",
    [
        paired_bootstrap([], [], seed=1),
        paired_bootstrap([math.nan] * 3, [1.0] * 3, seed=1),
        sequential_difference(Moments.of([1.0] * 50), Moments.of([0.0] * 50), target_n=100),
        sequential_difference(Moments.of([0.0] * 500), Moments.of([0.0] * 500), target_n=100),
    ],
)
def test_no_interval_no_claim(interval: Interval) -> None:
    seen = verdict(interval, margin=0.5)
    assert seen.kind == "inconclusive"
    assert seen.text_en.endswith(".")
    assert seen.text_zh.endswith("。")


def test_three_wins_of_three_are_not_called_better() -> None:
    assert verdict(paired_bootstrap([1.0] * 3, [0.0] * 3, seed=1)).kind == "no_difference_shown"
    unbounded = paired_bootstrap([3.0, 4.0], [1.0, 2.0], seed=1, bounds=None)
    assert verdict(unbounded).kind == "inconclusive"
    many = paired_bootstrap([3.0] * 20, [1.0] * 20, seed=1, bounds=None)
    assert verdict(many).kind == "better"
