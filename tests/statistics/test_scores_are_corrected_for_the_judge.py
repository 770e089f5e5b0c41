"""Judge-error correction and prediction-powered means: what they recover, flag and refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hat_stats.correction import Calibration, corrected_difference, corrected_rate, informative, ppi_mean
from hat_stats.errors import InputError

GOOD = Calibration(tp=340, fn=38, tn=88, fp=16)


def test_the_formula_inverts_the_judges_errors() -> None:
    """A rate pushed through known error rates comes back."""
    q1, q0 = 340 / 378, 88 / 104
    for theta in (0.1, 0.5, 0.95):
        p = theta * q1 + (1 - theta) * (1 - q0)
        n = 10_000_000
        seen = corrected_rate(round(p * n), n, GOOD)
        assert seen.value == pytest.approx(theta, abs=1e-6)
        assert seen.low < theta < seen.high
        assert seen.raw == pytest.approx(p, abs=1e-6)


def test_a_perfect_and_much_calibrated_judge_changes_nothing() -> None:
    seen = corrected_rate(800, 1000, Calibration(10**7, 0, 10**7, 0))
    assert seen.value == pytest.approx(0.8)
    half = 1.96 * math.sqrt(0.8 * 0.2 / 1000)
    assert (seen.low, seen.high) == pytest.approx((0.8 - half, 0.8 + half), abs=0.002)


def test_fewer_calibration_items_give_a_wider_interval() -> None:
    widths = []
    for scale in (1, 4, 16):
        seen = corrected_rate(700, 978, Calibration(30 * scale, 4 * scale, 12 * scale, 2 * scale))
        widths.append(seen.high - seen.low)
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 2 * widths[2]


def test_a_judge_no_better_than_a_coin_corrects_nothing_and_says_so() -> None:
    for calibration in (Calibration(50, 50, 50, 50), Calibration(3, 1, 2, 1), Calibration(90, 10, 10, 90)):
        assert not informative(calibration)
        for method in ("delta", "bootstrap"):
            seen = corrected_rate(60, 100, calibration, method=method)  # type: ignore[arg-type]
            assert (seen.value, seen.low, seen.high, seen.state) == (None, 0.0, 1.0, "uninformative")
    assert corrected_difference([1, 0, 1], [0, 0, 1], Calibration(5, 5, 5, 5)).state == "uninformative"


def test_a_missing_class_in_the_calibration_is_a_state_not_a_crash() -> None:
    assert corrected_rate(5, 10, Calibration(50, 2, 0, 0)).state == "empty"
    assert corrected_rate(0, 0, GOOD).state == "empty"
    assert corrected_difference([1.0], [0.0], GOOD).state == "empty"


def test_a_rate_outside_the_range_is_clipped_and_flagged() -> None:
    seen = corrected_rate(978, 978, GOOD)
    assert (seen.value, seen.clipped) == (1.0, True)
    assert seen.high == 1.0
    assert not corrected_rate(700, 978, GOOD).clipped
    low = corrected_rate(0, 978, GOOD)
    assert (low.value, low.clipped, low.low) == (0.0, True, 0.0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 200), st.integers(0, 40), st.sampled_from(["delta", "bootstrap"]))
def test_missing_items_always_widen(positives: int, missing: int, method: str) -> None:
    options = {"method": method, "draws": 400, "seed": 1}
    bare = corrected_rate(positives, 200, GOOD, **options)  # type: ignore[arg-type]
    holed = corrected_rate(positives, 200, GOOD, missing=missing, **options)  # type: ignore[arg-type]
    assert holed.low <= bare.low
    assert holed.high >= bare.high
    assert 0.0 <= holed.low <= holed.value <= holed.high <= 1.0  # type: ignore[operator]
    assert holed.missing == missing


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=60))
def test_corrected_differences_are_antisymmetric_and_keep_their_sign(pairs: list[tuple[int, int]]) -> None:
    a, b = [float(x) for x, _ in pairs], [float(y) for _, y in pairs]
    there, back = corrected_difference(a, b, GOOD), corrected_difference(b, a, GOOD)
    assert there.value == pytest.approx(-back.value)  # type: ignore[operator]
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))
    assert (there.value > 0) == (there.raw > 0)  # type: ignore[operator]
    assert abs(there.value) >= abs(there.raw) - 1e-12  # type: ignore[arg-type, operator]  # errors hide a difference, they do not make one


def test_calibration_counts_and_keeps_the_unjudged_apart() -> None:
    seen = Calibration.of([1, 1, 0, 0, 1, 0], [1, 0, 0, 1, math.nan, 0])
    assert (seen.tp, seen.fn, seen.tn, seen.fp, seen.missing, seen.n) == (1, 1, 2, 1, 1, 5)
    assert seen.sensitivity == 0.5
    assert seen.specificity == pytest.approx(2 / 3)
    with pytest.raises(InputError):
        Calibration(-1, 0, 0, 0)
    with pytest.raises(InputError):
        Calibration.of([0.5], [1])
    with pytest.raises(InputError):
        corrected_rate(11, 10, GOOD)


def naive_ppi(y: np.ndarray, f: np.ndarray, more: np.ndarray, lam: float) -> tuple[float, float]:
    """Estimate and variance at a given weight, from the definition."""
    value = (y - lam * f).mean() + lam * more.mean()
    return value, (y - lam * f).var(ddof=1) / len(y) + lam**2 * more.var() / len(more)


def test_prediction_powered_weight_is_the_one_of_least_variance() -> None:
    rng = np.random.default_rng(3)
    y = (rng.random(200) < 0.7).astype(float)
    f = np.where(rng.random(200) < 0.85, y, 1 - y)
    more = (rng.random(2000) < 0.65).astype(float)
    seen = ppi_mean(y, f, more)
    grid = [(naive_ppi(y, f, more, lam)[1], lam) for lam in np.linspace(0, 1, 2001)]
    assert seen.lam == pytest.approx(min(grid)[1], abs=0.02)
    value, variance = naive_ppi(y, f, more, seen.lam)
    assert seen.value == pytest.approx(value)
    assert seen.high - seen.value == pytest.approx(1.959964 * math.sqrt(variance), rel=1e-6)
    assert seen.effective_labels > 1.3 * 200


def test_predictions_that_carry_nothing_are_not_used() -> None:
    rng = np.random.default_rng(4)
    y, noise = (rng.random(300) < 0.5).astype(float), np.full(300, 0.5)
    seen = ppi_mean(y, noise, np.full(1000, 0.5))
    assert (seen.lam, seen.value) == (0.0, y.mean())
    none = ppi_mean(y, y, [])
    assert (none.lam, none.value, none.predictions) == (0.0, y.mean(), 0)
    with pytest.raises(InputError, match="1 labels"):
        ppi_mean([1.0], [1.0], [1.0])
    with pytest.raises(InputError, match="missing"):
        ppi_mean([1.0, math.nan], [1.0, 0.0], [1.0])
