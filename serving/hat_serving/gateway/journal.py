"""The conversation store as the turns of one gateway use it: looked up at once, written by one thread in groups.

Turns that end together are committed together, so that a full disk flush is paid once for all of them and writers of one
process never wait for each other's locks. Always holds: `append` returns when its turn is committed, and not before; a turn
that another replica was faster with raises MovedError and takes nothing else of its group with it. Statements are sent as
written: building them anew cost more than carrying them out (docs/results.md). Not here: tables, replaying (conversations).
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from sqlalchemy import Connection
from sqlalchemy.exc import DatabaseError, IntegrityError, SQLAlchemyError

from hat_harness.errors import PlatformError
from hat_registry import clock
from hat_registry.errors import ConflictError, StoreError
from hat_serving.errors import MovedError
from hat_serving.gateway.conversations import Conversations, Stored, Timed

GROUP = 256
"""Turns of one transaction at most."""
ON = {"sqlite": "?", "postgresql": "%s"}
FIND = 'SELECT unit, arm, "release", harness, room, turns, history FROM conversation WHERE workspace = ? AND id = ?'
GO_ON = (
    'UPDATE conversation SET arm = ?, "release" = ?, harness = ?, turns = ?, updated_at = ? '
    "WHERE workspace = ? AND id = ? AND turns = ?"
)
BEGIN = (
    'INSERT INTO conversation (workspace, id, unit, arm, "release", harness, room, history, turns, updated_at) '
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
TURN = (
    "INSERT INTO conversation_turn (workspace, conversation, number, events, harness) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT DO NOTHING"
)
Also = Callable[[Any], None] | None
"""Writes rows of its own in the turn's transaction."""


@dataclass(slots=True)
class _Work:
    """One turn to be stored."""

    head: Stored
    events: Sequence[Timed]
    also: Also
    done: asyncio.Future[Stored]
    loop: asyncio.AbstractEventLoop
    result: Stored | Exception | None = None


class Journal:
    """One gateway's way to the store. `close` when no turn is open any more."""

    def __init__(self, store: Conversations) -> None:
        self._store = store
        self._database, self._workspace = store.database, store.workspace
        self._inline = self._database.dialect == "sqlite"
        mark = ON[self._database.dialect]
        self._find, self._go_on, self._begin, self._turn = (
            text.replace("?", mark) for text in (FIND, GO_ON, BEGIN, TURN)
        )
        self._reader: Any = None
        self._works: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def workspace(self) -> str:
        """Whose turns it stores."""
        return self._workspace

    async def find(self, identity: str) -> Stored | None:
        """The conversation's head, or None. SQLite is read in place: a look-up is cheaper than handing it to a thread."""
        if not self._inline:
            return await asyncio.to_thread(self._store.find, identity)
        try:
            if self._reader is None:
                self._reader = self._database.engine.raw_connection()
            cursor = self._reader.cursor()
            row = cursor.execute(self._find, (self._workspace, identity)).fetchone()
            cursor.close()
        except (sqlite3.Error, SQLAlchemyError) as error:
            self._reader = None
            raise StoreError(f"the database does not answer ({type(error).__name__})") from None
        if row is None:
            return None
        unit, arm, release, harness, room, turns, history = row
        told = tuple((said, answer) for said, answer in orjson.loads(history))
        return Stored(identity, unit, arm, release, harness, orjson.loads(room), turns, told)

    async def append(self, head: Stored, events: Sequence[Timed], also: Also = None) -> Stored:
        """Store one finished turn after `head.turns` turns, with its group. MovedError when it went on elsewhere."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        work = _Work(head, events, also, loop.create_future(), loop)
        self._works.put(work)
        return await work.done

    def close(self) -> None:
        """Write what is queued and end the thread."""
        if self._thread is not None:
            self._works.put(None)
            self._thread.join(10)
            self._thread = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    # ---- the writer's thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            group, ended = self._group()
            if group:
                self._write(group)
                group[0].loop.call_soon_threadsafe(_tell, group)
            if ended:
                return

    def _group(self) -> tuple[list[_Work], bool]:
        """The next turns: waits for one, takes what is there beside it."""
        group: list[_Work] = []
        work = self._works.get()
        while work is not None:
            group.append(work)
            if len(group) == GROUP:
                return group, False
            try:
                work = self._works.get_nowait()
            except queue.Empty:
                return group, False
        return group, True

    def _write(self, group: list[_Work]) -> None:
        """One transaction; in a group of several each turn has a savepoint, so that it fails alone."""
        alone = len(group) == 1
        try:
            with self._database.write() as tx:
                for work in group:
                    if not alone:
                        tx.exec_driver_sql("SAVEPOINT turn")
                    try:
                        work.result = self._one(tx, work)
                    except (PlatformError, DatabaseError) as error:
                        if alone:
                            raise
                        tx.exec_driver_sql("ROLLBACK TO SAVEPOINT turn")
                        work.result = _fault(error)
        except Exception as error:  # whatever the database did, none of the group is stored and every turn is told so
            for work in group:
                work.result = _fault(error)

    def _one(self, tx: Connection, work: _Work) -> Stored:
        head, at, number = work.head, clock.text(clock.now()), work.head.turns + 1
        mine = (self._workspace, head.id)
        under = (head.arm, head.release, head.harness)
        if head.turns:
            stored = tx.exec_driver_sql(self._go_on, (*under, number, at, *mine, head.turns)).rowcount
        else:
            began = (_json(dict(head.room)), _json(head.history))
            stored = tx.exec_driver_sql(self._begin, (*mine, head.unit, *under, *began, number, at)).rowcount
        if stored == 1:
            row = (*mine, number, _json(list(work.events)), head.played or head.harness)
            stored = tx.exec_driver_sql(self._turn, row).rowcount
        if stored != 1:
            raise MovedError(f"conversation {head.id} went on elsewhere", cure="send the message again")
        if work.also is not None:
            work.also(tx)
        return replace(head, turns=number)


def _fault(error: Exception) -> PlatformError:
    if isinstance(error, PlatformError):
        return error
    if isinstance(error, IntegrityError):
        return ConflictError("somebody else wrote the same at the same moment", cure="send the message again")
    return StoreError(f"the turn is not stored ({type(error).__name__})")


def _tell(group: list[_Work]) -> None:
    """In the loop: give every turn its result."""
    for work in group:
        if work.done.done():  # its task was cancelled; the turn is stored all the same
            continue
        if isinstance(work.result, Stored):
            work.done.set_result(work.result)
        else:
            work.done.set_exception(work.result or StoreError("the turn is not stored"))


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value, default=dict).decode()
    except TypeError:  # an integer beyond 64 bits in a tool's arguments
        import json

        return json.dumps(value, ensure_ascii=False, default=dict)
