"""What judging one suite says (`hatstack.judged/1`): raw and corrected share per criterion, and what is missing.

Always holds: `raw` is never shown without its interval over sessions; a corrected value names the calibration that it
comes from. Not here: single judgements (panel).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from hat_components.judge.calibration import JudgeCalibration, corrected
from hat_components.judge.panel import Judgement, counted
from hat_components.judge.rubric import Record
from hat_components.judge.spec import Judge
from hat_stats.bootstrap import bootstrap_mean


class Estimate(Record):
    """A share with its interval."""

    value: float | None
    low: float
    high: float
    state: str = "ok"


class CriterionResult(Record):
    """One criterion over all judged turns."""

    n: int
    """Turns with a score."""
    raw: Estimate
    """Mean score as the judge gave it, resampled over sessions, missing turns at their extremes."""
    corrected: Estimate | None = None
    """True share of the highest label by the calibration; None without one. `clipped`: scores and calibration clash."""
    missing: dict[str, int] = Field(default_factory=dict)
    """Reason → turns that could not be judged."""
    intents: dict[str, Estimate] = Field(default_factory=dict)
    """Raw mean by intent."""


class Judged(Record):
    """Result of one scoring run."""

    format: Literal["hatstack.judged/1"] = "hatstack.judged/1"
    judge: str
    """Digest of the judge."""
    name: str
    revision: int
    evaluation: str
    """Digest of the evaluation whose sessions were judged."""
    suite: str
    subjects: int
    calibration: str = ""
    """Digest of the judge that the calibration measured, "" without one; always that of this judge."""
    criteria: dict[str, CriterionResult]
    flags: dict[str, int] = Field(default_factory=dict)
    """What members' answers needed: asked_again, other_words…"""
    usage: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Member → requests, cached, retries, tokens, cost."""


def judged_result(
    judge: Judge,
    judgements: Sequence[Judgement],
    calibration: JudgeCalibration | None,
    *,
    evaluation: str,
    suite: str,
    level: float,
    draws: int,
    seed: int,
    usage: dict[str, dict[str, float]],
) -> Judged:
    """Summarise judgements of one suite."""
    tally = counted(judgements)
    criteria = {}
    for one in judge.rubric.criteria:
        scores = [row.rulings[one.name].score for row in judgements]
        items = [row.item for row in judgements]
        groups: dict[str, list[int]] = {}
        for index, row in enumerate(judgements):
            if row.intent:
                groups.setdefault(row.intent, []).append(index)
        criteria[one.name] = CriterionResult(
            n=sum(score is not None for score in scores),
            raw=_mean(scores, items, level, draws, seed),
            corrected=None if calibration is None else _corrected(calibration, one.name, judgements, level),
            missing=tally.get(one.name, {}),
            intents={
                intent: _mean([scores[k] for k in rows], [items[k] for k in rows], level, draws, seed)
                for intent, rows in sorted(groups.items())
            },
        )
    return Judged(
        judge=judge.digest,
        name=judge.name,
        revision=judge.revision,
        evaluation=evaluation,
        suite=suite,
        subjects=len(judgements),
        calibration=calibration.judge if calibration else "",
        criteria=criteria,
        flags=tally["flags"],
        usage=usage,
    )


def _mean(scores: Sequence[float | None], items: Sequence[str], level: float, draws: int, seed: int) -> Estimate:
    values = [float("nan") if score is None else score for score in scores]
    found = bootstrap_mean(values, draws=draws, seed=seed, level=level, cluster=items)
    return Estimate(value=found.value, low=found.low, high=found.high, state="ok" if found.n else "empty")


def _corrected(
    calibration: JudgeCalibration, criterion: str, judgements: Sequence[Judgement], level: float
) -> Estimate | None:
    if criterion not in calibration.criteria:
        return None
    found = corrected(calibration, criterion, judgements, level=level)
    state = "clipped" if found.clipped else found.state
    return Estimate(value=found.value, low=found.low, high=found.high, state=state)
