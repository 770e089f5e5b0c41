"""`/ledger` and `/mutes`: what happened, what ran when, and silence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from hat_registry import clock, ledger, mutes, pointers
from hat_registry.api.access import CurrentActor, CurrentRegistry
from hat_registry.errors import InvalidError
from hat_registry.registry import plain

router = APIRouter(tags=["ledger"])


@router.get("/ledger")
async def list_rows(
    actor: CurrentActor,
    registry: CurrentRegistry,
    kind: str | None = None,
    subject: str | None = None,
    account: str | None = None,
    until: str | None = None,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    newest_first: bool = True,
) -> dict[str, Any]:
    """Rows, filtered; `after` continues a listing, `until` is ISO 8601."""
    actor.require("read")
    moment = clock.text(_moment(until)) if until else None
    with registry.database.read() as tx:
        found = ledger.rows(
            tx,
            actor.workspace,
            kind=kind,
            subject=subject,
            actor=account,
            until=moment,
            after=after,
            limit=limit,
            newest_first=newest_first,
        )
    return {"items": [plain(row) for row in found], "next": found[-1].seq if len(found) == limit else None}


@router.get("/ledger/verify")
def verify(actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Check the whole chain; 409 names the first bad row."""
    actor.require("read")
    with registry.database.snapshot() as tx:
        return plain(ledger.verify(tx, actor.workspace))


@router.get("/ledger/export", response_class=StreamingResponse)
def export(actor: CurrentActor, registry: CurrentRegistry) -> StreamingResponse:
    """All rows as JSON lines; checkable without the server."""
    actor.require("read")

    def lines() -> Iterator[str]:
        with registry.database.snapshot() as tx:
            for line in ledger.export(tx, actor.workspace):
                yield line + "\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


@router.get("/ledger/as-of")
async def as_of(
    kind: pointers.Kind, name: str, pointer: str, at: str, actor: CurrentActor, registry: CurrentRegistry
) -> dict[str, Any]:
    """The digest that a pointer had at a time; null before its first move."""
    actor.require("read")
    moment = clock.text(_moment(at))
    with registry.database.read() as tx:
        digest = pointers.as_of(tx, actor.workspace, kind, name, pointer, moment)
    return {"kind": kind, "name": name, "pointer": pointer, "at": moment, "digest": digest}


@router.get("/mutes")
async def list_mutes(actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Rooms that are silenced now; `*` means all."""
    actor.require("read")
    with registry.database.read() as tx:
        return {"rooms": sorted(mutes.rooms(tx, actor.workspace))}


@router.put("/mutes/{room}")
def mute(room: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Silence a room, or all with `*`."""
    with registry.database.write() as tx:
        return {"room": room, "muted": True, "changed": mutes.mute(tx, actor, room)}


@router.delete("/mutes/{room}")
def unmute(room: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Let a room speak again."""
    with registry.database.write() as tx:
        return {"room": room, "muted": False, "changed": mutes.unmute(tx, actor, room)}


def _moment(value: str) -> Any:
    try:
        return clock.parse(value)
    except (ValueError, OverflowError):
        raise InvalidError(f"{value[:40]!r} is not a time", cure="write ISO 8601, e.g. 2026-01-31T14:05:00Z") from None
