"""`/changes` and `/watch`: what moved, for programs that must know at once. The same events, polled or streamed.

Always holds: a stream ends after `lifetime_s`, so that credentials are checked anew, and at once when the server stops;
a reader that goes away costs nothing. Not here: the reader (hat_registry.client.watch).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from hat_registry import changes
from hat_registry.accounts import Actor
from hat_registry.api.access import CurrentActor, CurrentRegistry
from hat_registry.errors import LimitedError, StoreError
from hat_registry.store.database import Database

router = APIRouter(tags=["watch"])
WATCHERS = 2000


@dataclass
class Hub:
    """Wakes streams when the ledger grows: one look at the database for all of them, only while there are any."""

    database: Database
    every_s: float = 0.25
    lifetime_s: float = 120.0
    """How long a stream lives; the reader comes back with its last event id."""
    ping_s: float = 15.0
    watchers: int = 0
    closing: bool = False
    _grown: asyncio.Condition = field(default_factory=asyncio.Condition)
    _heads: dict[str, int] = field(default_factory=dict)
    _poller: asyncio.Task[None] | None = None

    async def wait(self, workspace: str, after: int, timeout_s: float) -> None:
        """Until `workspace` has a row after `after`, or the time is over, or the server stops."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._grown:
                await self._grown.wait_for(lambda: self.closing or self._heads.get(workspace, 0) > after)

    @contextlib.asynccontextmanager
    async def joined(self, workspace: str) -> AsyncIterator[None]:
        """Count a stream; the first one starts the poller."""
        self.watchers += 1
        self._heads.setdefault(workspace, 0)
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())
        try:
            yield
        finally:
            self.watchers -= 1

    async def close(self) -> None:
        """End all streams."""
        self.closing = True
        async with self._grown:
            self._grown.notify_all()
        if self._poller is not None:
            self._poller.cancel()

    async def _poll(self) -> None:
        while self.watchers:
            # Streams wait until the database is back; their readers keep what they have.
            with contextlib.suppress(StoreError):
                heads = await run_in_threadpool(self._look, tuple(self._heads))
                if heads != self._heads:
                    self._heads = heads
                    async with self._grown:
                        self._grown.notify_all()
            await asyncio.sleep(self.every_s)

    def _look(self, workspaces: tuple[str, ...]) -> dict[str, int]:
        with self.database.read() as tx:
            return {workspace: changes.head(tx, workspace) for workspace in workspaces}


@router.get("/changes")
async def list_changes(
    actor: CurrentActor,
    registry: CurrentRegistry,
    after: Annotated[
        int | None, Query(ge=0, le=2**53, description="continue after this ledger row; without it: now")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=changes.LIMIT)] = changes.LIMIT,
) -> dict[str, Any]:
    """Moved pointers and muted rooms after a ledger row. `next` continues; `reset` means: read everything anew."""
    actor.require_some("read")
    return _since(registry.database, actor, after, limit)


@router.get("/watch", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def watch(
    request: Request,
    actor: CurrentActor,
    registry: CurrentRegistry,
    after: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> StreamingResponse:
    """The same as server-sent events: `pointer`, `mute`, `reset`; `id` is the ledger row; comments keep the line open."""
    actor.require_some("read")
    hub: Hub = request.app.state.hub
    if hub.watchers >= WATCHERS or hub.closing:
        raise LimitedError("too many streams are open", cure="poll /api/v1/changes instead")
    if last_event_id is not None and last_event_id.isdigit():
        after = int(last_event_id)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    stream = _stream(hub, registry.database, actor, after)
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


async def _stream(hub: Hub, database: Database, actor: Actor, after: int | None) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    end = loop.time() + hub.lifetime_s
    cursor = after
    async with hub.joined(actor.workspace):
        while True:
            try:
                found = await run_in_threadpool(_since, database, actor, cursor, changes.LIMIT)
            except StoreError:
                return  # the reader polls, and keeps what it has
            if cursor is None:
                yield f"retry: 2000\nid: {found['next']}\nevent: start\ndata: {json.dumps({'seq': found['next']})}\n\n"
            if found["reset"]:
                yield f"id: {found['next']}\nevent: reset\ndata: {{}}\n\n"
            for one in found["items"]:
                yield f"id: {one['seq']}\nevent: {one['event']}\ndata: {json.dumps(one)}\n\n"
            if cursor is not None and not found["items"]:
                yield f": {found['next']}\n\n"
            cursor = found["next"]
            left = end - loop.time()
            if left <= 0 or hub.closing:
                return
            await hub.wait(actor.workspace, cursor, min(hub.ping_s, left))


def _since(database: Database, actor: Actor, after: int | None, limit: int) -> dict[str, Any]:
    with database.read() as tx:
        if after is None:
            return {"items": [], "next": changes.head(tx, actor.workspace), "reset": False}
        return changes.since(tx, actor.workspace, after, lambda name: actor.may("read", name), limit=limit)
