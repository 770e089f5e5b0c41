"""What may be said of an interval, in words: never more than it shows, in English and Chinese.

Always holds: "better" and "worse" need the whole interval, missing values included, on one side of no difference;
"equivalent" needs it inside a margin that was fixed beforehand; no interval, or one too wide to say, is "inconclusive".
"No difference shown" is never "no difference". Not here: the intervals; where the words are shown (reports, pages).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

from hat_stats.arrays import open_unit, positive

VerdictKind = Literal["better", "worse", "equivalent", "no_difference_shown", "inconclusive"]


class Interval(Protocol):
    """What a verdict reads: `bootstrap.Contrast` and `sequential.Look` both are one."""

    @property
    def delta(self) -> float | None:
        """Estimate of a − b."""

    @property
    def low(self) -> float:
        """Lower end."""

    @property
    def high(self) -> float:
        """Upper end."""

    @property
    def n(self) -> int:
        """Items or units behind it."""

    @property
    def missing(self) -> int:
        """Items that could not be judged."""

    @property
    def level(self) -> float:
        """Level of the interval."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The words for one contrast."""

    kind: VerdictKind
    text_en: str
    text_zh: str


@dataclass(frozen=True, slots=True)
class Wording:
    """How a contrast is spoken about."""

    a: str = "the candidate"
    b: str = "the baseline"
    a_zh: str = "候选"
    b_zh: str = "基线"
    scale: float = 100.0
    """Factor from the metric to what is shown: 100 for shares shown in points, 1 for seconds."""
    unit: str = "points"
    unit_zh: str = "个百分点"
    digits: int = 2
    higher_is_better: bool = True


DEFAULT = Wording()


def verdict(
    interval: Interval,
    *,
    wording: Wording = DEFAULT,
    margin: float | None = None,
    p_adjusted: float | None = None,
    alpha: float | None = None,
) -> Verdict:
    """The verdict on a − b.

    margin: differences smaller than this do not matter (same scale as the metric, fixed before the data were seen);
    without it nothing is ever called equivalent. p_adjusted: p after correction for the other questions asked; at or
    above alpha (default 1 − level) the interval alone does not carry "better" or "worse".
    """
    if margin is not None:
        positive(margin, "margin")
    limit = 1.0 - interval.level if alpha is None else open_unit(alpha, "alpha")
    kind = _kind(interval, wording, margin, p_adjusted is not None and p_adjusted >= limit)
    return Verdict(kind, *_texts(kind, interval, wording, margin, p_adjusted))


def _kind(interval: Interval, wording: Wording, margin: float | None, held_back: bool) -> VerdictKind:
    delta, low, high = interval.delta, interval.low, interval.high
    if delta is None or interval.n == 0 or not (math.isfinite(low) and math.isfinite(high)):
        return "inconclusive"
    if margin is not None and -margin < low and high < margin:
        return "equivalent"
    # A constant contrast has no spread of its own; its tail share says whether enough pairs stand behind it.
    p = getattr(interval, "p_le_0", None)
    unsure = low == high and p is not None and min(p, 1 - p) > (1 - interval.level) / 2
    if (low > 0 or high < 0) and not held_back and not unsure:
        return "better" if (low > 0) == wording.higher_is_better else "worse"
    observed = getattr(interval, "low_observed", low), getattr(interval, "high_observed", high)
    if margin is not None or unsure or (interval.missing and (observed[0] > 0 or observed[1] < 0)):
        return "inconclusive"
    return "no_difference_shown"


def _texts(
    kind: VerdictKind, interval: Interval, wording: Wording, margin: float | None, p_adjusted: float | None
) -> tuple[str, str]:
    w = wording
    if interval.delta is None or interval.n == 0:
        en = f"Nothing can be said of {w.a} against {w.b}: no item was judged on both sides"
        zh = f"{w.a_zh}与{w.b_zh}无法比较：没有双方都已评判的条目"
        return f"{en}{_missing_en(interval)}.", f"{zh}{_missing_zh(interval)}。"
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        en = f"Too early to say whether {w.a} differs from {w.b}: {interval.n} units are too few for an interval"
        return en + ".", f"尚不能判断{w.a_zh}与{w.b_zh}是否不同：{interval.n} 个单元不足以给出区间。"
    low, high = _number(interval.low, w), _number(interval.high, w)
    percent = f"{100 * interval.level:g} %"
    gap = _number(abs(interval.delta), w, sign=False)
    span_en = f"{percent} interval {low} to {high}, n = {interval.n}{_missing_en(interval)}"
    span_zh = f"{percent} 区间 {low} 至 {high}，n = {interval.n}{_missing_zh(interval)}"
    bound = _number(margin, w, sign=False) if margin is not None else ""
    held = p_adjusted is not None and (interval.low > 0 or interval.high < 0)
    after_en = f"; p = {p_adjusted:.3g} after correction for several comparisons" if held else ""
    after_zh = f"；多重比较校正后 p = {p_adjusted:.3g}" if held else ""
    tail_en, tail_zh = f" ({span_en}{after_en}).", f"（{span_zh}{after_zh}）。"
    if kind in ("better", "worse"):
        zh = "优于" if kind == "better" else "差于"
        return (
            f"{_capital(w.a)} is {kind} than {w.b} by {gap} {w.unit}{tail_en}",
            f"{w.a_zh}{zh}{w.b_zh}，相差 {gap} {w.unit_zh}{tail_zh}",
        )
    if kind == "equivalent":
        return (
            f"{_capital(w.a)} and {w.b} differ by less than the margin of {bound} {w.unit}{tail_en}",
            f"{w.a_zh}与{w.b_zh}的差异小于界限 {bound} {w.unit_zh}{tail_zh}",
        )
    if kind == "no_difference_shown":
        return (
            f"No difference between {w.a} and {w.b} is shown; that is not proof that there is none{tail_en}",
            f"未显示{w.a_zh}与{w.b_zh}有差异，但这并不证明没有差异{tail_zh}",
        )
    why_en, why_zh = _open_question(interval, margin, bound, w)
    return (
        f"Inconclusive between {w.a} and {w.b}: {why_en}{tail_en}",
        f"{w.a_zh}与{w.b_zh}之间尚无定论：{why_zh}{tail_zh}",
    )


def _open_question(interval: Interval, margin: float | None, bound: str, w: Wording) -> tuple[str, str]:
    """What keeps the question open."""
    shown_low = getattr(interval, "low_observed", interval.low)
    shown_high = getattr(interval, "high_observed", interval.high)
    if interval.missing and (shown_low > 0 or shown_high < 0) and interval.low <= 0 <= interval.high:
        return "the items that could not be judged may turn it around", "未能评判的条目可能改变结论"
    if margin is None:
        return "too few items stand behind it", "支持它的条目太少"
    ends = (interval.low, interval.high) if w.higher_is_better else (-interval.high, -interval.low)
    if ends[0] > -margin:
        zh = f"可排除 {bound} {w.unit_zh}的损失，但未显示增益"
        return f"a loss of {bound} {w.unit} is ruled out, a gain is not shown", zh
    if ends[1] < margin:
        zh = f"可排除 {bound} {w.unit_zh}的增益，但未显示损失"
        return f"a gain of {bound} {w.unit} is ruled out, a loss is not shown", zh
    return f"both a gain and a loss of {bound} {w.unit} remain possible", f"{bound} {w.unit_zh}的增益或损失都有可能"


def _number(value: float, wording: Wording, *, sign: bool = True) -> str:
    shown = round(value * wording.scale, wording.digits) + 0.0
    return f"{shown:+.{wording.digits}f}" if sign else f"{shown:.{wording.digits}f}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _missing_en(interval: Interval) -> str:
    return f", {interval.missing} not judged" if interval.missing else ""


def _missing_zh(interval: Interval) -> str:
    return f"，{interval.missing} 条未能评判" if interval.missing else ""
