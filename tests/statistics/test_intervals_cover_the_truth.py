"""Every 95 % interval covers the truth in 93-97 % of simulated studies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hat_stats.agreement import cohen_kappa, proportion
from hat_stats.bootstrap import bootstrap_mean, paired_bootstrap
from hat_stats.correction import Calibration, corrected_difference, corrected_rate, ppi_mean

Ends = tuple[float, float]


def coverage(study: Callable[[np.random.Generator, int], Ends], truth: float, studies: int) -> float:
    rng = np.random.default_rng(20)
    held = 0
    for k in range(studies):
        low, high = study(rng, k)
        held += low <= truth <= high
    return held / studies


def binary(rng: np.random.Generator, n: int, p: float) -> np.ndarray:
    return (rng.random(n) < p).astype(float)


def judged(rng: np.random.Generator, truth: np.ndarray, q1: float, q0: float) -> np.ndarray:
    return np.where(truth == 1, rng.random(len(truth)) < q1, rng.random(len(truth)) > q0).astype(float)


def test_paired_differences() -> None:
    def study(rng: np.random.Generator, k: int) -> Ends:
        a = binary(rng, 300, 0.8)
        b = np.where(rng.random(300) < 0.3, binary(rng, 300, 0.7), a)
        seen = paired_bootstrap(a, b, seed=k, draws=1000)
        return seen.low, seen.high

    assert 0.93 <= coverage(study, 0.3 * 0.1, 2000) <= 0.97


def test_means_over_sessions() -> None:
    def study(rng: np.random.Generator, k: int) -> Ends:
        label = np.repeat(np.arange(100), rng.integers(2, 8, 100))
        values = np.clip(rng.normal(0, 0.1, 100)[label] + rng.normal(0.5, 0.1, len(label)), 0, 1)
        seen = bootstrap_mean(values, seed=k, draws=1000, cluster=label)
        return seen.low, seen.high

    assert 0.93 <= coverage(study, 0.5, 2000) <= 0.97


@pytest.mark.parametrize(("p", "n"), [(0.5, 60), (0.9, 150)])
def test_proportions(p: float, n: int) -> None:
    def study(rng: np.random.Generator, k: int) -> Ends:
        seen = proportion(int(rng.binomial(n, p)), n)
        return seen.low, seen.high

    assert 0.93 <= coverage(study, p, 2000) <= 0.97


@pytest.mark.parametrize("method", ["delta", "bootstrap"])
@pytest.mark.parametrize(("theta", "q0", "q1", "n", "m"), [(0.8, 0.85, 0.9, 978, 482), (0.5, 0.8, 0.8, 300, 200)])
def test_corrected_rates_include_the_uncertainty_of_the_calibration(
    method: str, theta: float, q0: float, q1: float, n: int, m: int
) -> None:
    def study(rng: np.random.Generator, k: int) -> Ends:
        right = int(rng.binomial(m, theta))
        tp, tn = int(rng.binomial(right, q1)), int(rng.binomial(m - right, q0))
        positives = int(rng.binomial(n, theta * q1 + (1 - theta) * (1 - q0)))
        calibration = Calibration(tp, right - tp, tn, m - right - tn)
        seen = corrected_rate(positives, n, calibration, method=method, draws=1000, seed=k)  # type: ignore[arg-type]
        return seen.low, seen.high

    assert 0.93 <= coverage(study, theta, 2000) <= 0.97


def test_an_interval_that_forgets_the_calibration_would_not_cover() -> None:
    """The same studies with the calibration's error rates taken as known: the reason for the correction's width."""

    def study(rng: np.random.Generator, k: int) -> Ends:
        right = int(rng.binomial(482, 0.8))
        q1, q0 = rng.binomial(right, 0.9) / right, rng.binomial(482 - right, 0.85) / (482 - right)
        p = rng.binomial(978, 0.8 * 0.9 + 0.2 * 0.15) / 978
        theta = (p + q0 - 1) / (q0 + q1 - 1)
        half = 1.96 * np.sqrt(p * (1 - p) / 978) / (q0 + q1 - 1)
        return theta - half, theta + half

    assert coverage(study, 0.8, 2000) < 0.93


def test_corrected_differences() -> None:
    def study(rng: np.random.Generator, k: int) -> Ends:
        a = binary(rng, 978, 0.8)
        b = np.where(rng.random(978) < 0.25, binary(rng, 978, 0.6), a)
        truth = binary(rng, 482, 0.8)
        calibration = Calibration.of(truth, judged(rng, truth, 0.9, 0.85))
        seen = corrected_difference(judged(rng, a, 0.9, 0.85), judged(rng, b, 0.9, 0.85), calibration)
        return seen.low, seen.high

    assert 0.93 <= coverage(study, 0.25 * 0.2, 2000) <= 0.97


def test_prediction_powered_means() -> None:
    def study(rng: np.random.Generator, k: int) -> Ends:
        few, many = binary(rng, 150, 0.7), binary(rng, 978, 0.7)
        seen = ppi_mean(few, judged(rng, few, 0.85, 0.85), judged(rng, many, 0.85, 0.85))
        return seen.low, seen.high

    assert 0.93 <= coverage(study, 0.7, 2000) <= 0.97


def test_kappa() -> None:
    table = np.array([[0.5, 0.1], [0.1, 0.3]])
    chance = 0.6**2 + 0.4**2

    def study(rng: np.random.Generator, k: int) -> Ends:
        counts = rng.multinomial(300, table.ravel())
        seen = cohen_kappa(np.repeat([0, 0, 1, 1], counts).tolist(), np.repeat([0, 1, 0, 1], counts).tolist())
        return seen.low, seen.high

    assert 0.93 <= coverage(study, (0.8 - chance) / (1 - chance), 1500) <= 0.97
