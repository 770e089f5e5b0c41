"""Steering that replicas share: kept in the gateway's database, followed by every replica, acknowledged by each.

Always holds: a change is written only over the revision that it was made from, with who made it; a replica reports a
revision once it obeys it; replicas count as alive while their beat goes on, judged by the reader's own steady clock, so
that no wall clock decides. While the database is away the last known steering stands. Not here: what a change means
(experiment.steering), HTTP (admin), turning it into arms (steered).
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from hat_registry import clock
from hat_registry.store.database import Database
from hat_serving.errors import SteeringError
from hat_serving.experiment.steering import Steering

log = logging.getLogger("hatstack.gateway")
metadata = MetaData()
steering = Table(
    "gateway_steering",
    metadata,
    Column("workspace", String(128), primary_key=True),
    Column("name", String(128), primary_key=True),
    Column("revision", Integer, nullable=False),
    Column("document", Text, nullable=False),
)
change = Table(
    "gateway_change",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("workspace", String(128), nullable=False),
    Column("name", String(128), nullable=False, index=True),
    Column("revision", Integer, nullable=False),
    Column("actor", String(64), nullable=False),
    Column("what", String(64), nullable=False),
    Column("detail", Text, nullable=False),
    Column("at", String(32), nullable=False),
)
"""Append-only: who changed which deployment, when and how."""
replica = Table(
    "gateway_replica",
    metadata,
    Column("workspace", String(128), primary_key=True),
    Column("id", String(32), primary_key=True),
    Column("beat", Integer, nullable=False),
    Column("obeys", Text, nullable=False),
    Column("draining", Boolean, nullable=False),
)
"""`obeys` is a JSON object deployment → [revision, trouble]."""
muted = Table(
    "gateway_muted",
    metadata,
    Column("workspace", String(128), primary_key=True),
    Column("room", String(128), primary_key=True),
)
BEAT_S = 5.0
"""How often a replica that has nothing new to report writes its beat."""
DEAD_S = 20.0
"""A replica whose beat has stood still for this long is not waited for."""
LOCK = 7_235_412_118
"""Number of the advisory lock on Postgres; of no meaning."""
Change = Callable[[Steering], Steering]


def steered(tx: Connection, workspace: str) -> list[Steering]:
    """Every steering of a workspace as the database has it."""
    rows = tx.execute(select(steering.c.document).where(steering.c.workspace == workspace).order_by(steering.c.name))
    return [Steering.model_validate_json(document) for document in rows.scalars()]


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica as another sees it."""

    id: str
    revision: int
    """Of the deployment in question; 0 before any steering."""
    trouble: str
    """Why it cannot obey; "" when it does."""
    draining: bool
    alive: bool


class Control:
    """One replica's hold on the shared steering. Blocking; call it from a thread."""

    def __init__(
        self, database: Database, workspace: str = "default", *, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self.id = secrets.token_hex(8)
        self.draining = False
        self._database = database
        self._workspace = workspace
        self._steady = steady
        self._lock = threading.RLock()
        self._known: dict[str, Steering] = {}
        self._muted: frozenset[str] = frozenset()
        self._trouble: dict[str, str] = {}
        self._beat = 0
        self._said: tuple[str, bool] = ("", False)
        self._said_at = 0.0
        self._heard: dict[str, tuple[int, float]] = {}
        self._prepare: Callable[[str], None] = lambda _name: None
        with database.write() as tx:
            metadata.create_all(tx)

    # ---- what a turn asks: memory only ------------------------------------------------------------------------------

    def steering(self, name: str) -> Steering | None:
        """The steering that this replica obeys; None: the source's stable arm has all traffic."""
        return self._known.get(name)

    def all(self) -> list[Steering]:
        """Every steering that this replica knows, by name."""
        return [one for _, one in sorted(self._known.items())]

    def muted(self) -> frozenset[str]:
        """Rooms (pseudonyms, or "*") that are silenced."""
        return self._muted

    def troubled(self, name: str, why: str) -> None:
        """Note why this replica cannot obey the steering of `name`; "" once it can."""
        self._trouble[name] = why

    def before_obeying(self, prepare: Callable[[str], None]) -> None:
        """`prepare(name)` makes a new steering take effect here; only then it is acknowledged."""
        self._prepare = prepare

    # ---- the database -------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Take up what is new and report what this replica obeys."""
        with self._lock:
            fresh = {name for name, why in self._trouble.items() if why}
            with self._database.read() as tx:
                fresh |= self._follow(tx)
                mine = select(muted.c.room).where(muted.c.workspace == self._workspace)
                self._muted = frozenset(tx.execute(mine).scalars())
            for name in sorted(fresh):
                self._prepare(name)
            self._report()

    def change(self, name: str, actor: str, what: str, detail: Mapping[str, object], made: Change) -> Steering:
        """Write `made(present steering)`; obeyed here at once. SteeringError when someone else was faster."""
        with self._lock:
            fresh: set[str] = set()
            try:
                with self._database.write() as tx:
                    if tx.dialect.name == "postgresql":
                        # Parts of an exclusion group span deployments, so changes come one after the other.
                        tx.execute(select(func.pg_advisory_xact_lock(LOCK)))
                    fresh = self._follow(tx)
                    before = self._known.get(name) or Steering(name=name)
                    after = made(before)
                    if after.revision != before.revision:
                        self._write(tx, before, after)
                        self._note(tx, after, actor, what, detail)
                self._known[name] = after
            finally:
                for one in sorted(fresh | {name}):
                    self._prepare(one)
            self._report()
            return after

    def changes(self, name: str, limit: int = 100) -> list[dict[str, object]]:
        """The newest changes of a deployment first."""
        here = (change.c.workspace == self._workspace, change.c.name == name)
        query = select(change).where(*here).order_by(change.c.number.desc()).limit(limit)
        with self._database.read() as tx:
            return [
                {
                    "revision": row.revision,
                    "actor": row.actor,
                    "what": row.what,
                    "detail": json.loads(row.detail),
                    "at": row.at,
                }
                for row in tx.execute(query)
            ]

    def replicas(self, name: str) -> list[ReplicaView]:
        """All replicas, this one included, with the revision of `name` that each obeys."""
        with self._lock:
            with self._database.read() as tx:
                rows = tx.execute(select(replica).where(replica.c.workspace == self._workspace)).all()
            now = self._steady()
            found = []
            for row in rows:
                beat, since = self._heard.get(row.id, (-1, now))
                if beat != row.beat:
                    since = now
                self._heard[row.id] = (row.beat, since)
                revision, trouble = json.loads(row.obeys).get(name, (0, ""))
                alive = row.id == self.id or now - since < DEAD_S
                found.append(ReplicaView(row.id, revision, trouble, row.draining, alive))
            return found

    def mute(self, room: str, silent: bool, actor: str) -> bool:
        """Silence a room, or let it speak again; False when it was so already."""
        with self._lock, self._database.write() as tx:
            here = (muted.c.workspace == self._workspace, muted.c.room == room)
            present = tx.execute(select(muted.c.room).where(*here)).first() is not None
            if present == silent:
                return False
            if silent:
                tx.execute(insert(muted).values(workspace=self._workspace, room=room))
            else:
                tx.execute(delete(muted).where(*here))
            self._note(tx, Steering(name=room), actor, "mute" if silent else "unmute", {})
        self._muted = self._muted | {room} if silent else self._muted - {room}
        return True

    def leave(self) -> None:
        """This replica ends; nobody waits for it any more."""
        with self._lock, self._database.write() as tx:
            tx.execute(delete(replica).where(replica.c.workspace == self._workspace, replica.c.id == self.id))

    def _follow(self, tx: Connection) -> set[str]:
        """Take up every steering that has another revision; the names of those."""
        here = steering.c.workspace == self._workspace
        fresh = set()
        for row in tx.execute(select(steering.c.name, steering.c.revision).where(here)).all():
            known = self._known.get(row.name)
            if known is None or known.revision != row.revision:
                found = self._read(tx, row.name)
                if found is not None:
                    self._known[row.name] = found
                    fresh.add(row.name)
        return fresh

    def _read(self, tx: Connection, name: str) -> Steering | None:
        here = (steering.c.workspace == self._workspace, steering.c.name == name)
        found = tx.execute(select(steering.c.document).where(*here)).scalar()
        return Steering.model_validate_json(found) if found is not None else None

    def _write(self, tx: Connection, before: Steering, after: Steering) -> None:
        values = {"revision": after.revision, "document": after.model_dump_json()}
        try:
            if before.revision == 0:
                tx.execute(insert(steering).values(workspace=self._workspace, name=after.name, **values))
                return
            here = (steering.c.workspace == self._workspace, steering.c.name == after.name)
            done = tx.execute(update(steering).where(*here, steering.c.revision == before.revision).values(**values))
            faster = done.rowcount != 1
        except IntegrityError:
            faster = True
        if faster:
            raise SteeringError("someone else changed it at the same moment", place=after.name, cure="look again")

    def _note(self, tx: Connection, after: Steering, actor: str, what: str, detail: Mapping[str, object]) -> None:
        tx.execute(
            insert(change).values(
                workspace=self._workspace,
                name=after.name,
                revision=after.revision,
                actor=actor,
                what=what,
                detail=json.dumps(dict(detail), sort_keys=True),
                at=clock.text(clock.now()),
            )
        )

    def _report(self) -> None:
        obeys = {name: (one.revision, self._trouble.get(name, "")) for name, one in sorted(self._known.items())}
        told, now = (json.dumps(obeys), self.draining), self._steady()
        if told == self._said and now - self._said_at < BEAT_S:
            return
        self._beat += 1
        values = {"beat": self._beat, "obeys": told[0], "draining": told[1]}
        mine = (replica.c.workspace == self._workspace, replica.c.id == self.id)
        with self._database.write() as tx:
            if tx.execute(update(replica).where(*mine).values(**values)).rowcount != 1:
                tx.execute(insert(replica).values(workspace=self._workspace, id=self.id, **values))
            for identity, (beat, since) in list(self._heard.items()):
                if now - since > 10 * DEAD_S and identity != self.id:
                    del self._heard[identity]
                    gone = (replica.c.workspace == self._workspace, replica.c.id == identity, replica.c.beat == beat)
                    tx.execute(delete(replica).where(*gone))
        self._said, self._said_at = told, now
