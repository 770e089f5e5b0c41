"""What a pointer can be taken back to: its past positions, what each way would change, and why some are no way.

Always holds: what is told as a way is what `pointers.rollback` would do; a position that it would refuse says why. Not
here: the rollback itself (pointers), how long engines take (the serving profile knows).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, select

from hat_registry.pointers import Position, of_name, subject
from hat_registry.store.tables import harness_version, release
from hat_registry.store.tables import ledger as rows

LIMIT = 20
"""Positions that are told: the newest, each digest once."""
PARTS = ("model", "harness", "profile")
Cost = Literal["", "prompt", "engine"]
"""`prompt`: running conversations read another prompt at their next message, within seconds. `engine`: engines also load
another model or start with other settings, unless they still run."""


@dataclass(frozen=True, slots=True)
class Way:
    """One past position."""

    digest: str
    seq: int
    """Ledger row of the newest move to it."""
    at: str
    actor: str
    changes: tuple[str, ...]
    """Parts of the release that differ from where the pointer stands now."""
    cost: Cost
    harness: str
    """Digest of the harness that would be served; "" where it is not known."""
    refused: str
    """`here` or `gone`; "" for a way that can be gone."""


def of(tx: Connection, workspace: str, now: Position, limit: int = LIMIT) -> list[Way]:
    """Past positions of a pointer, the newest first, the present one among them."""
    query = (
        select(rows.c.seq, rows.c.at, rows.c.actor, rows.c.body)
        .where(
            rows.c.workspace == workspace,
            rows.c.subject == subject(now.kind, now.name, now.pointer),
            rows.c.kind.in_(("move", "rollback")),
        )
        .order_by(rows.c.seq.desc())
        .limit(50 * limit)
    )
    newest: dict[str, Any] = {}
    for row in tx.execute(query):
        newest.setdefault(json.loads(row.body)["data"]["to"], row)
        if len(newest) == limit:
            break
    present = _parts(tx, workspace, now.kind, now.name, now.digest)
    return [_way(tx, workspace, now, digest, row, present) for digest, row in newest.items()]


def stood(
    tx: Connection, workspace: str, kind: str, name: str, digest: str, limit: int = LIMIT
) -> list[dict[str, Any]]:
    """Where and when pointers of a name stood at a digest, the newest first; `until` None: it stands there now."""
    found: list[dict[str, Any]] = []
    for one in of_name(tx, workspace, kind, name):
        query = (
            select(rows.c.seq, rows.c.at, rows.c.actor, rows.c.body)
            .where(
                rows.c.workspace == workspace,
                rows.c.subject == subject(kind, name, one.pointer),
                rows.c.kind.in_(("move", "rollback")),
            )
            .order_by(rows.c.seq.desc())
            .limit(50 * limit)
        )
        until: str | None = None
        for row in tx.execute(query):
            if json.loads(row.body)["data"]["to"] == digest:
                told = {"pointer": one.pointer, "at": row.at, "until": until, "actor": row.actor, "seq": row.seq}
                found.append(told)
            until = row.at
    return sorted(found, key=lambda row: -row["seq"])[:limit]


def _way(tx: Connection, workspace: str, now: Position, digest: str, row: Any, present: dict[str, str] | None) -> Way:
    parts = _parts(tx, workspace, now.kind, now.name, digest)
    known = parts or {}
    changes = tuple(part for part in PARTS if known.get(part) != (present or {}).get(part)) if parts else ()
    refused = "here" if digest == now.digest else "gone" if parts is None else ""
    engine = bool({"model", "profile"} & set(changes))
    cost: Cost = "" if refused else "engine" if engine else "prompt"
    return Way(digest, row.seq, row.at, row.actor, changes, cost, known.get("harness", ""), refused)


def _parts(tx: Connection, workspace: str, kind: str, name: str, digest: str) -> dict[str, str] | None:
    """Part → digest of what a pointer points at; None where it is not stored any more."""
    if kind == "release":
        query = select(release.c.content).where(
            release.c.workspace == workspace, release.c.name == name, release.c.digest == digest
        )
        content = tx.execute(query).scalar()
        return {part: json.loads(content)[part] for part in PARTS} if content else None
    if kind == "harness":
        held = select(harness_version.c.digest).where(
            harness_version.c.workspace == workspace, harness_version.c.name == name, harness_version.c.digest == digest
        )
        return {"harness": digest} if tx.execute(held).first() else None
    return {kind: digest}
