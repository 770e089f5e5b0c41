"""What stood at an earlier row of the ledger: pointers and muted rooms, from the rows themselves.

Always holds: the state at the newest row is the state of the tables (a test compares them). It costs pointers, not rows:
each is looked up through the index on subjects. Not here: one pointer at a time (pointers.as_of), the rows (ledger).
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, func, select

from hat_registry.store.tables import ledger, pointer

LIMIT = 500
"""Pointers that are told: those that moved last."""


def bounds(tx: Connection, workspace: str) -> dict[str, Any]:
    """First and last row with their times; zeros and "" for an empty ledger."""
    here = select(ledger.c.seq, ledger.c.at).where(ledger.c.workspace == workspace)
    first = tx.execute(here.order_by(ledger.c.seq).limit(1)).first()
    last = tx.execute(here.order_by(ledger.c.seq.desc()).limit(1)).first()
    told = [(row.seq, row.at) if row else (0, "") for row in (first, last)]
    return {"first": told[0][0], "first_at": told[0][1], "last": told[1][0], "last_at": told[1][1]}


def pointers(tx: Connection, workspace: str, upto: int, *, only: frozenset[str] | None = None) -> list[dict[str, Any]]:
    """Where each pointer stood after row `upto`, most recently moved first; `only` are the names that may be seen."""
    known = select(pointer.c.kind, pointer.c.name, pointer.c.pointer).where(pointer.c.workspace == workspace)
    if only is not None:
        known = known.where(pointer.c.name.in_(sorted(only)))
    named = known.order_by(pointer.c.moved_at.desc()).limit(LIMIT).subquery()
    subject = named.c.kind + ":" + named.c.name + "@" + named.c.pointer
    moves = (ledger.c.workspace == workspace, ledger.c.kind.in_(("move", "rollback")), ledger.c.seq <= upto)
    newest = select(func.max(ledger.c.seq)).where(*moves, ledger.c.subject == subject).correlate(named)
    found = tx.execute(
        select(named, ledger.c.seq, ledger.c.at, ledger.c.actor, ledger.c.body)
        .select_from(named)
        .join(ledger, (ledger.c.workspace == workspace) & (ledger.c.seq == newest.scalar_subquery()))
        .order_by(ledger.c.seq.desc())
    )
    made = []
    for row in found:
        data = json.loads(row.body)["data"]
        stood = {"kind": row.kind, "name": row.name, "pointer": row.pointer, "digest": data["to"]}
        moved = {"moved_by": row.actor, "moved_at": row.at, "seq": row.seq}
        made.append({**stood, "urgent": bool(data.get("urgent")), **moved})
    return made


def muted(tx: Connection, workspace: str, upto: int) -> list[str]:
    """Rooms that were silenced after row `upto`."""
    here = (ledger.c.workspace == workspace, ledger.c.kind.in_(("mute", "unmute")), ledger.c.seq <= upto)
    newest = select(func.max(ledger.c.seq).label("seq")).where(*here).group_by(ledger.c.subject).subquery()
    query = (
        select(ledger.c.kind, ledger.c.subject)
        .join(newest, newest.c.seq == ledger.c.seq)
        .where(ledger.c.workspace == workspace)
    )
    return sorted(row.subject.partition(":")[2] for row in tx.execute(query) if row.kind == "mute")
