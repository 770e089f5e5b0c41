"""D_perf: the agent requests that a latency replay sends, drawn from traces, with everything that they need.

A request is one turn of a recorded or simulated session: the room, the exchanges before it, what the viewer says, and what
the tools answered. Always holds: the same traces, seed and count give the same bytes and digest; a request is replayed by a
live session, so a model that asks for other tools than were recorded is answered (simulated rooms) or told an error
(recorded ones). Not here: sending (replay).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hat_harness.digest import decimals, digest_json
from hat_harness.events import ToolRequest, ToolResult
from hat_harness.ports import ToolBackend
from hat_harness.spec import Harness
from hat_harness.trace import Trace, turns
from hat_scenarios.base import Item
from hat_scenarios.live_commerce import LiveCommerce, RoomBackend, Settings
from hat_scenarios.play import play_expert
from hat_serving.errors import SettingsError

FORMAT = "hatstack.dperf/1"
WARM_UP, MEASURED = 10, 100
TURNS = 3
"""Turns of a simulated session; the last is the request."""


class Record(BaseModel):
    """Base of the records here."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Answered(Record):
    """A tool call of the trace and what the tool said."""

    tool: str
    arguments: dict[str, Any]
    content: str


class AgentRequest(Record):
    """One request."""

    id: str
    source: Literal["simulated", "recorded"]
    room: dict[str, Any] = Field(default_factory=dict)
    """What the harness shows of the room."""
    state: dict[str, Any] | None = None
    """The whole simulated room as it is when the request comes; None for a recorded one."""
    history: tuple[tuple[str, str], ...] = ()
    """Earlier exchanges (viewers, agent)."""
    texts: tuple[str, ...]
    viewers: tuple[str, ...] = ()
    answers: tuple[Answered, ...] = ()


class RequestSet(Record):
    """D_perf: warm-up requests first, then the measured ones."""

    format: Literal["hatstack.dperf/1"] = "hatstack.dperf/1"
    seed: int
    warm_up: int = Field(default=WARM_UP, ge=0)
    requests: tuple[AgentRequest, ...] = Field(min_length=1)

    @property
    def digest(self) -> str:
        """Over everything in it."""
        return digest_json(decimals(self.model_dump(mode="json")))

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        fresh.replace(path)

    @classmethod
    def read(cls, path: Path) -> RequestSet:
        """The set in a file. SettingsError for what is none."""
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValidationError, UnicodeDecodeError) as error:
            first = str(error).splitlines()[0]
            raise SettingsError(f"no set of requests: {first}", place=str(path), cure="hat loadtest draw") from None


class Tools(ToolBackend):
    """The tools of one request: the simulated room, else what was recorded."""

    def __init__(self, request: AgentRequest) -> None:
        self._room = RoomBackend(_room(request.state)) if request.state is not None else None
        self._answers = {(one.tool, _key(one.arguments)): one.content for one in request.answers}

    def call(self, session_id: str, request: ToolRequest) -> ToolResult:
        """One call."""
        if self._room is not None:
            return self._room.call(session_id, request)
        content = self._answers.get((request.name, _key(request.arguments)))
        if content is None:
            return ToolResult(request.call_id, "error: this call was not recorded", "server")
        return ToolResult(request.call_id, content)


def simulated(harness: Harness, seed: int, count: int = WARM_UP + MEASURED, difficulty: int = 1) -> RequestSet:
    """D_perf from sessions that the scripted expert plays in drawn rooms; the mix is the published one."""
    scenario = LiveCommerce(Settings.model_validate({"difficulty": difficulty}))
    cases: list[tuple[Harness, Item]] = []
    index = 0
    while len(cases) < count:
        item = scenario.item(seed, "dev", index, TURNS)
        index += 1
        if item.turns[-1].texts:  # a room event is no viewer's request
            cases.append((harness, item))
    made = []
    for (_, item), trace in zip(cases, play_expert(scenario, cases), strict=True):
        found, last, backend = turns(trace), item.turns[-1], scenario.backend(item)
        for number, turn in enumerate(item.turns):
            backend.observe(turn)
            for call in turn.gold.calls if number < len(item.turns) - 1 else ():
                backend.call("", ToolRequest("", call.tool, call.arguments))
        history = tuple((" ".join(one.texts), one.reply) for one in found[:-1] if one.texts and one.reply)
        request = AgentRequest(
            id=item.id,
            source="simulated",
            room=dict(backend.room.view()),
            state=backend.room.model_dump(mode="json"),
            history=history,
            texts=last.texts,
            viewers=last.viewers,
        )
        made.append(request)
    return RequestSet(seed=seed, warm_up=_warm_up(len(made)), requests=tuple(made))


def recorded(traces: Iterable[Trace], seed: int, count: int = WARM_UP + MEASURED) -> RequestSet:
    """D_perf from recorded traces: turns drawn by seed among those of viewers. SettingsError when there are too few."""
    found = [request for trace in traces for request in _of_trace(trace)]
    found.sort(key=lambda one: one.id)
    if len(found) < count:
        raise SettingsError(
            f"{len(found)} viewer turns in the traces, {count} are asked for", cure="record more, or --count"
        )
    drawn = random.Random(f"dperf/{seed}").sample(found, count)
    return RequestSet(seed=seed, warm_up=_warm_up(count), requests=tuple(drawn))


def read_traces(paths: Sequence[Path]) -> Iterable[Trace]:
    """Traces of JSON Lines files, or of folders of them."""
    for path in paths:
        for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                try:
                    yield Trace.model_validate_json(line)
                except ValidationError:
                    raise SettingsError(
                        "no trace", place=f"{file}:{number}", cure="give the gateway's traces"
                    ) from None


def _of_trace(trace: Trace) -> Iterable[AgentRequest]:
    """Every viewer turn of a trace that ended; the turns before it are its history."""
    history: list[tuple[str, str]] = []
    results = {
        str(entry.data.get("call_id")): str(entry.data.get("content", ""))
        for entry in trace.entries
        if entry.kind == "event" and entry.type == "ToolResult"
    }
    calls: dict[int, list[Answered]] = {}
    for entry in trace.entries:
        if entry.kind == "action" and entry.type == "CallTools":
            for call in entry.data.get("calls", ()):
                answered = results.get(str(call.get("call_id")))
                if answered is not None:
                    one = Answered(tool=str(call["name"]), arguments=dict(call["arguments"]), content=answered)
                    calls.setdefault(entry.turn, []).append(one)
    for turn in turns(trace):
        if turn.event == "ViewerMessage" and turn.texts and turn.outcome:
            yield AgentRequest(
                id=f"{trace.session}/{turn.index}",
                source="recorded",
                room=dict(trace.room),
                history=tuple(history),
                texts=turn.texts,
                answers=tuple(calls.get(turn.index, ())),
            )
        if turn.texts and turn.reply:
            history.append((" ".join(turn.texts), turn.reply))


def _warm_up(count: int) -> int:
    return min(WARM_UP, count // 11)


def _room(state: Mapping[str, Any]) -> Any:
    from hat_scenarios.live_commerce.room import Room

    return Room.model_validate(state)


def _key(arguments: Mapping[str, Any]) -> str:
    return json.dumps(dict(arguments), sort_keys=True, ensure_ascii=False)
