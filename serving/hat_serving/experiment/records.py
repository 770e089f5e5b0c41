"""What experiments and rollouts are judged by: who was exposed to which arm, and what each of their turns was like.

Always holds: a unit is exposed once per split, at its first conversation in it, to the arm that it was *assigned*; the arm
that served is kept apart. Rows are written in the transaction that stores the turn. Units are pseudonyms; no text is kept.
Not here: events of the shop (events), what the numbers mean (analysis).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, Float, Integer, MetaData, String, Table, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

metadata = MetaData()
exposure = Table(
    "experiment_exposure",
    metadata,
    Column("workspace", String(128), primary_key=True),
    Column("subject", String(160), primary_key=True),
    Column("unit", String(128), primary_key=True),
    Column("assigned", String(64), nullable=False),
    Column("served", String(64), nullable=False),
    Column("at", Float, nullable=False, index=True),
    Column("until", Float),
)
"""`subject` is `rollout:DEPLOYMENT#SPLIT` or `experiment:NAME`; `at` seconds since the epoch.

`until`: when a ramp moved the unit to another arm; what it does afterwards is not counted for the arm it was exposed to."""
turn = Table(
    "experiment_turn",
    metadata,
    Column("workspace", String(128), primary_key=True),
    Column("conversation", String(128), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("deployment", String(128), nullable=False),
    Column("viewer", String(128), nullable=False, index=True),
    Column("unit", String(128), nullable=False, index=True),
    Column("served", String(64), nullable=False),
    Column("release", String(71), nullable=False),
    Column("moved", String(16), nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("seconds", Float, nullable=False),
    Column("first_s", Float),
    Column("tokens_in", Integer, nullable=False),
    Column("tokens_out", Integer, nullable=False),
    Column("tool_calls", Integer, nullable=False),
    Column("tool_failures", Integer, nullable=False),
    Column("at", Float, nullable=False),
)
"""`unit` is what the arms are assigned by (viewer, conversation or room).

`moved`: why the conversation changed arms at this turn; "" when it did not.
`first_s`: to the first shown text."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One stored turn; `exposures` are (subject, assigned arm) that begin with it."""

    deployment: str
    conversation: str
    number: int
    viewer: str
    unit: str
    served: str
    release: str
    moved: str
    outcome: str
    seconds: float
    first_s: float | None
    tokens_in: int
    tokens_out: int
    tool_calls: int
    tool_failures: int
    exposures: tuple[tuple[str, str], ...] = ()


def write(tx: Connection, workspace: str, record: TurnRecord, *, whole: bool = True) -> tuple[str, ...]:
    """Add the rows of one turn to the transaction; the assigned arms of units that are exposed for the first time.

    Of a turn that is not `whole` yet only the exposures.
    """
    at, first = time.time(), []
    for subject, arm in record.exposures:
        key = {"workspace": workspace, "subject": subject, "unit": record.unit}
        told = postgresql.insert(exposure) if tx.dialect.name == "postgresql" else sqlite.insert(exposure)
        row = told.values(**key, assigned=arm, served=record.served, at=at).on_conflict_do_nothing()
        # Drivers differ in the row count of a conflict; what comes back is sure.
        if tx.execute(row.returning(exposure.c.unit)).first() is None:
            same = [exposure.c[name] == value for name, value in key.items()]
            moved = (exposure.c.assigned != arm, exposure.c.until.is_(None))
            tx.execute(update(exposure).where(*same, *moved).values(until=at))
        else:
            first.append(arm)
    if record.number == 1:
        _set_apart(tx, workspace, record.conversation)
    if not whole:
        return tuple(first)
    names = [column.name for column in turn.columns if column.name not in ("workspace", "at")]
    tx.execute(insert(turn).values(workspace=workspace, at=at, **{name: getattr(record, name) for name in names}))
    return tuple(first)


def _set_apart(tx: Connection, workspace: str, conversation: str) -> None:
    """Turns of an earlier conversation of the same id, which was erased or is past its day, keep counting beside the new."""
    earlier = (turn.c.workspace == workspace, turn.c.conversation == conversation)
    tx.execute(update(turn).where(*earlier).values(conversation=f"{conversation}~{time.time_ns():x}"))


def rollout_subject(deployment: str, split: int) -> str:
    """Subject of the units that one split of a rollout assigned."""
    return f"rollout:{deployment}#{split}"


def experiment_subject(name: str) -> str:
    """Subject of an experiment's units."""
    return f"experiment:{name}"


def units(tx: Connection, workspace: str, subject: str) -> dict[str, int]:
    """Assigned arm → number of units."""
    here = (exposure.c.workspace == workspace, exposure.c.subject == subject)
    query = select(exposure.c.assigned, func.count()).where(*here).group_by(exposure.c.assigned)
    return {row[0]: int(row[1]) for row in tx.execute(query)}


def moves(tx: Connection, workspace: str, deployment: str) -> dict[str, int]:
    """Reason → how many running conversations changed arms."""
    here = (turn.c.workspace == workspace, turn.c.deployment == deployment, turn.c.moved != "")
    query = select(turn.c.moved, func.count()).where(*here).group_by(turn.c.moved)
    return {row[0]: int(row[1]) for row in tx.execute(query)}


def of_conversation(tx: Connection, workspace: str, conversation: str) -> list[dict[str, Any]]:
    """Arm, release, reason of a move and times of each turn, in order; only of turns while arms were compared."""
    names = ("number", "served", "release", "moved", "seconds", "first_s")
    here = (turn.c.workspace == workspace, turn.c.conversation == conversation)
    query = select(*(turn.c[name] for name in names)).where(*here).order_by(turn.c.number)
    return [dict(zip(names, row, strict=True)) for row in tx.execute(query)]


def forget(tx: Connection, workspace: str, unit: str) -> int:
    """Delete what is known of a unit; how many rows there were."""
    mine = (exposure.c.workspace == workspace, exposure.c.unit == unit)
    gone = tx.execute(delete(exposure).where(*mine)).rowcount
    theirs = (turn.c.workspace == workspace, turn.c.viewer == unit)
    return gone + tx.execute(delete(turn).where(*theirs)).rowcount
