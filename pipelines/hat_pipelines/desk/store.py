"""Orders and schedules in a database: what waits, what runs, who asked, how it ended.

Always holds: an order is given a run id that no other run has, before it starts; a state changes only from the one that
it was read in, so two desks never start one order. Not here: processes (supervise), the loop (desk).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, func, insert, select, update
from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError

from hat_pipelines.desk import cron
from hat_pipelines.desk import tables as t
from hat_pipelines.desk.order import Order
from hat_pipelines.errors import RunConflictError, RunNotFoundError
from hat_pipelines.runs import Fault
from hat_registry import clock
from hat_registry.errors import NotFoundError, StoreError
from hat_registry.store.database import Database

State = Literal["queued", "running", "done", "failed", "interrupted", "cancelled", "over_budget"]
ACTIVE: tuple[State, ...] = ("queued", "running")


@dataclass(frozen=True, slots=True)
class Ordered:
    """One order with what became of it."""

    id: str
    workspace: str
    number: int
    """Counted over all workspaces; the queue's order."""
    run: str
    state: State
    order: Order
    schedule: str
    """Name of the schedule that made it, "" for a person."""
    created_by: str
    created_at: str
    started_at: str
    ended_at: str
    fault: Fault | None


@dataclass(frozen=True, slots=True)
class Scheduled:
    """An order that is placed again and again."""

    workspace: str
    name: str
    cron: str
    enabled: bool
    order: Order
    created_by: str
    created_at: str
    looked_at: str
    """Up to here it has been seen to."""
    fired: int
    skipped: int
    """Times that came due while its last run was not over, or while no desk was up."""
    note: str

    def due(self) -> str:
        """When it comes due next."""
        return clock.text(cron.parse(self.cron).after(clock.parse(self.looked_at)))


class OrderStore:
    """Orders over a database, for the runs of one folder (`root`)."""

    def __init__(self, database: Database, root: Path) -> None:
        self._database = database
        self.root = root
        with database.write() as tx:
            t.metadata.create_all(tx)
            made = tx.execute(select(t.schema.c.version)).scalar()
            if made is None:
                tx.execute(insert(t.schema).values(version=t.VERSION))
            elif made != t.VERSION:
                raise StoreError(f"the run tables have version {made}, not {t.VERSION}", cure="use that release")

    # ---- orders ---------------------------------------------------------------------------------------------

    def place(self, workspace: str, account: str, order: Order, *, schedule: str = "") -> Ordered:
        """Put an order into the queue. RunConflictError when its run's name is taken or its run is not over."""
        for attempt in range(5):
            try:
                return self._place_once(workspace, account, order, schedule)
            except IntegrityError:  # somebody placed one in the same moment: the next number is free
                if attempt == 4:
                    raise StoreError("the queue is too busy", cure="try again") from None
        raise AssertionError("unreachable")

    def _place_once(self, workspace: str, account: str, order: Order, schedule: str) -> Ordered:
        with self._database.write() as tx:
            number = (tx.execute(select(func.max(t.order.c.number))).scalar() or 0) + 1
            run = self._name(tx, workspace, order)
            row: dict[str, Any] = {
                "id": secrets.token_hex(8), "workspace": workspace, "number": number, "run": run, "state": "queued",
                "target": order.target, "place": self._here, "body": order.model_dump_json(),
                "schedule": schedule, "created_by": account, "created_at": _now(), "started_at": "", "ended_at": "",
                "fault": "",
            }  # fmt: skip
            tx.execute(insert(t.order).values(**row))
            return _ordered(tx.execute(select(t.order).where(t.order.c.id == row["id"])).one())

    def _name(self, tx: Connection, workspace: str, order: Order) -> str:
        if order.resume:
            latest = _latest(tx, order.resume)
            if latest is not None and (latest.workspace != workspace):
                raise RunNotFoundError(f"no run {order.resume!r}", place=workspace)
            if latest is not None and latest.state in ACTIVE:
                raise RunConflictError(
                    f"run {order.resume} is not over: it is {latest.state}", place=order.resume, cure="cancel it first"
                )
            if not (self.root / order.resume / "run.json").exists():
                raise RunNotFoundError(f"no run {order.resume!r}", place=str(self.root), cure="see /runs")
            return order.resume
        stem = order.name or f"{order.profile}-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}"
        for attempt in range(1000):
            name = stem if order.name or not attempt else f"{stem}-{attempt + 1}"
            taken = (self.root / name).exists() or _latest(tx, name) is not None
            if not taken:
                return name
            if order.name:
                break
        raise RunConflictError(
            f"a run called {stem!r} stands already", place=stem, cure="choose another name, or resume that run"
        )

    def orders(self, workspace: str, *, states: tuple[State, ...] = (), limit: int = 500) -> list[Ordered]:
        """Orders of a workspace, the newest first."""
        query = select(t.order).where(t.order.c.workspace == workspace, t.order.c.place == self._here)
        if states:
            query = query.where(t.order.c.state.in_(states))
        with self._database.read() as tx:
            return [_ordered(row) for row in tx.execute(query.order_by(t.order.c.number.desc()).limit(limit))]

    def of_run(self, run: str) -> Ordered | None:
        """The latest order of a run; None for a run that was started from the command line."""
        with self._database.read() as tx:
            row = tx.execute(
                select(t.order).where(t.order.c.run == run, t.order.c.place == self._here)
                .order_by(t.order.c.number.desc()).limit(1)
            ).first()  # fmt: skip
        return _ordered(row) if row is not None else None

    def active(self) -> list[Ordered]:
        """Orders of every workspace that are queued or running here, in the order in which they came."""
        query = select(t.order).where(t.order.c.place == self._here, t.order.c.state.in_(ACTIVE))
        with self._database.read() as tx:
            return [_ordered(row) for row in tx.execute(query.order_by(t.order.c.number))]

    def change(self, ident: str, before: State, after: State, fault: Fault | None = None) -> bool:
        """Move an order from one state to another; False when it is no longer in `before`."""
        values: dict[str, Any] = {"state": after, "fault": fault.model_dump_json() if fault else ""}
        values["started_at" if after == "running" else "ended_at"] = _now()
        with self._database.write() as tx:
            done = tx.execute(update(t.order).where(t.order.c.id == ident, t.order.c.state == before).values(**values))
            return bool(done.rowcount)

    def workspaces(self) -> dict[str, str]:
        """Run → the workspace that it belongs to, of those that were ordered."""
        query = select(t.order.c.run, t.order.c.workspace).where(t.order.c.place == self._here)
        with self._database.read() as tx:
            return {row.run: row.workspace for row in tx.execute(query)}

    @property
    def _here(self) -> str:
        return str(self.root.resolve())

    # ---- schedules ------------------------------------------------------------------------------------------

    def schedule(self, workspace: str, account: str, name: str, text: str, order: Order, now: datetime) -> Scheduled:
        """Make or replace a schedule. Raises ScheduleError for a text that is not understood."""
        parsed = cron.parse(text)
        row = {
            "workspace": workspace, "name": name, "cron": parsed.text, "enabled": True, "body": order.model_dump_json(),
            "created_by": account, "created_at": _now(), "looked_at": clock.text(now), "fired": 0, "skipped": 0,
            "note": "",
        }  # fmt: skip
        with self._database.write() as tx:
            tx.execute(t.schedule.delete().where(_named(workspace, name)))
            tx.execute(insert(t.schedule).values(**row))
        return self.scheduled(workspace, name)

    def scheduled(self, workspace: str, name: str) -> Scheduled:
        """One schedule; NotFoundError."""
        with self._database.read() as tx:
            row = tx.execute(select(t.schedule).where(_named(workspace, name))).first()
        if row is None:
            raise NotFoundError(f"no schedule {name[:64]!r}", place=workspace, cure="see /pipelines")
        return _scheduled(row)

    def schedules(self, workspace: str = "") -> list[Scheduled]:
        """Schedules of a workspace, or of all, by name."""
        query = select(t.schedule).order_by(t.schedule.c.workspace, t.schedule.c.name)
        with self._database.read() as tx:
            rows = tx.execute(query.where(t.schedule.c.workspace == workspace) if workspace else query).all()
        return [_scheduled(row) for row in rows]

    def enable(self, workspace: str, name: str, enabled: bool, now: datetime) -> None:
        """Switch a schedule on or off; what came due meanwhile is not made up for."""
        values = {"enabled": enabled, "looked_at": clock.text(now)}
        self._change_schedule(workspace, name, values)

    def remove(self, workspace: str, name: str) -> None:
        """Take a schedule away; its runs stay."""
        self.scheduled(workspace, name)
        with self._database.write() as tx:
            tx.execute(t.schedule.delete().where(_named(workspace, name)))

    def looked(self, one: Scheduled, now: datetime, **changes: Any) -> bool:
        """Note that a schedule has been seen to up to `now`; False when another desk was faster."""
        seen = t.schedule.c.looked_at == one.looked_at
        with self._database.write() as tx:
            done = tx.execute(
                update(t.schedule).where(_named(one.workspace, one.name), seen)
                .values(looked_at=clock.text(now), **changes)
            )  # fmt: skip
            return bool(done.rowcount)

    def _change_schedule(self, workspace: str, name: str, values: Mapping[str, Any]) -> None:
        self.scheduled(workspace, name)
        with self._database.write() as tx:
            tx.execute(update(t.schedule).where(_named(workspace, name)).values(**values))


def _named(workspace: str, name: str) -> Any:
    return (t.schedule.c.workspace == workspace) & (t.schedule.c.name == name)


def _latest(tx: Connection, run: str) -> Any:
    query = select(t.order).where(t.order.c.run == run).order_by(t.order.c.number.desc()).limit(1)
    return tx.execute(query).first()


def _now() -> str:
    return clock.text(clock.now())


def _ordered(row: Row[Any]) -> Ordered:
    fault = Fault.model_validate(json.loads(row.fault)) if row.fault else None
    return Ordered(
        row.id, row.workspace, row.number, row.run, row.state, Order.model_validate_json(row.body), row.schedule,
        row.created_by, row.created_at, row.started_at, row.ended_at, fault,
    )  # fmt: skip


def _scheduled(row: Row[Any]) -> Scheduled:
    return Scheduled(
        row.workspace, row.name, row.cron, bool(row.enabled), Order.model_validate_json(row.body), row.created_by,
        row.created_at, row.looked_at, row.fired, row.skipped, row.note,
    )  # fmt: skip
