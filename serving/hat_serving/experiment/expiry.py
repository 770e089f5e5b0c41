"""How long it is kept what single units did: exposures, turns and events of experiments go after their days, totals stay.

Always holds: of an experiment that runs, or that ended less than the days ago, nothing goes; the result of one that is over is
written down (`experiment_total`) before its first row goes, and is what everybody sees from then on; rows go in bounded batches,
each a transaction of its own, so that turns are never kept waiting. Blocking. Not here: when it is carried out
(gateway.retention), erasing one viewer (records.forget, Events.forget).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Float,
    MetaData,
    String,
    Table,
    Text,
    delete,
    func,
    or_,
    select,
    tuple_,
)
from sqlalchemy.dialects import postgresql, sqlite

from hat_registry.store.database import Database
from hat_serving.experiment import observed, records
from hat_serving.experiment.events import event
from hat_serving.experiment.model import Experiment
from hat_serving.experiment.steering import Steering

metadata = MetaData()
total = Table(
    "experiment_total",
    metadata,
    Column("workspace", String(128), primary_key=True),
    Column("experiment", String(64), primary_key=True),
    Column("created", Float, primary_key=True),
    Column("at", Float, nullable=False),
    Column("body", Text, nullable=False),
)
"""`body`: the result of `analysis.analyse` as JSON. `created` tells experiments of one name apart."""
BATCH = 2_000
"""Rows of one transaction."""
Result = Callable[[Connection, Experiment], dict[str, Any]]
"""The result of an experiment as everybody sees it."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Rows that went, or would go."""

    exposures: int = 0
    turns: int = 0
    events: int = 0


def kept(tx: Connection, workspace: str, one: Experiment) -> dict[str, Any] | None:
    """The total of an experiment whose rows have gone; None while they are here."""
    here = (total.c.workspace == workspace, total.c.experiment == one.name, total.c.created == one.created)
    body = tx.execute(select(total.c.body).where(*here)).scalar()
    return None if body is None else dict(json.loads(body))


def expire(
    database: Database,
    workspace: str,
    steered: Sequence[Steering],
    before: float,
    result: Result,
    *,
    now: float,
    dry_run: bool = False,
) -> Gone:
    """Remove what is older than `before` (seconds since the epoch) and belongs to nothing that still counts."""
    known = [one for steering in steered for one in steering.experiments]
    over = [one for one in known if one.stopped is not None and one.stopped < before]
    counting = [one for one in known if one.state != "draft" and one not in over]
    began = [one.stages[0].began - observed.SKEW_S for one in counting if one.stages]
    horizon = min([before, *began])
    live = {records.experiment_subject(one.name) for one in counting}
    live |= {records.rollout_subject(steering.name, steering.split) for steering in steered if steering.arms}
    if not dry_run:
        for one in over:
            _freeze(database, workspace, one, result, now)
    exposure, turn = records.exposure, records.turn
    done = {records.experiment_subject(one.name) for one in over}
    ended = or_(exposure.c.at < before, exposure.c.subject.in_(sorted(done)))
    wanted: tuple[tuple[Table, ColumnElement[bool]], ...] = (
        (exposure, ended & exposure.c.subject.not_in(sorted(live))),
        (turn, turn.c.at < horizon),
        (event, event.c.received < horizon),
    )
    return Gone(*(_remove(database, workspace, table, old, dry_run) for table, old in wanted))


def _freeze(database: Database, workspace: str, one: Experiment, result: Result, now: float) -> None:
    """Write down what came out, once. It is worked out before the transaction that writes it, since that takes a while."""
    with database.read() as tx:
        if kept(tx, workspace, one) is not None:
            return
        body = json.dumps(result(tx, one))
    row = {"workspace": workspace, "experiment": one.name, "created": one.created, "at": now, "body": body}
    with database.write() as tx:
        told = postgresql.insert(total) if tx.dialect.name == "postgresql" else sqlite.insert(total)
        tx.execute(told.values(**row).on_conflict_do_nothing())


def _remove(database: Database, workspace: str, table: Table, old: ColumnElement[bool], dry_run: bool) -> int:
    here = (table.c.workspace == workspace, old)
    if dry_run:
        with database.read() as tx:
            return int(tx.execute(select(func.count()).select_from(table).where(*here)).scalar() or 0)
    keys = list(table.primary_key.columns)
    gone = 0
    while True:
        with database.write() as tx:
            some = select(*keys).where(*here).limit(BATCH)
            count = tx.execute(delete(table).where(tuple_(*keys).in_(some))).rowcount
        gone += count
        if count < BATCH:
            return gone
