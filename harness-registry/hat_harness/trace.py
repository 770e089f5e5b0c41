"""What happened in a session, complete and replayable: `hatstack.trace/1`.

Always holds: `entries` has every event the session took and every action it asked for, in order, with the time at
which it did; hook verdicts and notes stand between them. Contexts stand once, in `segments`: they are append-only, so
a `CallModel` entry says how many messages of its segment it saw. Scores are made from `turns(trace)`, training rows
from `segments` and `sampled(trace, index)`. Not here: exports (hat_harness.export), replay (hat_harness.tape).

Notes, by type:
turn {event, texts} · skill {skill, name, call_id, repeated} · round {hooks, message} · end {outcome, text, reason} ·
call {call_id, name, tool, arguments, result, failure, recorded} · segment {segment, reason} · harness {digest} ·
ignored {event, reason}. A tick that fired nothing leaves no entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from hat_harness.codec import decode
from hat_harness.events import Message, ModelOutput

FORMAT: Literal["hatstack.trace/1"] = "hatstack.trace/1"
Outcome = Literal["reply", "refuse", "silence", "safe", ""]
"""How a turn ended; "" while it is open."""


class Record(BaseModel):
    """Base of the records here: immutable, an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


R = TypeVar("R", bound=Record)


def built(cls: type[R], values: dict[str, Any]) -> R:
    """A record of values that are known to be right, all fields given: no validation, a twentieth of the time."""
    given = _GIVEN.get(cls)
    if given is None:
        given = _GIVEN[cls] = set(cls.model_fields)
    record = _new(cls)
    _set_values(record, values)
    _set_given(record, given)
    _set_extra(record, None)
    _set_private(record, None)
    return record


_GIVEN: dict[type[Record], set[str]] = {}
"""Names of all fields, one set for all records of a class: they are frozen, and a copy makes its own."""
_new = object.__new__
_set_values, _set_given, _set_extra, _set_private = (
    # The slots of a model; a frozen one refuses the usual way, and a name looked up costs more than the assignment.
    BaseModel.__dict__[slot].__set__
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


class Entry(Record):
    """One thing that happened. `data` has the fields of the record that `type` names, defaults left out."""

    kind: Literal["event", "action", "hook", "note"]
    at: float
    """Seconds on the driver's clock."""
    turn: int
    """Counted from 1; 0 before the first turn."""
    type: str
    """Class name of the event or action, lifecycle event of a hook, or type of the note."""
    data: dict[str, Any] = Field(default_factory=dict)


class Sample(Record):
    """Which message of a segment a model call produced."""

    message: int
    """Index into the segment's messages."""
    call_id: str


class Segment(Record):
    """One append-only context; one training row."""

    index: int
    reason: Literal["start", "budget", "restart", "harness"]
    """Why it was opened."""
    harness: str
    """Digest of the harness that rendered it."""
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    """OpenAI function definitions that went beside the messages."""
    sampled: tuple[Sample, ...] = ()
    """The assistant messages that were sampled in this segment; others were carried over from an earlier one."""


class Trace(Record):
    """A whole session."""

    format: Literal["hatstack.trace/1"] = FORMAT
    session: str
    harness: str
    """Digest of the harness that the session began with."""
    harness_name: str
    room: dict[str, Any] = Field(default_factory=dict)
    """The room view that the session began with."""
    started: float = 0.0
    entries: tuple[Entry, ...] = ()
    segments: tuple[Segment, ...] = ()
    ignored: dict[str, int] = Field(default_factory=dict)
    """Events that came too late or from elsewhere, counted by reason."""


# ---- per turn -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallSummary:
    """One tool call of a turn, the activation tool not included."""

    tool: str
    """Canonical id, or the name that the model wrote when there is no such tool."""
    arguments: Mapping[str, Any]
    """Canonical arguments, or those that the model wrote when they were refused."""
    result: str
    """What the backend gave, or the error that the model was told."""
    failure: str = ""
    """"" on success; `malformed`: refused before it was made; `blocked`: a hook or limit; `cancelled`: the turn ended."""
    name: str = ""
    recorded: bool = False
    """The result of an earlier identical call with effects was given; the tool was not called again."""
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class HookVerdict:
    """One evaluation of a hook. An expression that failed counts as fired."""

    hook: str
    event: str
    action: str
    fired: bool
    error: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class TurnSummary:
    """What scores look at. Skills and calls are canonical, in the order in which the model asked for them."""

    index: int
    event: str
    """`ViewerMessage`, or the kind of the room event."""
    texts: tuple[str, ...]
    skills: tuple[str, ...] = ()
    calls: tuple[CallSummary, ...] = ()
    reply: str = ""
    outcome: Outcome = ""
    reason: str = ""
    reasoning: tuple[str, ...] = ()
    """Reasoning text of every model output of the turn, empty ones included."""
    hooks: tuple[HookVerdict, ...] = ()
    rounds: int = 0
    """How often hooks sent the turn back to the model."""
    model_calls: int = 0
    restarts: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    started: float = 0.0
    ended: float = 0.0
    emitted: str = ""
    """Text shown before the reply was final."""


_COUNTS = ("rounds", "model_calls", "restarts", "prompt_tokens", "completion_tokens")


@dataclass(slots=True)
class _Open:
    """A turn while its entries are read."""

    values: dict[str, Any]
    skills: dict[str, None] = field(default_factory=dict)
    calls: list[CallSummary] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    hooks: list[HookVerdict] = field(default_factory=list)
    emitted: list[str] = field(default_factory=list)
    outputs: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    counts: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(_COUNTS, 0))

    def take(self, entry: Entry) -> None:
        """Adds one entry of the turn."""
        data = entry.data
        match entry.kind, entry.type:
            case "note", "skill":
                self.skills[data["skill"]] = None
            case "note", "call":
                self.calls.append(CallSummary(**data))
            case "note", "round":
                self.counts["rounds"] += 1
            case "note", "end":
                self.values |= {"outcome": data["outcome"], "reply": data["text"], "reason": data["reason"]}
                self.values["ended"] = entry.at
            case "hook", event:
                self.hooks.append(HookVerdict(event=event, **data))
            case "action", "CallModel":
                self.counts["model_calls"] += 1
                self.asked.add(data["call_id"])
            case "action", "Restart":
                self.counts["restarts"] += 1
            case "action", "Emit":
                self.emitted.append(data["text"])
            case "event", "ModelOutput" if data["call_id"] in self.asked - self.outputs:
                self.outputs.add(data["call_id"])
                self.reasoning.append(data.get("reasoning", ""))
                for name in ("prompt_tokens", "completion_tokens"):
                    self.counts[name] += data.get(name, 0)

    def close(self) -> TurnSummary:
        """The turn as it stands."""
        return TurnSummary(
            **self.values,
            **self.counts,
            skills=tuple(self.skills),
            calls=tuple(self.calls),
            reasoning=tuple(self.reasoning),
            hooks=tuple(self.hooks),
            emitted="".join(self.emitted),
        )


def turns(trace: Trace) -> tuple[TurnSummary, ...]:
    """One summary per turn, in order; a turn that is still open has outcome ""."""
    found: dict[int, _Open] = {}
    for entry in trace.entries:
        if entry.kind == "note" and entry.type == "turn":
            texts = tuple(entry.data["texts"])
            values = {"index": entry.turn, "event": entry.data["event"], "texts": texts}
            found[entry.turn] = _Open({**values, "started": entry.at, "ended": entry.at})
        elif entry.turn in found:
            found[entry.turn].take(entry)
    return tuple(turn.close() for turn in found.values())


def sampled(trace: Trace, segment: int) -> dict[int, ModelOutput]:
    """Index of each message that was sampled in a segment → the model output it came from, tokens included."""
    wanted = {sample.call_id: sample.message for sample in trace.segments[segment].sampled}
    found: dict[int, ModelOutput] = {}
    for entry in trace.entries:
        if entry.kind == "event" and entry.type == "ModelOutput" and entry.data["call_id"] in wanted:
            found.setdefault(wanted[entry.data["call_id"]], decode("ModelOutput", entry.data))
    return found
