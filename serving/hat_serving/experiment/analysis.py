"""What came out of an experiment: intervals that hold at every look, sample ratio, guardrails, a decision in words.

Always holds: metrics are per unit by assigned arm; with several arms each interval is widened so that all hold together;
a ramp compares within its stages; where the sample ratio is broken nothing is read; only an interval that excludes no difference
decides. Not here: reading the rows (observed), the statistics (hat_stats), the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hat_serving.experiment.model import BETTER, SHOWN, Experiment, Guardrail, MetricName
from hat_serving.experiment.observed import Unit, by_stage, parts
from hat_stats.moments import Arm, Moments, PairMoments
from hat_stats.sequential import Look, sequential_difference, sequential_mean, sequential_staged
from hat_stats.srm import SampleRatio, sequential_sample_ratio
from hat_stats.verdict import Wording, verdict

BURN_IN = 100
Guard = Literal["harm", "clear", "open"]
DecisionKind = Literal["do_not_read", "stop", "keep", "drop", "no_matter", "go_on"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, in words."""

    kind: DecisionKind
    text_en: str
    text_zh: str
    arm: str = ""


def analyse(one: Experiment, found: Sequence[Unit], previous: Mapping[str, float] | None = None) -> dict[str, Any]:
    """The result as plain data (docs/experiments.md). `previous`: arm → smallest p of earlier looks."""
    stages = by_stage(one, found)
    control = one.arms[0].name
    ratio = _ratio(one, stages)
    arms = [_arm(one, arm.name, weight, found) for arm, weight in zip(one.arms, one.weights, strict=True)]
    contrasts = []
    for arm in one.arms[1:]:
        look = _difference(one, one.spec.metric, arm.name, control, stages)
        p = min(look.p, (previous or {}).get(arm.name, 1.0))
        guards = [_guard(one, guard, arm.name, control, stages) for guard in one.spec.guardrails]
        contrasts.append({"arm": arm.name, "primary": _told(look) | {"p": p}, "guardrails": guards})
    decision = _decide(one, ratio, contrasts)
    return {
        "metric": one.spec.metric,
        "better": one.spec.better_is,
        "units": len(found),
        "sample_ratio": asdict(ratio) if ratio is not None else None,
        "arms": arms,
        "contrasts": contrasts,
        "decision": asdict(decision),
    }


def harmed(result: Mapping[str, Any]) -> str:
    """Why an experiment should be stopped at once; "" when nothing says so."""
    kind = result["decision"]["kind"]
    return str(result["decision"]["text_en"]) if kind in ("stop", "do_not_read") else ""


def _level(one: Experiment) -> float:
    """Level of one interval so that those of all arms hold together."""
    return 1 - (1 - one.spec.level) / max(len(one.arms) - 1, 1)


def _estimate(one: Experiment, metric: MetricName, units: Sequence[Unit]) -> Arm:
    pairs = [parts(metric, unit, one.spec.price_in, one.spec.price_out) for unit in units]
    if any(below is not None for _, below in pairs):
        return Arm.ratio(PairMoments.of([top for top, _ in pairs], [below or 0.0 for _, below in pairs]))
    return Arm.mean(Moments.of([top for top, _ in pairs]))


def _difference(one: Experiment, metric: MetricName, arm: str, control: str, stages: Sequence[Sequence[Unit]]) -> Look:
    """arm − control, within the stages of the ramp."""
    pairs = [
        tuple(_estimate(one, metric, [unit for unit in stage if unit.arm == name]) for name in (arm, control))
        for stage in stages
    ]
    settings = {"target_n": float(one.spec.target_units), "level": _level(one), "burn_in": BURN_IN}
    if len(pairs) == 1:
        return sequential_difference(pairs[0][0], pairs[0][1], **settings)  # type: ignore[arg-type]  # floats and an int
    return sequential_staged([(left, right) for left, right in pairs], **settings)  # type: ignore[arg-type]  # as above


def _arm(one: Experiment, name: str, weight: float, found: Sequence[Unit]) -> dict[str, Any]:
    """One arm by itself: units, what they did, the deciding metric with its interval, cost per reply."""
    mine = [unit for unit in found if unit.arm == name]
    metric = one.spec.metric
    alone = _estimate(one, metric, mine)
    look = sequential_mean(alone, target_n=one.spec.target_units / 2, level=_level(one), burn_in=BURN_IN)
    told: dict[str, Any] = {"name": name, "weight": weight, "units": len(mine), "value": _told(look)}
    for other in BETTER:
        if other == "cost_per_reply" and not (one.spec.price_in or one.spec.price_out):
            continue
        value = _estimate(one, other, mine).value if mine else math.nan
        told[other] = None if math.isnan(value) else value
    told["replies"] = sum(unit.turns for unit in mine)
    return told


def _ratio(one: Experiment, stages: Sequence[Sequence[Unit]]) -> SampleRatio | None:
    """Units against the promised shares, valid at every look; None before the first unit."""
    names = [arm.name for arm in one.arms]
    counted = []
    for stage, units in zip(one.stages, stages, strict=True):
        weights = one.weights_at(stage.percent)
        used = [(name, weight) for name, weight in zip(names, weights, strict=True) if weight > 0]
        if units and len(used) > 1:
            counts = [sum(unit.arm == name for unit in units) for name, _ in used]
            counted.append((counts, [weight for _, weight in used]))
    return sequential_sample_ratio(counted) if counted else None


def _guard(
    one: Experiment, guard: Guardrail, arm: str, control: str, stages: Sequence[Sequence[Unit]]
) -> dict[str, Any]:
    look = _difference(one, guard.metric, arm, control, stages)
    sign = 1.0 if BETTER[guard.metric] == "lower" else -1.0
    low, high = sorted((sign * look.low, sign * look.high))
    state: Guard = "harm" if low > 0 else "clear" if high < guard.margin else "open"
    return {"metric": guard.metric, "margin": guard.margin, **_told(look), "state": state}


def _decide(one: Experiment, ratio: SampleRatio | None, contrasts: Sequence[Mapping[str, Any]]) -> Decision:
    if ratio is None:
        return Decision("go_on", "No unit has been exposed yet.", "尚无单元进入实验。")
    if ratio.mismatch:
        en = f"Do not read this: units did not arrive in the promised shares (p = {ratio.p:.2g}); assignment or logging broke."
        return Decision("do_not_read", en, f"结果不可读：单元未按约定比例到达（p = {ratio.p:.2g}），分流或记录有误。")
    for contrast in contrasts:
        for guard in contrast["guardrails"]:
            if guard["state"] == "harm":
                text = f"Stop: arm {contrast['arm']} harms {guard['metric']} ({_span(guard, guard['metric'])})."
                zh = f"停止：分支 {contrast['arm']} 损害了 {guard['metric']}（{_span(guard, guard['metric'])}）。"
                return Decision("stop", text, zh, contrast["arm"])
    said = [_say(one, contrast) for contrast in contrasts]
    for kind in ("keep", "go_on", "no_matter", "drop"):
        chosen = [decision for decision in said if decision.kind == kind]
        if chosen:
            best = max(chosen, key=lambda decision: _gain(one, decision.arm, contrasts))
            others = [decision for decision in said if decision is not best]
            return Decision(
                best.kind,
                " ".join([best.text_en, *(decision.text_en for decision in others)]),
                "".join([best.text_zh, *(decision.text_zh for decision in others)]),
                best.arm,
            )
    return Decision("go_on", "Nothing is compared.", "没有可比较的分支。")


def _say(one: Experiment, contrast: Mapping[str, Any]) -> Decision:
    """The decision on one arm against the control."""
    spec, arm = one.spec, str(contrast["arm"])
    scale, unit, unit_zh, digits = SHOWN[spec.metric]
    control = one.arms[0].name
    words = Wording(
        f"arm {arm}",
        f"arm {control}",
        f"分支 {arm} ",
        f"分支 {control} ",
        scale,
        unit,
        unit_zh,
        digits,
        spec.better_is == "higher",
    )
    primary = contrast["primary"]
    low, high = (-math.inf if primary["low"] is None else primary["low"]), primary["high"]
    look = Look(
        primary["delta"], low, math.inf if high is None else high, primary["p"], primary["n"], primary["level"], "ok"
    )
    found = verdict(look, wording=words, margin=spec.margin)
    open_ones = [guard["metric"] for guard in contrast["guardrails"] if guard["state"] == "open"]
    if found.kind == "better" and open_ones:
        en = f"{found.text_en} Go on until the guardrails are clear: {', '.join(open_ones)}."
        return Decision("go_on", en, f"{found.text_zh}请继续，直到护栏指标明确：{'、'.join(open_ones)}。", arm)
    kinds: dict[str, DecisionKind] = {"better": "keep", "worse": "drop", "equivalent": "no_matter"}
    kind = kinds.get(found.kind, "go_on")
    then = {
        "keep": (f"Keep arm {arm}.", f"建议采用分支 {arm}。"),
        "drop": (f"Drop arm {arm}.", f"建议放弃分支 {arm}。"),
        "no_matter": ("Either may stay.", "两者皆可。"),
        "go_on": ("Go on.", "请继续。"),
    }[kind]
    return Decision(kind, f"{found.text_en} {then[0]}", f"{found.text_zh}{then[1]}", arm)


def _gain(one: Experiment, arm: str, contrasts: Sequence[Mapping[str, Any]]) -> float:
    sign = 1.0 if one.spec.better_is == "higher" else -1.0
    for contrast in contrasts:
        if contrast["arm"] == arm:
            return sign * (contrast["primary"]["delta"] or 0.0)
    return 0.0


def _told(look: Look) -> dict[str, Any]:
    """A look as plain data; an end that does not exist is None."""
    return {
        "delta": look.delta,
        "low": look.low if math.isfinite(look.low) else None,
        "high": look.high if math.isfinite(look.high) else None,
        "p": look.p,
        "n": look.n,
        "level": look.level,
        "state": look.state,
    }


def _span(told: Mapping[str, Any], metric: MetricName) -> str:
    scale, unit, _, digits = SHOWN[metric]
    low, high = (told[end] * scale if told[end] is not None else math.nan for end in ("low", "high"))
    return f"{low:+.{digits}f} to {high:+.{digits}f} {unit}"
