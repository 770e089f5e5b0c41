"""Simulated raters: they know the computed truth of a task and err at settable rates. For tests and plans.

Always holds: what a rater says follows from seed, name and item alone; a summary of them is marked simulated. Not here:
people (the console).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from pydantic import Field

from hat_components.judge.rubric import Record
from hat_components.label.model import Project, Rating, Task
from hat_components.step import InputError


class Rater(Record):
    """One simulated rater."""

    name: str
    sharp: float = Field(default=0.85, ge=0, le=1)
    """Chance to say what is true; of the rest half is the nearest other answer, half any."""
    cause_right: float = Field(default=0.8, ge=0, le=1)
    """Chance to name the true cause of a win."""
    seed: int = 1

    def rate(self, project: Project, task: Task) -> Iterator[Rating]:
        """One rating per criterion; InputError for a task whose truth is not known."""
        for criterion in project.criteria:
            truth = task.hidden.get("winner") if project.kind == "pair" else _truth(task, criterion.name)
            if truth not in criterion.labels:
                raise InputError(
                    f"the truth of {criterion.name} is not known", place=task.id, cure="simulated raters need scores"
                )
            label = self._say(task, criterion.name, str(truth), criterion.labels)
            cause = ""
            if project.causes and label != "tie":
                known = str(task.hidden.get("cause") or project.causes[-1])
                right = self._draw(task, "cause") < self.cause_right
                cause = known if right else self._pick(task, "other cause", project.causes)
            yield Rating(item=task.id, account=self.name, criterion=criterion.name, label=label, cause=cause)

    def _say(self, task: Task, criterion: str, truth: str, labels: Sequence[str]) -> str:
        draw = self._draw(task, criterion)
        if draw < self.sharp:
            return truth
        at = labels.index(truth)
        if draw < self.sharp + (1 - self.sharp) / 2:
            near = [labels[index] for index in (at - 1, at + 1) if 0 <= index < len(labels)]
            return self._pick(task, f"{criterion} near", near)
        return self._pick(task, f"{criterion} any", [label for label in labels if label != truth])

    def _pick(self, task: Task, what: str, among: Sequence[str]) -> str:
        return among[min(len(among) - 1, int(self._draw(task, what) * len(among)))]

    def _draw(self, task: Task, what: str) -> float:
        text = f"{self.seed}\x1f{self.name}\x1f{task.id}\x1f{what}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def rate_all(raters: Sequence[Rater], project: Project, tasks: Sequence[Task]) -> list[Rating]:
    """Every rater on every task."""
    return [rating for rater in raters for task in tasks for rating in rater.rate(project, task)]


def _truth(task: Task, criterion: str) -> str:
    truth = task.hidden.get("truth")
    return str(truth.get(criterion, "")) if isinstance(truth, dict) else ""
