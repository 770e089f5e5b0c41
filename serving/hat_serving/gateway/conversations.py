"""Conversations that any replica can go on with: the events of each session, appended turn by turn.

A session is a function of its events (hat_harness.session), so what is stored is the events with their times; a replica
that does not hold the session replays them. Always holds: a turn is stored as a whole before its reply is acknowledged,
or not at all; of two replicas that add a turn to the same conversation one is refused with MovedError.
Not here: pseudonyms (the caller's unit is one already), retention (`forget`, `expire` are called by who knows the rule).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Column, Connection, Integer, MetaData, String, Table, Text, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from hat_harness.codec import decode
from hat_harness.session import Session
from hat_harness.spec import Harness
from hat_registry import clock
from hat_registry.store.database import Database
from hat_serving.errors import MovedError, ServingError
from hat_serving.experiment import records
from hat_serving.gateway import brought

metadata = MetaData()
conversation = Table(
    "conversation",
    metadata,
    Column("workspace", String(128), primary_key=True),
    Column("id", String(128), primary_key=True),
    Column("unit", String(128), nullable=False, index=True),
    Column("arm", String(64), nullable=False),
    Column("release", String(71), nullable=False),
    Column("harness", String(71), nullable=False),
    Column("room", Text, nullable=False),
    Column("history", Text, nullable=False),
    Column("turns", Integer, nullable=False),
    Column("updated_at", String(32), nullable=False, index=True),
)
turn = Table(
    "conversation_turn",
    metadata,
    Column("workspace", String(128), primary_key=True),
    Column("conversation", String(128), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("events", Text, nullable=False),
    Column("harness", String(71), nullable=False),
)
"""`events` is a JSON list of [time, type, fields]; `harness` is the digest that the turn ran under."""

Timed = tuple[float, str, Mapping[str, Any]]
"""(time, type, fields) of one event, as a trace entry has it."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A conversation as it stands in the store."""

    id: str
    unit: str
    arm: str
    release: str
    harness: str
    room: Mapping[str, Any]
    turns: int
    history: tuple[tuple[str, str], ...] = ()
    """Earlier exchanges (viewer, agent) that the client brought along when the conversation began."""
    updated_at: str = field(default="", compare=False)
    """When its last turn was stored, UTC; "" for one that was not read from the store."""
    played: str = ""
    """Digest of the harness with the client's tools that the turn to be stored ran under; "": the harness itself."""


class Conversations:
    """The store, on the registry's database or one of its own. Blocking; call it from a thread."""

    def __init__(self, database: Database, workspace: str = "default") -> None:
        self._database = database
        self._workspace = workspace
        with database.write() as tx:
            metadata.create_all(tx)
            records.metadata.create_all(tx)
            brought.metadata.create_all(tx)

    @property
    def database(self) -> Database:
        """Where it is kept."""
        return self._database

    @property
    def workspace(self) -> str:
        """Whose conversations it keeps."""
        return self._workspace

    def find(self, identity: str) -> Stored | None:
        """The conversation's head, or None."""
        with self._database.read() as tx:
            row = tx.execute(select(conversation).where(*self._key(identity))).first()
        if row is None:
            return None
        history = tuple((said, told) for said, told in json.loads(row.history))
        head = (row.id, row.unit, row.arm, row.release, row.harness, json.loads(row.room), row.turns, history)
        return Stored(*head, row.updated_at)

    def newest(self, limit: int, before: str = "", only: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Heads without what was said, the last touched first. `before` is the `at` of the last one of the page before;
        `only` maps arm, release or harness to the one that is wanted.
        """
        names = ("id", "arm", "release", "harness", "turns", "updated_at")
        query = select(*(conversation.c[name] for name in names)).where(conversation.c.workspace == self._workspace)
        for name, value in (only or {}).items():
            query = query.where(conversation.c[name] == value)
        if before:
            at, _, identity = before.partition("/")
            same = (conversation.c.updated_at == at) & (conversation.c.id < identity)
            query = query.where((conversation.c.updated_at < at) | same)
        ordered = query.order_by(conversation.c.updated_at.desc(), conversation.c.id.desc()).limit(limit)
        with self._database.read() as tx:
            rows = tx.execute(ordered).all()
        return [dict(zip(names, row, strict=True)) | {"at": f"{row.updated_at}/{row.id}"} for row in rows]

    def events(self, identity: str) -> list[tuple[str, list[Timed]]]:
        """(harness digest, events with times) of every turn, in order."""
        query = (
            select(turn.c.harness, turn.c.events)
            .where(turn.c.workspace == self._workspace, turn.c.conversation == identity)
            .order_by(turn.c.number)
        )
        with self._database.read() as tx:
            rows = tx.execute(query).all()
        return [(row.harness, [(at, kind, data) for at, kind, data in json.loads(row.events)]) for row in rows]

    def append(self, head: Stored, events: Sequence[Timed], also: Callable[[Connection], None] | None = None) -> Stored:
        """Store one finished turn after `head.turns` turns, and what `also` writes, or nothing of both.

        MovedError when the conversation went on elsewhere.
        """
        at = clock.text(clock.now())
        number = head.turns + 1
        written = json.dumps(list(events), ensure_ascii=False)
        values = {"arm": head.arm, "release": head.release, "harness": head.harness, "turns": number, "updated_at": at}
        with self._database.write() as tx:
            if head.turns:
                found = tx.execute(
                    update(conversation).where(*self._key(head.id), conversation.c.turns == head.turns).values(**values)
                )
                if found.rowcount != 1:
                    raise self._moved(head)
            try:
                if not head.turns:
                    own = {"workspace": self._workspace, "id": head.id, "unit": head.unit}
                    began = {"room": json.dumps(dict(head.room)), "history": json.dumps(head.history)}
                    tx.execute(insert(conversation).values(**own, **began, **values))
                tx.execute(
                    insert(turn).values(
                        workspace=self._workspace,
                        conversation=head.id,
                        number=number,
                        events=written,
                        harness=head.played or head.harness,
                    )
                )
            except IntegrityError:
                raise self._moved(head) from None
            if also is not None:
                also(tx)
        return replace(head, turns=number)

    def count(self, unit: str) -> int:
        """How many conversations `forget` would delete."""
        with self._database.read() as tx:
            return len(self._with(tx, unit))

    def forget(self, unit: str) -> int:
        """Delete all conversations that hold words of a unit; how many there were.

        A batch brings the words of several viewers into one conversation, and a session is a function of all its events,
        so such a conversation goes as a whole, as its trace does.
        """
        with self._database.write() as tx:
            ids = self._with(tx, unit)
            self._drop(tx, ids)
            records.forget(tx, self._workspace, unit)
        return len(ids)

    def _with(self, tx: Connection, unit: str) -> list[str]:
        """Ids of the conversations of a unit, and of those in which it spoke."""
        own = select(conversation.c.id).where(conversation.c.workspace == self._workspace, conversation.c.unit == unit)
        spoke = turn.c.events.contains(json.dumps(unit, ensure_ascii=False), autoescape=True)
        heard = select(turn.c.conversation).where(turn.c.workspace == self._workspace, spoke)
        return sorted(tx.execute(own.union(heard)).scalars())

    def old(self, before: str) -> int:
        """How many conversations are untouched since `before` (UTC text)."""
        mine = (conversation.c.workspace == self._workspace, conversation.c.updated_at < before)
        with self._database.read() as tx:
            return len(tx.execute(select(conversation.c.id).where(*mine)).all())

    def expire(self, before: str, limit: int = 10_000) -> int:
        """Delete conversations untouched since `before` (UTC text); how many."""
        with self._database.write() as tx:
            old = (conversation.c.workspace == self._workspace, conversation.c.updated_at < before)
            ids = list(tx.execute(select(conversation.c.id).where(*old).limit(limit)).scalars())
            self._drop(tx, ids)
        return len(ids)

    def _drop(self, tx: Any, ids: Sequence[str]) -> None:
        for identity in ids:
            brought.forget(tx, self._workspace, identity)
            tx.execute(delete(turn).where(turn.c.workspace == self._workspace, turn.c.conversation == identity))
            tx.execute(delete(conversation).where(*self._key(identity)))

    def _key(self, identity: str) -> tuple[Any, Any]:
        return conversation.c.workspace == self._workspace, conversation.c.id == identity

    def _moved(self, head: Stored) -> MovedError:
        return MovedError(f"conversation {head.id} went on elsewhere", cure="send the message again")


def restore(head: Stored, history: Sequence[tuple[str, Sequence[Timed]]], harnesses: Mapping[str, Harness]) -> Session:
    """The session after its stored turns, by replaying them. `harnesses` has every digest that the turns name."""
    if not history:
        raise ServingError(f"conversation {head.id} has no turns", place="conversation store")
    started = history[0][1][0][0]
    first = harnesses[history[0][0]]
    session = Session(first, session_id=head.id, room=head.room, now=started, history=head.history)
    current = history[0][0]
    for digest, events in history:
        for when, kind, data in events:
            if digest != current and session.state == "idle":  # else the first event ends the turn that is open
                session.switch(harnesses[digest])
                current = digest
            session.handle(decode(kind, data), when)
    return session
