"""What a harness evolution says (`hatstack.evolution/1`).

Always holds: an error is a turn whose Accuracy or Effectiveness is below 1; shares are in [0, 1]; every difference has
its interval over items; what was chosen by (development) and what was not (held out) stand apart. Not here: how it is
made (step), how it is shown (paper, docs).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from hat_components.evaluate.result import Interval, Record
from hat_components.step import InputError

FORMAT: Literal["hatstack.evolution/1"] = "hatstack.evolution/1"
FILE = "evolution.json"


class Share(Record):
    """A count out of a total, with Wilson's interval."""

    count: int
    n: int
    value: float | None
    """None where n is 0."""
    low: float
    high: float


class Difference(Record):
    """A paired difference over the same items, in shares."""

    delta: float
    low: float
    high: float
    p: float
    """Two-sided, of this contrast alone."""
    kind: str
    """better, worse, equivalent, no_difference_shown or inconclusive."""
    text: str
    text_zh: str = ""


class Case(Record):
    """One turn that an edit changed between right and wrong."""

    item: str
    turn: int
    """From 1."""
    intent: str
    before: tuple[str, ...]
    """Causes of the error before; empty where it was right."""
    after: tuple[str, ...]
    hooks: tuple[str, ...] = ()
    """Hooks that fired under the edit."""


class Tally(Record):
    """Turns that an edit fixed and broke, of one intent or hook."""

    fixed: int = 0
    broken: int = 0
    n: int = 0
    """Turns of the intent, or on which the hook fired under the edit."""


class Effect(Record):
    """An edit against the harness it was made from, turn by turn on the same items."""

    against: str
    """Stage that it is held against."""
    fixed: int
    broken: int
    still_wrong: int
    accuracy: Difference
    effectiveness: Difference
    objective: Difference
    intents: dict[str, Tally]
    hooks: dict[str, Tally]
    """Hook → turns on which it fired; "" holds those on which none did."""
    cases: tuple[Case, ...] = ()
    """Changed turns, broken ones first, at most 200."""


class Measurement(Record):
    """One policy under one harness."""

    policy: str
    items: int
    turns: int
    errors: int
    scores: dict[str, Interval]
    """Accuracy, Effectiveness, AVG, Skill Selection, Tool Rationality: means over items."""
    over_refusal: Share
    """Turns that should be answered and were refused or passed over in silence."""
    missed_refusal: Share
    """Turns that should be refused or passed over and were answered."""
    causes: dict[str, int] = Field(default_factory=dict)
    """Cause → turns, the commonest first."""
    effect: Effect | None = None
    """Against the stage that the edit was made from; None for the base."""
    total: Effect | None = None
    """Against the base."""


class Stage(Record):
    """The base or one edit."""

    name: str
    kind: Literal["base", "folder", "working_copy", "proposal"]
    parent: str = ""
    harness: str
    """Digest."""
    folder: str = ""
    """Copy of the harness, relative to the result."""
    note: str = ""
    """What the edit is for: the description of its harness, or the proposer's own words."""
    changes: tuple[str, ...] = ()
    """What differs from the parent, in meaning."""
    tokens: int = 0
    """Estimated tokens of the system prompt, room view excluded."""
    outcome: Literal["base", "kept", "not_kept", "not_tried"]
    """`kept`: it became the best so far by the first policy."""
    diagnosis: str = ""
    """One sentence from the figures: what it gained and cost."""
    measured: dict[str, Measurement] = Field(default_factory=dict)
    """Policy → development figures; empty where it was not tried."""


class HeldOut(Record):
    """The selected harness against the base on items that nothing was chosen by, for one policy."""

    policy: str
    turns: int
    errors_before: int
    errors_after: int
    reduction: float | None
    """(before − after) / before; None without errors before."""
    reduction_low: float
    reduction_high: float
    effect: Effect
    before: Measurement
    after: Measurement


class Evolution(Record):
    """Result of one evolve step."""

    format: Literal["hatstack.evolution/1"] = FORMAT
    scenario: str
    base: str
    """Digest of the harness that it began with."""
    dataset: str
    """Digest of the development items."""
    held_out_dataset: str = ""
    """Digest of the held-out items, "" without a check."""
    config: str
    """Digest of the step's config."""
    objective: str
    policies: dict[str, str]
    """Policy → digest, the deciding one first."""
    stages: tuple[Stage, ...]
    selected: str
    """Name of the best stage; the base's when no edit was kept."""
    stopped: str
    """Why it ended: all_tried, or patience."""
    held_out: dict[str, HeldOut] = Field(default_factory=dict)
    contrast: dict[str, Difference] = Field(default_factory=dict)
    """Other policy → how much more (or less) the selected edit reduced its error rate than the first policy's."""

    def stage(self, name: str) -> Stage:
        """The stage called `name`; KeyError for none."""
        return {stage.name: stage for stage in self.stages}[name]


def load_evolution(path: Path) -> Evolution:
    """Read an evolution from its file or folder; raises `InputError` when it is not one."""
    file = path / FILE if path.is_dir() else path
    try:
        return Evolution.model_validate_json(file.read_bytes())
    except OSError as error:
        raise InputError("there is no evolution", place=str(file), cure="hat evolve") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"this is not a {FORMAT}: {where}: {first['msg']}", place=str(file), cure="evolve again"
        ) from error
