"""Mute: silence one room or all rooms at once, from any page; in the ledger, undone the same way.

Not here: the gateway that obeys (it watches `rooms`).
"""

from __future__ import annotations

from sqlalchemy import Connection, insert, select

from hat_registry import clock, ledger
from hat_registry.accounts import Actor
from hat_registry.errors import InvalidError
from hat_registry.store.tables import mute as table

ALL = "*"


def mute(tx: Connection, actor: Actor, room: str) -> bool:
    """Silence a room (`*` for all); False when it was silent already."""
    actor.require("mute")
    if not room or len(room) > 128:
        raise InvalidError("a room id has 1 to 128 characters")
    if room in rooms(tx, actor.workspace):
        return False
    at = clock.text(clock.now())
    tx.execute(insert(table).values(workspace=actor.workspace, room=room, muted_by=actor.account, muted_at=at))
    ledger.append(tx, actor.workspace, actor.account, "mute", f"room:{room}", {}, at)
    return True


def unmute(tx: Connection, actor: Actor, room: str) -> bool:
    """Let a room speak again; False when it was not silenced."""
    actor.require("mute")
    gone = tx.execute(table.delete().where(table.c.workspace == actor.workspace, table.c.room == room))
    if gone.rowcount:
        ledger.append(tx, actor.workspace, actor.account, "unmute", f"room:{room}", {})
    return bool(gone.rowcount)


def rooms(tx: Connection, workspace: str) -> frozenset[str]:
    """What is silenced now."""
    return frozenset(tx.execute(select(table.c.room).where(table.c.workspace == workspace)).scalars())
