"""Projects, tasks and ratings as records; cause codes of a preference.

Always holds: a project is either `single` (criteria of a rubric) or `pair` (one criterion `preference`, labels a, tie,
b, with causes); what a task hides never reaches a rater. Not here: keeping them (store).
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field

from hat_components.judge.rubric import Criterion, Level, Record

FORMAT: Literal["hatstack.labels/1"] = "hatstack.labels/1"
PREFERENCE = "preference"
SIDES: Final = ("first", "tie", "second")
WINNERS: Final = ("a", "tie", "b")
CAUSES: Final = ("input_understanding", "reliability", "scenario_behaviour", "reply_quality", "tool_use")
"""Why one reply is better, as in the source paper's blind comparison."""

PAIR: Final = Criterion(
    name=PREFERENCE,
    question="Which reply would you rather have the host give?",
    levels=(
        Level(label="a", score=1.0, anchor="the first is better"),
        Level(label="tie", score=0.5, anchor="neither is better"),
        Level(label="b", score=0.0, anchor="the second is better"),
    ),
)


class Project(Record):
    """What is labelled, by which questions."""

    format: Literal["hatstack.labels/1"] = FORMAT
    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)
    kind: Literal["single", "pair"]
    note: str = ""
    criteria: tuple[Criterion, ...] = Field(min_length=1)
    """Questions in the order in which they are asked."""
    causes: tuple[str, ...] = ()
    """Codes of which one goes with a preference; empty where none is asked for."""
    arms: tuple[str, str] = ("a", "b")
    """Names of the two arms of pairs; never shown to raters."""
    ratings_per_item: int = Field(default=2, ge=1, le=20)
    """Raters that each item is offered to."""
    seed: int = 1
    """Decides each rater's order of items and sides."""
    rubric: str = ""
    """Digest of the rubric whose criteria these are."""

    def criterion(self, name: str) -> Criterion | None:
        """The criterion called `name`, or None."""
        return next((one for one in self.criteria if one.name == name), None)


class Task(Record):
    """One thing to label."""

    id: str = Field(min_length=1, max_length=256)
    intent: str = ""
    shown: dict[str, Any]
    """What a rater sees: `before` (texts so far), `event` (what is answered), and `reply`, or `a` and `b`."""
    hidden: dict[str, Any] = Field(default_factory=dict)
    """What a rater never sees: arms, computed truth."""


class Rating(Record):
    """What one rater said of one criterion of one item, as it is kept."""

    item: str
    account: str
    criterion: str
    label: str
    cause: str = ""
    comment: str = ""


class Decision(Record):
    """An adjudication."""

    item: str
    criterion: str
    label: str
    cause: str = ""
    reason: str = ""
    by: str = ""
