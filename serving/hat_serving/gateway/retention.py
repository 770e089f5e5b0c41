"""How long a gateway's stores keep what viewers said and did: conversations by their last turn, trace files by their day,
what units did in experiments by the experiment's end.

Always holds: what is younger stays; a setting is at least one day, since nothing here is kept for ever. The gateway writes
its setting beside its stores, so that `hat data erase --expired` follows the same rule. Not here: erasing one viewer (erase).
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, astuple, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from hat_registry import clock
from hat_registry.store.database import Database
from hat_serving.errors import ServingError
from hat_serving.experiment import events, expiry
from hat_serving.experiment.expiry import Gone
from hat_serving.experiment.expiry import expire as expire_rows
from hat_serving.experiment.model import Experiment
from hat_serving.gateway import control, trials
from hat_serving.gateway.conversations import Conversations

log = logging.getLogger("hatstack.gateway")
FILE = "retention.json"
EVERY_S = 3600.0
"""How often a replica looks for what is too old."""
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\.jsonl\Z")
_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Retention:
    """Days that each store keeps things."""

    conversations_days: int = 30
    """Since a conversation's last turn."""
    traces_days: int = 90
    """Since the day of a trace file."""
    experiments_days: int = 180
    """What single units did in experiments and rollouts, since the end of the experiment; totals stay."""

    def __post_init__(self) -> None:
        for name, days in asdict(self).items():
            if not isinstance(days, int) or isinstance(days, bool) or not 1 <= days <= 3650:
                raise ServingError(f"{name} is {days!r}, not 1 to 3650", place="retention", cure="give whole days")

    def save(self, data: Path) -> None:
        """Written beside the stores, whole."""
        part = data / f".{FILE}.part"
        part.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        part.replace(data / FILE)

    @staticmethod
    def of(data: Path) -> Retention:
        """What the gateway of this data folder was started with, else the defaults."""
        path = data / FILE
        if not path.exists():
            return Retention()
        try:
            return Retention(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise ServingError(f"cannot be read: {error}", place=str(path), cure="start the gateway again") from None


@dataclass(frozen=True, slots=True)
class Expired:
    """What was too old."""

    conversations: int
    traces: tuple[str, ...]
    """Trace files."""
    experiments: Gone
    """Rows of experiments and rollouts."""


def expire(
    data: Path, keep: Retention, *, database: str = "", now: datetime | None = None, dry_run: bool = False
) -> Expired:
    """Remove what is older than `keep` below `data`. `database` is an SQLAlchemy URL, else the folder's own."""
    now = now or clock.now()
    before = clock.text(now - timedelta(days=keep.conversations_days))
    count, rows = 0, Gone()
    if database or (data / "gateway.db").exists():
        store = Database(database or f"sqlite:///{data / 'gateway.db'}")
        try:
            conversations = Conversations(store)
            count = conversations.old(before) if dry_run else 0
            while not dry_run and (gone := conversations.expire(before, _BATCH)):
                count += gone
            rows = _experiments(store, conversations.workspace, keep, now, dry_run)
        finally:
            store.close()
    oldest = f"{now - timedelta(days=keep.traces_days):%Y-%m-%d}.jsonl"
    traces = [
        path for path in sorted((data / "traces").glob("*.jsonl")) if _DAY.match(path.name) and path.name < oldest
    ]
    for path in () if dry_run else traces:
        path.unlink(missing_ok=True)
    return Expired(count, tuple(str(path) for path in traces), rows)


def _experiments(store: Database, workspace: str, keep: Retention, now: datetime, dry_run: bool) -> Gone:
    """What units did, where it is past its days; of what counts still nothing goes."""
    with store.write() as tx:
        for tables in (events.metadata, expiry.metadata, trials.metadata, control.metadata):
            tables.create_all(tx)
    with store.read() as tx:
        known = control.steered(tx, workspace)

    def result(tx: Connection, one: Experiment) -> dict[str, Any]:
        return trials.outcome(tx, workspace, one)

    before = (now - timedelta(days=keep.experiments_days)).timestamp()
    return expire_rows(store, workspace, known, before, result, now=now.timestamp(), dry_run=dry_run)


@asynccontextmanager
async def keeping(data: Path, keep: Retention, database: str = "", every_s: float = EVERY_S) -> AsyncIterator[None]:
    """Removes what is too old, now and every hour, while the block runs."""

    async def run() -> None:
        while True:
            try:
                gone = await asyncio.to_thread(expire, data, keep, database=database)
                rows = sum(astuple(gone.experiments))
                if gone.conversations or gone.traces or rows:
                    told = (gone.conversations, len(gone.traces), rows)
                    log.info("past retention: %d conversations, %d trace files, %d rows of experiments", *told)
            except Exception:
                # A store that cannot be reached now can be in an hour; viewers are served meanwhile.
                log.exception("retention was not carried out")
            await asyncio.sleep(every_s)

    keep.save(data)
    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
