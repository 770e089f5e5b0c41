"""What a scenario is: items to answer, a tool backend over each item's room, a scripted expert and a scorer.

The core knows no scenario; it speaks to these shapes. Always holds: the same (seed, split, index) gives the same
bytes on every machine, and splits never share an item. Not here: harness texts (they are folders), training, suites.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from hat_harness.errors import Kind, PlatformError
from hat_harness.events import CallModel, Event, ModelOutput, RoomEvent, ViewerMessage
from hat_harness.ports import ToolBackend
from hat_harness.spec import Harness
from hat_harness.trace import Trace

Split = Literal["train", "dev", "test", "calibration", "evolve"]
AttackKind = Literal["viewer", "tool"]
"""Who attacks: viewers in their comments, or whoever can write into what tools return."""


class ScenarioError(PlatformError):
    """Root of everything that hat_scenarios raises."""

    kind: Kind = "invalid_input"


class Record(BaseModel):
    """Base of the records here: immutable, an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class GoldCall(Record):
    """A tool call in canonical id and canonical arguments."""

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Gold(Record):
    """What a right turn does. Texts are stated facts; scoring compares facts, prices and calls, not wording."""

    outcome: Literal["reply", "refuse", "silence"] = "reply"
    skill: str = ""
    """Canonical id of the reply skill to activate; "" where none is asked for."""
    strategies: tuple[str, ...] = ()
    """Canonical ids of strategy skills that must be activated too."""
    calls: tuple[GoldCall, ...] = ()
    facts: tuple[str, ...] = ()
    """Strings that the reply must contain (values, names, promised actions)."""
    forbidden: tuple[str, ...] = ()
    """Strings that the reply must not contain."""
    state: dict[str, Any] = Field(default_factory=dict)
    """Room state that must hold afterwards, by key."""


class Turn(Record):
    """One event that the agent has to deal with."""

    event: Literal["comment", "batch", "viewer_entered", "order_placed", "item_on_sale", "rules_changed"] = "comment"
    texts: tuple[str, ...] = ()
    viewers: tuple[str, ...] = ()
    data: dict[str, Any] = Field(default_factory=dict)
    intent: str
    gold: Gold
    notes: dict[str, Any] = Field(default_factory=dict)
    """What the scenario's own expert and backend need to know of the turn; never shown to a model."""


class Item(Record):
    """One evaluation or training item: a room and the turns that happen in it, in order."""

    id: str
    scenario: str
    split: Split
    seed: int
    room: dict[str, Any]
    turns: tuple[Turn, ...]


class Scores(Record):
    """Per turn, each in [0, 1] (DESIGN.md, Judge and evaluation)."""

    accuracy: float
    effectiveness: float
    skill_selection: float
    tool_rationality: float
    causes: tuple[str, ...] = ()
    """What was wrong, as short codes; empty when all four are 1."""


class Vocabulary(Record):
    """Words that augmentation may draw names and phrases from. `held_out` words are never in training draws."""

    names: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Canonical id (skill, tool or parameter) → synonyms; key `""` holds words that fit anything."""
    gates: tuple[str, ...] = ()
    openers: tuple[str, ...] = ()
    descriptions: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Canonical id → paraphrases of its description, the original not included."""
    distractors: tuple[tuple[str, str], ...] = ()
    """(name, description) of skills and tools that fit no intent."""
    letters: str = ""
    """Characters of another script that harnesses are written in; a tokeniser keeps each of them whole."""


class RoomTools(ToolBackend, Protocol):
    """A tool backend whose room also changes from outside the agent."""

    def observe(self, turn: Turn) -> None:
        """`turn` is about to begin: take over what it changes in the room."""


class Expert(Protocol):
    """A scripted policy that reads the harness as the model would and reaches the gold outcome in any state."""

    def respond(self, harness: Harness, item: Item, turn: int, call: CallModel) -> ModelOutput:
        """The next assistant message for `call`, whose messages hold the conversation so far."""


class Scenario(Protocol):
    """A scenario package."""

    name: str

    def items(self, seed: int, split: Split, count: int, turns: int = 3) -> Iterator[Item]:
        """`count` items of `turns` turns each."""

    def backend(self, item: Item) -> RoomTools:
        """A fresh tool backend over the item's room; it holds the mutable room state."""

    def room_view(self, item: Item) -> Mapping[str, Any]:
        """The part of the room that the harness renders (hat_harness.render)."""

    def expert(self) -> Expert:
        """The scripted expert."""

    def score(self, harness: Harness, item: Item, trace: Trace) -> Sequence[Scores]:
        """One score per turn of the item, from what the trace says happened."""

    def vocabulary(self, held_out: bool = False) -> Vocabulary:
        """Words for augmentation; the two pools share none."""


@runtime_checkable
class Attackable(Protocol):
    """A scenario that can put its items under attack, for suites of that kind."""

    def attacked(self, item: Item, kind: AttackKind, seed: int) -> tuple[Item, tuple[int, ...]]:
        """The item under attack and the turns, from 0, that meet it; what is right stays the same."""

    def yielded(self, harness: Harness, scores: Scores, reply: str) -> bool:
        """Whether a final reply gave in to an attack."""


def events_of(turn: Turn) -> tuple[Event, ...]:
    """The turn as a session takes it; exactly one of the events opens a turn of the session.

    Comments are a viewer message; a room event brings its data; changed rules are a change of room state (`data` has
    the new `state`) followed by the comment that asks about it.
    """
    if turn.event in ("comment", "batch"):
        return (ViewerMessage(turn.texts, turn.viewers),)
    if turn.event == "viewer_entered" or turn.event == "order_placed" or turn.event == "item_on_sale":
        return (RoomEvent(turn.event, turn.data),)
    return RoomEvent("state", state=turn.data["state"]), ViewerMessage(turn.texts, turn.viewers)
