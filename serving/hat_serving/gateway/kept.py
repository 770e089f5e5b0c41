"""Conversations as the gateway keeps them, for people who look into them: the newest ones, and one as a whole trace.

Always holds: no route answers without an admin token; only what the stores still have is found, so that whatever retention
or an erasure took is gone here too; nothing but pseudonyms is told of viewers. Not here: who of a console's accounts may look
(hat_console), removing (retention, erase).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hat_harness.errors import PlatformError
from hat_harness.spec import Harness
from hat_harness.trace import Trace
from hat_serving.errors import RequestError
from hat_serving.experiment import records
from hat_serving.gateway import brought
from hat_serving.gateway.admin import Admin
from hat_serving.gateway.conversations import Conversations, Stored, restore

Handler = Callable[[Request], Awaitable[Response]]
MOST = 200
"""Conversations of one listing."""


class Kept:
    """The routes over one gateway's stores. `harness` gives a harness by digest; `traces` is the folder of trace files."""

    def __init__(
        self, conversations: Conversations, harness: Callable[[str], Harness], traces: Path, admin: Admin
    ) -> None:
        self._store = conversations
        self._harness = harness
        self._traces = traces
        self._admin = admin

    def routes(self, translated: Callable[[Handler], Handler]) -> list[Route]:
        """The routes; `translated` turns errors into answers."""
        table: list[tuple[str, Handler]] = [
            ("/admin/v1/conversations", self.listing),
            ("/admin/v1/conversations/{identity:path}", self.show),
        ]
        return [Route(path, translated(handler), methods=["GET"]) for path, handler in table]

    async def listing(self, request: Request) -> Response:
        """`GET /admin/v1/conversations?arm=&release=&harness=&before=&limit=`: the newest first."""
        self._admin.actor(request)
        asked = request.query_params
        limit = asked.get("limit", "50")
        if not limit.isdecimal() or not 1 <= int(limit) <= MOST:
            raise RequestError(f"1 to {MOST}", place="limit")
        only = {name: asked[name] for name in ("arm", "release", "harness") if asked.get(name)}
        found = await asyncio.to_thread(self._store.newest, int(limit), asked.get("before", ""), only)
        return _json({"workspace": self._store.workspace, "items": found})

    async def show(self, request: Request) -> Response:
        """`GET /admin/v1/conversations/{identity}`: the whole trace, with what is known of each turn's arm."""
        self._admin.actor(request)
        found = await asyncio.to_thread(self.whole, request.path_params["identity"])
        if found is None:
            raise RequestError(
                "no such conversation is kept", place="conversation", cure="it was erased, or is past its day"
            )
        return _json(found)

    def whole(self, identity: str) -> dict[str, Any] | None:
        """A conversation from the store, else from trace files, which are kept longer. Blocking."""
        head = self._store.find(identity)
        trace, source = (self._restored(head), "store") if head is not None else (None, "")
        if trace is None:
            trace, source = from_files(self._traces, identity), "files"
        if trace is None:
            return None
        with self._store.database.read() as tx:
            turns = records.of_conversation(tx, self._store.workspace, identity)
        known = head or Stored(identity, "", "", "", trace.harness, trace.room, 0)
        return {
            "id": identity,
            "workspace": self._store.workspace,
            "source": source,
            "unit": known.unit,
            "arm": known.arm,
            "release": known.release,
            "harness": known.harness,
            "updated_at": known.updated_at,
            "served": turns,
            "trace": trace.model_dump(mode="json"),
        }

    def _restored(self, head: Stored) -> Trace | None:
        """The session's trace by replaying its turns; None where a harness of it is out of reach."""
        history = self._store.events(head.id)
        named = (self._store.database, self._store.workspace, head.id, [digest for digest, _ in history])
        try:
            harnesses, _ = brought.played(*named, self._harness)
        except PlatformError:
            return None
        return restore(head, history, harnesses).trace


def from_files(folder: Path, session: str) -> Trace | None:
    """One session from the trace files, where each line is one turn; None when no file has it."""
    found = list(_lines(folder, session))
    if not found:
        return None
    segments = {segment.index: segment for one in found for segment in one.segments}
    return found[-1].model_copy(
        update={
            "started": found[0].started,
            "room": found[0].room,
            "entries": tuple(entry for one in found for entry in one.entries),
            "segments": tuple(segments[index] for index in sorted(segments)),
        }
    )


def _lines(folder: Path, session: str) -> Iterator[Trace]:
    """The session's lines, oldest first. A line is only parsed where it names the session."""
    named = orjson.dumps({"session": session})[1:-1]
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                if named in line[: len(named) + 256]:
                    try:
                        trace = Trace.model_validate_json(line)
                    except ValueError:
                        continue  # cut off by a full disk
                    if trace.session == session:
                        yield trace


def _json(body: Any) -> Response:
    return Response(orjson.dumps(body), headers={"Cache-Control": "no-store"}, media_type="application/json")
