"""Drift checks: false alarms at the chosen rate, real changes found, missing values seen."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hat_stats.drift import drift_alarms, drift_categories, drift_numeric, psi
from hat_stats.errors import InputError

LABELS = ["product", "chat", "discount", "after_sales", "other"]


def test_psi_agrees_with_its_definition() -> None:
    p, q = [30, 50, 20], [20, 50, 30]
    ref = [(x + 0.5) / 101.5 for x in p]
    cur = [(x + 0.5) / 101.5 for x in q]
    assert psi(p, q) == pytest.approx(sum((b - a) * math.log(b / a) for a, b in zip(ref, cur, strict=True)))
    assert psi(p, p) == 0.0
    assert psi(p, q) == pytest.approx(psi(q, p))
    with pytest.raises(InputError):
        psi([1], [1, 2])


@pytest.mark.parametrize("kind", ["numeric", "categories", "ks"])
@pytest.mark.parametrize(("n", "m"), [(400, 150), (100, 100)])
def test_quiet_nights_alarm_at_the_chosen_rate(kind: str, n: int, m: int) -> None:
    rng = np.random.default_rng(11)
    nights, alpha, alarms = 500, 0.05, 0
    for night in range(nights):
        if kind == "categories":
            ref, cur = (rng.choice(LABELS, size, p=[0.5, 0.2, 0.15, 0.1, 0.05]).tolist() for size in (n, m))
            check = drift_categories(ref, cur, alpha=alpha, draws=400, seed=night)
        else:
            ref, cur = rng.lognormal(0, 1, n), rng.lognormal(0, 1, m)
            check = drift_numeric(ref, cur, kind="ks" if kind == "ks" else "psi", alpha=alpha, draws=400, seed=night)
        alarms += check.alarm
    assert alarms <= stats.binom.isf(1e-4, nights, alpha)
    assert alarms >= stats.binom.ppf(1e-4, nights, alpha * 0.6)  # it is calibrated, not merely silent


def test_a_rule_of_thumb_would_ring_every_night() -> None:
    """PSI above 0.1 "is drift" by custom; with 100 items a night in 10 bins that is mostly noise."""
    rng = np.random.default_rng(12)
    checks = [drift_numeric(rng.normal(size=100), rng.normal(size=100), seed=k, draws=200) for k in range(100)]
    assert sum(check.statistic > 0.1 for check in checks) > 70
    assert sum(check.alarm for check in checks) <= 5


def test_real_changes_are_found() -> None:
    rng = np.random.default_rng(13)
    slow = drift_numeric(rng.lognormal(0, 1, 400), rng.lognormal(0.4, 1, 300), seed=1)
    assert slow.alarm
    assert slow.statistic >= slow.threshold
    assert drift_numeric(rng.normal(size=400), rng.normal(0.4, 1, 300), kind="ks", seed=1).alarm
    mix = drift_categories(rng.choice(LABELS[:2], 300).tolist(), ["product"] * 250 + ["refund"] * 50, seed=1)
    assert mix.alarm


def test_a_judge_that_stops_answering_is_drift() -> None:
    rng = np.random.default_rng(14)
    ref, cur = rng.random(300), rng.random(300)
    cur[:60] = math.nan
    seen = drift_numeric(ref, cur, seed=1)
    assert seen.alarm
    assert (seen.missing_reference, seen.missing_current) == (0.0, 0.2)
    labels = rng.choice(["right", "wrong"], 300).tolist()
    gone = drift_categories(labels, [None if k < 60 else x for k, x in enumerate(labels)], seed=1)
    assert gone.alarm
    assert gone.missing_current == 0.2
    dead = drift_numeric(ref, [math.nan] * 50, seed=1)
    assert dead.alarm


def test_many_checks_in_one_night_share_one_error_rate() -> None:
    rng = np.random.default_rng(15)
    false_nights = 0
    for night in range(200):
        checks = {
            f"metric-{k}": drift_numeric(rng.random(80), rng.random(80), kind="ks", alpha=0.05, seed=night)
            for k in range(10)
        }
        false_nights += any(drift_alarms(checks, alpha=0.05).values())
    assert false_nights <= stats.binom.isf(1e-4, 200, 0.05)


def test_constants_ties_and_bad_input() -> None:
    flat = drift_numeric([1.0] * 50, [1.0] * 40, seed=1)
    assert (flat.alarm, flat.p) == (False, 1.0)
    assert drift_numeric([1.0] * 50, [2.0] * 40, seed=1).alarm
    assert drift_categories([1, "1"] * 20, [1, "1"] * 20, seed=1).p == 1.0
    for bad in (
        lambda: drift_numeric([], [1.0], seed=1),
        lambda: drift_numeric([1.0], [math.nan], kind="ks", seed=1),
        lambda: drift_categories([], [], seed=1),
        lambda: drift_numeric([1.0], [1.0], draws=10, seed=1),
    ):
        with pytest.raises(InputError):
            bad()
    assert drift_numeric([1.0, 2.0] * 30, [2.0, 1.0] * 30, seed=1) == drift_numeric(
        [2.0, 1.0] * 30, [1.0, 2.0] * 30, seed=1
    )
