"""What a finished run says in a few lines: scores by suite and arm.

Read from the evaluations of the run's evaluate steps. Not here: the full report (the report step).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hat_components.evaluate.result import Evaluation, load_evaluation
from hat_components.step import InputError
from hat_pipelines.runs import RunFolder


@dataclass(frozen=True)
class Scores:
    """A table of headline scores in percent. Each row has `suite`, `title` and one key for each arm that played it."""

    arms: tuple[str, ...] = ()
    rows: list[dict[str, Any]] = field(default_factory=list)


def scores(folder: RunFolder) -> Scores:
    """Headline scores of a run's arms, on sealed seeds where an arm has been tested on them; empty without evaluations."""
    found: dict[str, Evaluation] = {}
    for name, record in folder.record.steps.items():
        path = folder.step(name).artifact("evaluation") if record.component == "evaluate" else None
        if path is None:
            continue
        try:
            evaluation = load_evaluation(path)
        except InputError:
            continue
        if evaluation.arm not in found or evaluation.seeds == "sealed":
            found[evaluation.arm] = evaluation
    rows: dict[str, dict[str, Any]] = {}
    for arm, evaluation in found.items():
        for suite in evaluation.suites:
            row = rows.setdefault(suite.id, {"suite": suite.id, "title": suite.title, "n": suite.n})
            row[arm] = round(100 * suite.scores[suite.headline].mean, 1)
    return Scores(tuple(found), list(rows.values()))
