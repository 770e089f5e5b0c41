"""A recorded conversation played again: its viewers' turns, through a fresh session of a chosen harness, by an arm's engine.

Always holds: a replay is stored nowhere, counts in no metric and in no comparison, and no viewer sees it; a call with effects
gets its recorded result or none and is never made; a read that was not recorded is made; a replay is bounded in turns, time
and number. Not here: who may replay (hat_console), showing both answers side by side (hat_console).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hat_harness import events as ev
from hat_harness.codec import decode
from hat_harness.drive import run_async
from hat_harness.hooks import compile_hooks
from hat_harness.ports import AsyncModel, AsyncToolBackend
from hat_harness.session import Session
from hat_harness.spec import Harness
from hat_harness.tape import RecordedTools
from hat_harness.trace import Trace, turns
from hat_serving.errors import OverloadedError, RequestError
from hat_serving.gateway.admin import Admin, read
from hat_serving.gateway.live import Source
from hat_serving.gateway.shadow import SafeTools
from hat_serving.gateway.turns import SessionClock
from hat_serving.gateway.upstream import Engines

Handler = Callable[[Request], Awaitable[Response]]
MOST_TURNS = 10
"""Turns that one replay plays, the last ones; what came before them is given as history."""
LIMIT_S = 25.0
"""Of one replay; what was played until then is told."""
AT_ONCE = 2
MAX_BODY = 16 * 1024 * 1024


class ReplayBody(BaseModel):
    """`POST /admin/v1/replays`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    trace: Trace
    harness: str = Field(default="", max_length=256)
    """`NAME@POINTER` or `NAME@sha256:…`; "" is the version that the last played turn ran under."""
    deployment: str = Field(default="", max_length=128)
    arm: str = Field(default="", max_length=64)
    """Arm of the deployment whose engine answers; without a deployment it is the primary engine."""
    upto: int = Field(default=0, ge=0)
    """The last turn that is played; 0: the newest."""


@dataclass(frozen=True, slots=True)
class Script:
    """What a replay says: events in order, exchanges before them, and the number of the first turn that is played."""

    events: tuple[ev.Event, ...]
    history: tuple[tuple[str, str], ...]
    first: int
    harness: str
    """Digest that the last of these turns ran under."""


class Replays:
    """The route, over one gateway's source, engines and tools."""

    def __init__(
        self, admin: Admin, source: Source, engines: Engines, tools: AsyncToolBackend, *, limit_s: float = LIMIT_S
    ) -> None:
        self._admin = admin
        self._source = source
        self._engines = engines
        self._tools = tools
        self._limit_s = limit_s
        self._open = 0

    def routes(self, translated: Callable[[Handler], Handler]) -> list[Route]:
        """The route; `translated` turns errors into answers."""
        return [Route("/admin/v1/replays", translated(self.play), methods=["POST"])]

    async def play(self, request: Request) -> Response:
        """`POST /admin/v1/replays`: the new trace, beside what it was played with."""
        self._admin.actor(request)
        body = await read(request, ReplayBody, MAX_BODY)
        script = script_of(body.trace, body.upto)
        name = body.trace.harness_name
        reference, harness = await asyncio.to_thread(
            self._source.resolve, body.harness or f"{name}@{script.harness}", name
        )
        model = await asyncio.to_thread(self._model, body)
        if self._open >= AT_ONCE:
            raise OverloadedError("other replays are running", cure="try again in half a minute")
        self._open += 1
        began = time.monotonic()
        try:
            trace, whole = await played(body.trace, script, harness, model, self._tools, self._limit_s)
        finally:
            self._open -= 1
        told = {
            "harness": reference.partition("@")[2],
            "first": script.first,
            "whole": whole,
            "seconds": round(time.monotonic() - began, 3),
            "trace": trace.model_dump(mode="json"),
        }
        return Response(orjson.dumps(told), headers={"Cache-Control": "no-store"}, media_type="application/json")

    def _model(self, body: ReplayBody) -> AsyncModel:
        """The engine of the asked arm, else the primary."""
        if not body.deployment:
            return self._engines.model()
        deployment = self._source.deployment(body.deployment)
        arm = deployment.arms.get(body.arm) if body.arm else deployment.control
        if arm is None:
            known = ", ".join(deployment.arms)
            raise RequestError(f"{body.deployment} has no arm {body.arm!r}", place="arm", cure=f"one of: {known}")
        return self._engines.model({"x-hatstack-arm": arm.name}, arm.engine, deployment.control.engine)


def script_of(trace: Trace, upto: int = 0, most: int = MOST_TURNS) -> Script:
    """The last `most` turns up to turn `upto` as events. RequestError when there are none.

    The n-th event that opens a turn opens turn n, also when it waited for the turn before it to end. Room states before
    the first of them are kept, since they hold for all that follows.
    """
    found = turns(trace)
    wanted = [one for one in found if not upto or one.index <= upto][-most:]
    if not wanted:
        raise RequestError("no turn of this trace can be played", place="trace", cure="choose one with turns")
    first, last = wanted[0].index, wanted[-1].index
    events: list[ev.Event] = []
    number, harness = 0, trace.harness
    for entry in trace.entries:
        if entry.kind == "note" and entry.type == "harness" and entry.turn < last:
            harness = entry.data["digest"]
        if entry.kind != "event" or entry.type not in ("ViewerMessage", "RoomEvent"):
            continue
        event = decode(entry.type, entry.data)
        opens = not (isinstance(event, ev.RoomEvent) and event.kind == "state")
        number += opens
        if number > last:
            break
        if not opens or number >= first:
            events.append(event)
    earlier = tuple(("\n".join(one.texts), one.reply) for one in found if one.index < first and one.texts and one.reply)
    return Script(tuple(events), earlier, first, harness)


async def played(
    trace: Trace, script: Script, harness: Harness, model: AsyncModel, tools: AsyncToolBackend, limit_s: float
) -> tuple[Trace, bool]:
    """(the new trace, whether every event was played within `limit_s`)."""
    session = Session(
        harness,
        session_id=f"{trace.session}.replay",
        room=dict(trace.room),
        hooks=compile_hooks(harness),
        now=time.time(),
        history=script.history,
    )
    safe = SafeTools(RecordedTools(trace), tools)
    try:
        async with asyncio.timeout(limit_s):
            await run_async(session, script.events, model, safe, SessionClock(session.now))
    except TimeoutError:
        return session.trace, False
    return session.trace, True
