"""Scores that a judge gave, corrected for the judge's own errors, with intervals that include the calibration's.

Always holds: a corrected rate lies in [0, 1] and says when it was clipped there; a judge that cannot be told from a
coin corrects nothing, and then the interval is [0, 1]. The judge's error rates are assumed to be the same on the
calibration items and on the scored ones; the drift check (drift) and the judge's revision guard that.
Not here: measuring the judge (agreement).

Sources: Rogan and Gladen 1978; Lang and Reiczigel 2014 (interval); Lee et al., "How to correctly report LLM-as-a-judge
evaluations", arXiv 2511.21140; Angelopoulos, Duchi, Zrnic, "PPI++", arXiv 2311.01453.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from hat_stats.arrays import Floats, binary, open_unit, same_length, vector
from hat_stats.errors import InputError

CorrectionState = Literal["ok", "uninformative", "empty"]


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a judge said about items whose truth people labelled. Positive = the item is right."""

    tp: int
    fn: int
    tn: int
    fp: int
    missing: int = 0
    """Labelled items that the judge could not judge; they are in no rate."""

    def __post_init__(self) -> None:
        if min(self.tp, self.fn, self.tn, self.fp, self.missing) < 0:
            raise InputError("a count is negative", place="calibration")

    @classmethod
    def of(cls, truth: ArrayLike, judged: ArrayLike) -> Calibration:
        """Counts from truth [n] of 0 and 1, and judged [n] of 0, 1 and NaN."""
        t, j = binary(truth, "truth"), binary(judged, "judged")
        same_length("truth, judged", t, j)
        known = ~np.isnan(t) & ~np.isnan(j)
        t_k, j_k = t[known] == 1, j[known] == 1
        counts = [(t_k & j_k), (t_k & ~j_k), (~t_k & ~j_k), (~t_k & j_k)]
        tp, fn, tn, fp = (int(mask.sum()) for mask in counts)
        return cls(tp, fn, tn, fp, int((~known).sum()))

    @property
    def n(self) -> int:
        """Items with both truth and judgement."""
        return self.tp + self.fn + self.tn + self.fp

    @property
    def sensitivity(self) -> float | None:
        """q1: share of right items judged right; None without right items."""
        return self.tp / (self.tp + self.fn) if self.tp + self.fn else None

    @property
    def specificity(self) -> float | None:
        """q0: share of wrong items judged wrong; None without wrong items."""
        return self.tn / (self.tn + self.fp) if self.tn + self.fp else None


@dataclass(frozen=True, slots=True)
class Corrected:
    """A rate, or a difference of two, after correction."""

    value: float | None
    """None unless `state` is ok."""
    low: float
    high: float
    raw: float | None
    """As the judge gave it."""
    state: CorrectionState
    """`uninformative`: sensitivity + specificity is not shown to exceed 1 at `level`."""
    clipped: bool
    """The formula left [0, 1] (or [−1, 1]) and the value was set to its end: calibration and scores do not fit."""
    n: int
    calibration_n: int
    missing: int
    level: float
    method: Literal["delta", "bootstrap"]


@dataclass(frozen=True, slots=True)
class PredictionPowered:
    """A mean from few labels and many predictions."""

    value: float
    low: float
    high: float
    lam: float
    """Weight of the predictions in [0, 1]; 0: they carry nothing and this is the mean of the labels."""
    labels: int
    predictions: int
    effective_labels: float
    """How many labels alone would have given the same width."""
    level: float


def corrected_rate(
    positives: int,
    n: int,
    calibration: Calibration,
    *,
    missing: int = 0,
    level: float = 0.95,
    method: Literal["delta", "bootstrap"] = "delta",
    draws: int = 10_000,
    seed: int = 0,
) -> Corrected:
    """θ = (p + q0 − 1) / (q0 + q1 − 1) from `positives` of `n` judged items.

    delta: the Lang-Reiczigel interval, which stays right when a rate is 0 or 1. bootstrap: p, q0 and q1 drawn anew from
    their binomials (smoothed by half an item at the edges). `missing` items widen the interval to both extremes.
    """
    if not 0 <= positives <= n or missing < 0:
        raise InputError(f"{positives} of {n} with {missing} missing is no count", place="positives, n, missing")
    open_unit(level, "level")
    raw = positives / n if n else None
    nothing = Corrected(None, 0.0, 1.0, raw, "empty", False, n, calibration.n, missing, level, method)
    q1, q0 = calibration.sensitivity, calibration.specificity
    if raw is None or q1 is None or q0 is None:
        return nothing
    if not informative(calibration, level=level):
        return Corrected(None, 0.0, 1.0, raw, "uninformative", False, n, calibration.n, missing, level, method)
    theta = (raw + q0 - 1) / (q0 + q1 - 1)
    counts = [(positives, n)] if not missing else [(positives, n), (positives, n + missing),
                                                   (positives + missing, n + missing)]  # fmt: skip
    if method == "delta":
        ends = [_lang_reiczigel(k, m, calibration, level) for k, m in counts]
    else:
        ends = [_bootstrap(k, m, calibration, level, draws, seed) for k, m in counts]
    value = min(max(theta, 0.0), 1.0)
    low = min(max(min(e[0] for e in ends), 0.0), value)
    high = max(min(max(e[1] for e in ends), 1.0), value)
    return Corrected(value, low, high, raw, "ok", value != theta, n, calibration.n, missing, level, method)


def corrected_difference(a: ArrayLike, b: ArrayLike, calibration: Calibration, *, level: float = 0.95) -> Corrected:
    """True difference of two runs that the same judge judged on the same items: δ = (p_a − p_b) / (q0 + q1 − 1).

    a, b [n] of 0, 1 and NaN. Delta method: Var(δ̂) = (Var(d̄) + δ̂² Var(q0 + q1)) / (q0 + q1 − 1)². It can never turn a
    difference around; a weak judge makes it wider. Missing pairs widen it to both extremes.
    """
    a_n, b_n = binary(a, "a"), binary(b, "b")
    same_length("a, b", a_n, b_n)
    z = float(stats.norm.isf((1 - open_unit(level, "level")) / 2))
    gap = a_n - b_n
    known = gap[~np.isnan(gap)]
    missing = len(gap) - known.size
    raw = float(known.mean()) if known.size else None
    q1, q0 = calibration.sensitivity, calibration.specificity
    if raw is None or q1 is None or q0 is None or known.size < 2:
        return Corrected(None, -1.0, 1.0, raw, "empty", False, known.size, calibration.n, missing, level, "delta")
    if not informative(calibration, level=level):
        return Corrected(
            None, -1.0, 1.0, raw, "uninformative", False, known.size, calibration.n, missing, level, "delta"
        )
    youden = q0 + q1 - 1
    fills = [known]
    if missing:
        fills += [np.nan_to_num(a_n, nan=0.0) - np.nan_to_num(b_n, nan=1.0),
                  np.nan_to_num(a_n, nan=1.0) - np.nan_to_num(b_n, nan=0.0)]  # fmt: skip
    ends = []
    for gaps in fills:
        shift = float(gaps.mean()) / youden
        noise = (_mean_variance(gaps) + shift**2 * _youden_variance(calibration)) / youden**2
        ends.append((shift - z * math.sqrt(noise), shift + z * math.sqrt(noise)))
    delta = raw / youden
    value = min(max(delta, -1.0), 1.0)
    low, high = max(min(e[0] for e in ends), -1.0), min(max(e[1] for e in ends), 1.0)
    return Corrected(
        value, min(low, value), max(high, value), raw, "ok", value != delta, known.size, calibration.n, missing, level,
        "delta",
    )  # fmt: skip


def informative(calibration: Calibration, *, level: float = 0.95) -> bool:
    """True where the calibration shows at `level` that sensitivity + specificity exceeds 1: better than a coin."""
    if not (calibration.tp + calibration.fn and calibration.tn + calibration.fp):
        return False
    z = float(stats.norm.isf((1 - open_unit(level, "level")) / 2))
    q1, q0 = _add_two(calibration)
    return q0 + q1 - 1 - z * math.sqrt(_youden_variance(calibration)) > 0


def ppi_mean(
    labels: ArrayLike, predicted: ArrayLike, predicted_more: ArrayLike, *, level: float = 0.95
) -> PredictionPowered:
    """PPI++ mean: labels [n] and the judge's scores [n] of the same items, the judge's scores [N] of further items.

    θ = mean(Y) + λ (mean(f_more) − mean(f)), λ* = Cov(Y, f) / ((1 + n/N) Var(f)) clipped to [0, 1]. It needs no model
    of the judge's errors and is, in large samples, never wider than the labels alone. Raises InputError under 2 labels.
    """
    y, f, more = vector(labels, "labels"), vector(predicted, "predicted"), vector(predicted_more, "predicted_more")
    same_length("labels, predicted", y, f)
    if any(np.isnan(part).any() for part in (y, f, more)):
        raise InputError("a value is missing", place="labels, predicted", cure="leave the item out and say how many")
    n, m = len(y), len(more)
    if n < 2:
        raise InputError(f"{n} labels", place="labels", cure="label at least 2 items, better 50")
    z = float(stats.norm.isf((1 - open_unit(level, "level")) / 2))
    spread = float(np.concatenate([f, more]).var(ddof=1)) if m else 0.0
    lam = 0.0
    if spread > 0:
        lam = float(np.cov(y, f, ddof=1)[0, 1]) / ((1 + n / m) * spread)
        lam = min(max(lam, 0.0), 1.0)
    value = float(y.mean()) + (lam * float(more.mean() - f.mean()) if m else 0.0)
    noise = float((y - lam * f).var(ddof=1)) / n + (lam**2 * float(more.var()) / m if m else 0.0)
    half = z * math.sqrt(noise)
    effective = float(y.var(ddof=1)) / noise if noise > 0 else float(n)
    return PredictionPowered(value, value - half, value + half, lam, n, m, effective, level)


def _add_two(calibration: Calibration) -> tuple[float, float]:
    """Sensitivity and specificity with one success and one failure added (Lang and Reiczigel)."""
    q1 = (calibration.tp + 1) / (calibration.tp + calibration.fn + 2)
    return q1, (calibration.tn + 1) / (calibration.tn + calibration.fp + 2)


def _youden_variance(calibration: Calibration) -> float:
    q1, q0 = _add_two(calibration)
    m1, m0 = calibration.tp + calibration.fn + 2, calibration.tn + calibration.fp + 2
    return q1 * (1 - q1) / m1 + q0 * (1 - q0) / m0


def _lang_reiczigel(positives: int, n: int, calibration: Calibration, level: float) -> tuple[float, float]:
    z = float(stats.norm.isf((1 - level) / 2))
    size = n + z * z
    p = (positives + z * z / 2) / size
    q1, q0 = _add_two(calibration)
    youden = q0 + q1 - 1
    theta = (p + q0 - 1) / youden
    v1 = q1 * (1 - q1) / (calibration.tp + calibration.fn + 2)
    v0 = q0 * (1 - q0) / (calibration.tn + calibration.fp + 2)
    shift = 2 * z * z * (theta * v1 - (1 - theta) * v0)
    noise = (p * (1 - p) / size + (1 - theta) ** 2 * v0 + theta**2 * v1) / youden**2
    half = z * math.sqrt(noise)
    return theta + shift - half, theta + shift + half


def _bootstrap(
    positives: int, n: int, calibration: Calibration, level: float, draws: int, seed: int
) -> tuple[float, float]:
    rng = np.random.default_rng(seed)

    def redraw(successes: int, size: int) -> Floats:
        return rng.binomial(size, (successes + 0.5) / (size + 1), size=draws) / size

    p = redraw(positives, n)
    q1 = redraw(calibration.tp, calibration.tp + calibration.fn)
    q0 = redraw(calibration.tn, calibration.tn + calibration.fp)
    youden = q0 + q1 - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        theta = np.where(youden > 0, (p + q0 - 1) / youden, np.nan)
    lost = np.isnan(theta)
    low = np.clip(np.where(lost, 0.0, theta), 0.0, 1.0)
    high = np.clip(np.where(lost, 1.0, theta), 0.0, 1.0)
    tail = (1 - level) / 2
    return float(np.quantile(low, tail)), float(np.quantile(high, 1 - tail))


def _mean_variance(values: Floats) -> float:
    """Variance of the mean, with one item of each extreme added so that agreement on every item is not certainty."""
    padded = np.concatenate([values, [1.0, -1.0]])
    return float(padded.var(ddof=1)) / len(padded)
