"""Shadow arms: a copy of a turn is answered by another arm, and nobody sees what it says.

Always holds: the copy runs after the viewer has been answered, in a bounded number of tasks; when those are busy it is dropped
and counted; a call with effects gets the recorded result or none at all, and is never made; a read that was not recorded is
made. Not here: which turns are copied (experiment.assignment), judging the two replies.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hat_harness import events as ev
from hat_harness.drive import run_async
from hat_harness.events import ToolRequest, ToolResult
from hat_harness.ports import AsyncModel, AsyncToolBackend
from hat_harness.session import Session
from hat_harness.tape import RecordedTools
from hat_harness.trace import Trace, TurnSummary, turns
from hat_serving.gateway.live import LiveArm

AT_ONCE = 8
"""Copies in progress; more are dropped."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One turn to be answered again. `trace` is the whole conversation with the real turn as its last."""

    arm: LiveArm
    event: ev.ViewerMessage | ev.RoomEvent
    trace: Trace
    room: Mapping[str, Any]
    history: tuple[tuple[str, str], ...] = ()
    """Exchanges from before the conversation began here."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a shadow would have said, beside what was said."""

    arm: LiveArm
    turn: TurnSummary
    seconds: float
    trace: Trace


class SafeTools:
    """Recorded results first; reads may go on, effects never do."""

    def __init__(self, recorded: RecordedTools, live: AsyncToolBackend) -> None:
        self._recorded = recorded
        self._live = live

    async def call(self, session_id: str, request: ToolRequest) -> ToolResult:
        """The recorded result, or a read."""
        result = self._recorded.call(session_id, request)
        if result.failure != "unavailable" or request.idempotency_key:
            return result
        return await self._live.call(session_id, request)


class Shadows:
    """Runs copies beside the turns of one gateway."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self.dropped = 0
        self._at_once = at_once
        self._tasks: set[asyncio.Task[None]] = set()

    def offer(self, copy: Copy, model: AsyncModel, tools: AsyncToolBackend, told: Any) -> bool:
        """Start a copy; `told(Shown)` hears of its end. False, and counted, when too many run."""
        if len(self._tasks) >= self._at_once:
            self.dropped += 1
            return False
        task = asyncio.ensure_future(self._run(copy, model, tools, told))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def close(self) -> None:
        """Give up what still runs."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def settled(self) -> None:
        """Wait for what runs."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, copy: Copy, model: AsyncModel, tools: AsyncToolBackend, told: Any) -> None:
        began = time.monotonic()
        summaries = turns(copy.trace)
        earlier = tuple(("\n".join(one.texts), one.reply) for one in summaries[:-1] if one.texts and one.reply)
        last = summaries[-1]
        recorded = copy.trace.model_copy(update={"entries": tuple(_of_turn(copy.trace, last.index))})
        session = Session(
            copy.arm.harness,
            session_id=f"{copy.trace.session}.{copy.arm.name}",
            room=dict(copy.room),
            hooks=copy.arm.hooks,
            now=last.started,
            history=(*copy.history, *earlier),
        )
        await run_async(session, [copy.event], model, SafeTools(RecordedTools(recorded), tools))
        found = turns(session.trace)
        if found:
            told(Shown(copy.arm, found[-1], time.monotonic() - began, session.trace))


def _of_turn(trace: Trace, index: int) -> list[Any]:
    return [entry for entry in trace.entries if entry.turn == index]
