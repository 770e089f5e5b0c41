"""A replay gives the same events again, in order and within bounds; it reads, and never does anything."""

from __future__ import annotations

import asyncio
import json

import pytest

from hat_harness import events as ev
from hat_harness.drive import run_batch
from hat_harness.events import CallModel, Message, ModelOutput, ToolCall, ToolRequest, ToolResult
from hat_harness.session import Session
from hat_harness.trace import Trace, turns
from hat_serving.errors import RequestError
from hat_serving.gateway.replays import played, script_of
from tests.serving.conftest import shop


def answer(call: CallModel, item: str) -> ModelOutput:
    """Looks the item up or buys it as the viewer says, then tells what came back."""
    last: Message = call.messages[-1]
    if last.role != "user":
        return ModelOutput(call.call_id, f"{last.content} bye")
    name = "buy" if "buy" in last.content else "get_item"
    return ModelOutput(call.call_id, "", tool_calls=(ToolCall(f"t{len(call.messages)}", name, {"item": item}),))


class Recorded:
    """The model as the trace was made."""

    def generate(self, calls: list[tuple[str, CallModel]]) -> list[ModelOutput]:
        return [answer(call, "mug") for _, call in calls]


class Again:
    """Another model: asks for something else than the recorded one."""

    def __init__(self, item: str, *, silent: bool = False) -> None:
        self.item = item
        self.silent = silent

    async def generate(self, _session: str, call: CallModel) -> ModelOutput:
        if self.silent:
            await asyncio.Event().wait()
        return answer(call, self.item)


class Tools:
    """Notes what it is asked to do."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []

    def call(self, _session: str, request: ToolRequest) -> ToolResult:
        self.made.append((request.name, json.dumps(dict(request.arguments))))
        return ToolResult(request.call_id, f"{request.name} done")


class Live:
    """The same for the async driver."""

    def __init__(self) -> None:
        self.tools = Tools()

    async def call(self, session: str, request: ToolRequest) -> ToolResult:
        return self.tools.call(session, request)


def recorded(*texts: str) -> Trace:
    session = Session(shop(), session_id="s", room={"a": 1})
    said: list[ev.Event] = [ev.RoomEvent("state", state={"a": 2}), *(ev.ViewerMessage((text,)) for text in texts)]
    run_batch([(session, said)], Recorded(), Tools())  # type: ignore[arg-type]  # lists are sequences to it
    return session.trace


def test_the_last_turns_are_played_with_what_came_before_them() -> None:
    trace = recorded(*(f"look {number}" for number in range(12)))
    script = script_of(trace)
    assert (script.first, len(script.history), script.harness) == (3, 2, trace.harness)
    assert script.events[0] == ev.RoomEvent("state", state={"a": 2}), "the room is as it was"
    assert [one.texts[0] for one in script.events[1:]] == [f"look {number}" for number in range(2, 12)]  # type: ignore[union-attr]  # all viewer messages
    assert script_of(trace, upto=4).first == 1
    with pytest.raises(RequestError, match="no turn"):
        script_of(recorded())


def test_reads_may_be_made_and_effects_never_are() -> None:
    trace, live = recorded("look", "buy"), Live()
    again, whole = asyncio.run(played(trace, script_of(trace), shop(), Again("mug"), live, 20))
    assert whole
    assert [one.reply for one in turns(again)] == ["get_item done bye", "buy done bye"]
    assert live.tools.made == [], "both calls were recorded"
    again, _ = asyncio.run(played(trace, script_of(trace), shop(), Again("cup"), live, 20))
    assert live.tools.made == [("get_item", '{"item": "cup"}')], "a read is made, another purchase is not"
    assert turns(again)[1].calls[0].failure == "unavailable"


def test_a_replay_ends_when_its_time_is_over() -> None:
    trace = recorded("look", "look")
    again, whole = asyncio.run(played(trace, script_of(trace), shop(), Again("mug", silent=True), Live(), 0.05))
    assert not whole
    assert [(one.outcome, one.reason.startswith("cancelled")) for one in turns(again)] == [("silence", True)]
