"""What an evaluation says (`hatstack.evaluation/1`): per suite the means with intervals, and the scores of every item.

Always holds: scores are shares in [0, 1]; an item's score is the mean over its turns and a suite's the mean over its
items, so two evaluations of the same items can be compared in pairs; everything that decided the result stands in it by
digest. Not here: how it is made (step), how it is shown (report).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hat_components.step import InputError
from hat_harness.trace import Trace

TURN_METRICS = ("accuracy", "effectiveness", "skill_selection", "tool_rationality")
"""The four scores of a turn; `average` is the mean of the first two, as in the source paper."""


class Record(BaseModel):
    """Base of the records here: immutable, an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Interval(Record):
    """A mean over items with its 95 % percentile bootstrap interval."""

    mean: float
    low: float
    high: float


class Group(Record):
    """Means over a part of a suite (an intent, an operator family, an instruction type)."""

    n: int
    """Turns (intents) or items (families) in the part."""
    means: dict[str, float]


class TurnResult(Record):
    """One turn of an item."""

    intent: str = ""
    values: dict[str, float]
    causes: tuple[str, ...] = ()
    """Short codes of what was wrong."""


class ItemResult(Record):
    """One item under one harness state."""

    item: str
    """Id of the item, prompt or conversation; the same id in two evaluations is the same question."""
    values: dict[str, float]
    turns: tuple[TurnResult, ...] = ()
    harness: str = ""
    """Digest of the harness state, "" where the suite has none."""
    families: tuple[str, ...] = ()
    """Families of the rewrites that made the state."""


class SuiteResult(Record):
    """One suite."""

    id: str
    title: str
    kind: str
    headline: str
    """The metric that stands for the suite in tables and gates."""
    seed: int | None = None
    paired_with: str = ""
    """Id of the suite whose items these are under other states, "" for none."""
    scores: dict[str, Interval]
    intents: dict[str, Group] = Field(default_factory=dict)
    families: dict[str, Group] = Field(default_factory=dict)
    items: tuple[ItemResult, ...]
    seconds: float = 0.0
    """Wall time of the rollouts; not part of any comparison."""

    @property
    def n(self) -> int:
        """Items scored."""
        return len(self.items)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every metric of its items."""
        return tuple(self.items[0].values) if self.items else ()

    @property
    def family_names(self) -> tuple[str, ...]:
        """Rewrite families of its states, by name."""
        return tuple(sorted({family for item in self.items for family in item.families}))

    def members(self, family: str) -> frozenset[str]:
        """Items whose state has a rewrite of the family."""
        return frozenset(item.item for item in self.items if family in item.families)

    def values(self, metric: str) -> dict[str, float]:
        """Item id → score, of the items that have the metric."""
        return {item.item: item.values[metric] for item in self.items if metric in item.values}


class TraceRecord(Record):
    """One line of `traces.jsonl`: the whole session behind an item's score."""

    suite: str
    item: str
    state: int = 0
    """Which of the suite's harness states, from 0."""
    harness: str
    families: tuple[str, ...] = ()
    trace: Trace


class Evaluation(Record):
    """Result of one evaluate step."""

    format: Literal["hatstack.evaluation/1"] = "hatstack.evaluation/1"
    arm: str
    """Name of what was evaluated in this run: base, naive, hsa, opd, rl, expert…"""
    policy: str
    """`model`, `expert` or the model name at an endpoint."""
    model: str = ""
    """Digest of the model folder, "" without one."""
    harness: str
    """Digest of the original harness."""
    dataset: str
    """Digest of the items."""
    config: str
    """Digest of the step's config."""
    seeds: Literal["dev", "sealed"]
    """Which seeds drew the states: `dev` for tuning, `sealed` for tables that are published."""
    suites: tuple[SuiteResult, ...]
    environment: dict[str, str] = Field(default_factory=dict)
    """Versions and machine; `t5_training`: what is known of training on the other half of BFCL, where t5 was run."""

    def suite(self, ident: str) -> SuiteResult | None:
        """The suite called `ident`, or None."""
        return next((suite for suite in self.suites if suite.id == ident), None)


def load_evaluation(path: Path) -> Evaluation:
    """Read an evaluation from its file or the folder that holds it; raises `InputError` when it is not one."""
    file = path / "evaluation.json" if path.is_dir() else path
    if not file.is_file():
        raise InputError("there is no evaluation", place=str(file), cure="run the evaluate step first")
    try:
        return Evaluation.model_validate_json(file.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"this is not a hatstack.evaluation/1: {where}: {first['msg']}", place=str(file), cure="evaluate again"
        ) from error


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; 0 for none."""
    return sum(values) / len(values) if values else 0.0


def mean_values(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of every metric over rows that all have the same metrics."""
    return {metric: mean([row[metric] for row in rows]) for metric in rows[0]} if rows else {}
