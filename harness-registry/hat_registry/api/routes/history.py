"""`/ledger` and `/mutes`: what happened, what ran when, and silence."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection

from hat_registry import as_of as as_of_row
from hat_registry import clock, ledger, mutes, pointers
from hat_registry.accounts import Actor
from hat_registry.api.access import CurrentActor, CurrentRegistry
from hat_registry.errors import InvalidError
from hat_registry.registry import plain

router = APIRouter(tags=["ledger"])
CHUNK = 500
"""Rows of an export that are sent at a time."""
MOST = 2**53


@router.get("/ledger")
async def list_rows(
    actor: CurrentActor,
    registry: CurrentRegistry,
    kind: str | None = None,
    subject: str | None = None,
    account: str | None = None,
    until: str | None = None,
    after: Annotated[int, Query(ge=0, le=MOST)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    newest_first: bool = True,
    upto: Annotated[int | None, Query(ge=0, le=MOST)] = None,
) -> dict[str, Any]:
    """Rows that one may read, filtered; `after` continues a listing, `until` is ISO 8601, `upto` a row."""
    actor.require_some("read")
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
            upto=upto,
            newest_first=newest_first,
            only=actor.names("read"),
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
            rows = ledger.export(tx, actor.workspace)
            while chunk := list(islice(rows, CHUNK)):  # each piece is a switch of threads
                yield "\n".join(chunk) + "\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


@router.get("/ledger/as-of")
async def as_of(
    kind: pointers.Kind, name: str, pointer: str, at: str, actor: CurrentActor, registry: CurrentRegistry
) -> dict[str, Any]:
    """The digest that a pointer had at a time; null before its first move."""
    actor.require("read", name)
    moment = clock.text(_moment(at))
    with registry.database.read() as tx:
        digest = pointers.as_of(tx, actor.workspace, kind, name, pointer, moment)
    return {"kind": kind, "name": name, "pointer": pointer, "at": moment, "digest": digest}


@router.get("/ledger/state")
async def state(
    actor: CurrentActor,
    registry: CurrentRegistry,
    upto: Annotated[int | None, Query(ge=0, le=MOST)] = None,
    at: str | None = None,
) -> dict[str, Any]:
    """Where every pointer stood and what was muted after a row or at a time; now without either."""
    actor.require_some("read")
    moment = clock.text(_moment(at)) if at else None
    with registry.database.read() as tx:
        return state_of(tx, actor, upto, moment)


def state_of(tx: Connection, actor: Actor, upto: int | None, moment: str | None = None) -> dict[str, Any]:
    """The body of `/ledger/state` on a connection that the caller has."""
    found = as_of_row.bounds(tx, actor.workspace)
    row = min(found["last"], upto) if upto is not None else found["last"]
    if moment is not None:
        row = min(row, ledger.last_by(tx, actor.workspace, moment))
    return {
        **found,
        "upto": row,
        "pointers": as_of_row.pointers(tx, actor.workspace, row, only=actor.names("read")),
        "muted": as_of_row.muted(tx, actor.workspace, row),
    }


@router.get("/mutes")
async def list_mutes(actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Rooms that are silenced now; `*` means all."""
    actor.require_some("read")
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
