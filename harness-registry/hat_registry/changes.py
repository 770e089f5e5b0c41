"""The feed of what clients must learn at once: moved pointers and muted rooms, in the order of the ledger.

Always holds: an event's `seq` is its ledger row, so a reader that continues after the last `seq` it saw misses nothing;
a reader that is ahead of the ledger (it was restored from a backup) is told to start anew. Not here: HTTP (api.watch).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, select

from hat_registry.store.tables import ledger, ledger_head

KINDS = ("move", "rollback", "mute", "unmute")
LIMIT = 500


def head(tx: Connection, workspace: str) -> int:
    """The newest ledger row of a workspace; 0 before the first."""
    return tx.execute(select(ledger_head.c.seq).where(ledger_head.c.workspace == workspace)).scalar() or 0


def since(
    tx: Connection, workspace: str, after: int, readable: Callable[[str], bool], *, limit: int = LIMIT
) -> dict[str, Any]:
    """Events after row `after` that touch names for which `readable` holds; `next` continues, `reset` says: start anew."""
    newest = head(tx, workspace)
    if after > newest:
        return {"items": [], "next": newest, "reset": True}
    found = tx.execute(
        select(ledger.c.seq, ledger.c.at, ledger.c.kind, ledger.c.subject, ledger.c.body)
        .where(ledger.c.workspace == workspace, ledger.c.seq > after, ledger.c.kind.in_(KINDS))
        .order_by(ledger.c.seq)
        .limit(limit)
    ).all()
    following = found[-1].seq if len(found) == limit else newest
    told = (_event(row) for row in found)
    items = [one for one in told if one["event"] == "mute" or readable(one["name"])]
    return {"items": items, "next": max(following, after), "reset": False}


def _event(row: Any) -> dict[str, Any]:
    kind, _, rest = row.subject.partition(":")
    common = {"seq": row.seq, "at": row.at}
    if row.kind in {"mute", "unmute"}:
        return {"event": "mute", **common, "room": rest, "muted": row.kind == "mute"}
    name, _, pointer = rest.rpartition("@")
    data = json.loads(row.body)["data"]
    moved = {"kind": kind, "name": name, "pointer": pointer, "digest": data["to"]}
    return {"event": "pointer", **common, **moved, "urgent": bool(data.get("urgent", False))}
