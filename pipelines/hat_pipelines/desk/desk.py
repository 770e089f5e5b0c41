"""The desk: starts queued orders within a limit, notices what ended, fires schedules. One thread, or `tick` by hand.

Always holds: everything that it knows is in the database and in files beside the runs, so another desk goes on where
this one stopped; a supervisor is never ended with its desk. Not here: what an order is (order), pages (hat_console).
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import ValidationError

from hat_harness.errors import PlatformError
from hat_pipelines import runs
from hat_pipelines.desk import cron, released
from hat_pipelines.desk.catalogue import Catalogue
from hat_pipelines.desk.order import Order
from hat_pipelines.desk.store import Ordered, OrderStore, Scheduled
from hat_pipelines.desk.supervise import Outcome, Ticket
from hat_pipelines.errors import RemoteError, RunConflictError
from hat_pipelines.runs import Fault, write_text
from hat_registry import clock
from hat_registry.store.database import Database

log = logging.getLogger("hatstack.desk")
TICK_S = 0.5
LATE = timedelta(minutes=5)
"""A schedule that comes to be seen later than this after it was due is not made up for."""
LOST = Fault(
    kind="unavailable",
    message="the run's supervisor is gone: the machine went down, or it was killed",
    place="supervisor",
    cure="resume the run: finished steps are kept, training goes on from its last checkpoint",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a desk works."""

    root: Path
    """Runs directory."""
    cache: Path | None = None
    limit: int = 1
    """Runs on this machine at a time; runs on a cluster wait there."""
    remote_limit: int = 20
    environment: Mapping[str, str] = field(default_factory=dict)
    remote: Mapping[str, str] = field(default_factory=dict)


class Desk:
    """Orders over one database and one runs directory."""

    def __init__(
        self,
        database: Database,
        catalogue: Catalogue,
        settings: Settings,
        now: Callable[[], datetime] = clock.now,
    ) -> None:
        self.settings = settings
        self.catalogue = catalogue
        self.store = OrderStore(database, settings.root)
        self._database = database
        self._now = now
        self._children: list[subprocess.Popen[bytes]] = []
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    # ---- what people do -------------------------------------------------------------------------------------

    def place(self, workspace: str, account: str, order: Order) -> Ordered:
        """Queue an order once its names and values have been checked."""
        if not order.resume:
            order = self._pinned(workspace, order)
            self._check(order)
        placed = self.store.place(workspace, account, order)
        self._wake.set()
        return placed

    def cancel(self, one: Ordered) -> bool:
        """Take an order out of the queue or ask its supervisor to end; False when it was over already."""
        if self.store.change(one.id, "queued", "cancelled"):
            return True
        pid = self._pid(one.id)
        if one.state != "running" or pid is None or not self._lives(one.id):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        return True

    def put_schedule(self, workspace: str, account: str, name: str, text: str, order: Order) -> Scheduled:
        """Make or replace a schedule; its order is checked now, not at night."""
        if order.resume or order.name:
            raise RunConflictError("a scheduled run gets a new name each time", place=name, cure="leave the name empty")
        self._check(self._pinned(workspace, order))
        return self.store.schedule(workspace, account, name, text, order, self._now())

    def released(self, workspace: str) -> list[str]:
        """Pointers to releases that may stand for a model: `@live/production`."""
        return released.names(self._database, workspace)

    def _pinned(self, workspace: str, order: Order) -> Order:
        return released.pinned(self._database, workspace, order, self.settings.root)

    def _check(self, order: Order) -> None:
        loaded, dag = self.catalogue.profile(order)
        self.catalogue.harness(loaded.harness)
        self.catalogue.brought(order, dag, self.settings.root)
        if order.target != "local" and not self.settings.remote.get(order.target):
            raise RemoteError(
                f"this console knows no {order.target}", kind="invalid_input", place="target", cure="choose local"
            )

    def switch(self, workspace: str, name: str, enabled: bool) -> None:
        """Switch a schedule on or off; what came due meanwhile is not made up for."""
        self.store.enable(workspace, name, enabled, self._now())

    # ---- the loop -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Work in a thread until `stop`."""
        self._thread = threading.Thread(target=self._loop, daemon=True, name="desk")
        self._thread.start()

    def stop(self) -> None:
        """End the thread; supervisors go on."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(10)

    def _loop(self) -> None:
        while not self._stop.is_set():
            try:
                self.tick()
            except PlatformError as error:  # the database is away: the next tick may find it
                log.warning("desk: %s", error)
            except OSError as error:
                log.warning("desk: %s", error)
            self._wake.wait(TICK_S)
            self._wake.clear()

    def tick(self) -> None:
        """Settle what ended, fire what is due, start what may start; nothing while another desk works here."""
        with self._alone() as mine:
            if mine:
                self._work()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Hold the runs directory's desk lock; false while another process does."""
        folder = self.settings.root / ".orders"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "desk.lock").open("a") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            yield True

    def _work(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]
        active = self.store.active()
        for one in active:
            if one.state == "running" and not self._lives(one.id):
                self._settle(one)
        for scheduled in self.store.schedules():
            self._fire(scheduled)
        self._start_queued()

    def _start_queued(self) -> None:
        active = self.store.active()
        for local in (True, False):
            mine = [one for one in active if (one.order.target == "local") is local]
            room = self.settings.limit if local else self.settings.remote_limit
            free = room - sum(one.state == "running" for one in mine)
            for one in [one for one in mine if one.state == "queued"][: max(0, free)]:
                if self.store.change(one.id, "queued", "running"):
                    self._launch(one)

    def _launch(self, one: Ordered) -> None:
        folder = self.settings.root / ".orders"
        ticket = Ticket(
            order=one.order, run=one.run, root=self.settings.root.resolve(), cache=self.settings.cache,
            profiles=self.catalogue.profiles.resolve(), harnesses=self.catalogue.harnesses.resolve(),
            pipelines=self.catalogue.pipelines, environment=dict(self.settings.environment),
            remote=dict(self.settings.remote),
        )  # fmt: skip
        path = folder / f"{one.id}.json"
        write_text(path, ticket.model_dump_json(indent=2))
        with path.with_suffix(".lock").open("a") as lock, path.with_suffix(".log").open("ab") as told:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            command = [sys.executable, "-m", "hat_pipelines.desk.supervise", str(path), str(lock.fileno())]
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=told, stderr=told, pass_fds=(lock.fileno(),),
                start_new_session=True,
            )  # fmt: skip
        self._children.append(child)

    def _lives(self, ident: str) -> bool:
        """Whether the order's supervisor runs: its lock is held."""
        path = self.settings.root / ".orders" / f"{ident}.lock"
        try:
            with path.open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _pid(self, ident: str) -> int | None:
        try:
            return int((self.settings.root / ".orders" / f"{ident}.pid").read_text())
        except (OSError, ValueError):
            return None

    def _settle(self, one: Ordered) -> None:
        """Bring the database up to how a supervisor ended."""
        path = self.settings.root / ".orders" / f"{one.id}.outcome"
        try:
            outcome = Outcome.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            if one.order.target != "local":
                self._launch(one)  # the cluster goes on by itself; only its follower is gone
                return
            self.store.change(one.id, "running", "interrupted", LOST)
            _close(self.settings.root, one.run)
            return
        self.store.change(one.id, "running", outcome.state, outcome.fault)

    def _fire(self, scheduled: Scheduled) -> None:
        now = self._now()
        if not scheduled.enabled:
            return
        due = cron.parse(scheduled.cron).after(clock.parse(scheduled.looked_at))
        if due > now:
            return
        before = [one for one in self.store.active() if one.schedule == scheduled.name]
        order, wrong = scheduled.order, ""
        try:
            order = self._pinned(scheduled.workspace, order)
        except PlatformError as error:
            wrong = error.message
        if now - due > LATE:
            note = f"{clock.text(due)}: missed, no desk was up"
        elif before:
            note = f"{clock.text(due)}: skipped, {before[0].run} is not over"
        elif wrong:
            note = f"{clock.text(due)}: {wrong}"
        else:
            if not self.store.looked(scheduled, now, fired=scheduled.fired + 1, note=""):
                return
            try:
                self.store.place(scheduled.workspace, scheduled.created_by, order, schedule=scheduled.name)
            except PlatformError as error:
                log.warning("schedule %s: %s", scheduled.name, error)
            return
        self.store.looked(scheduled, now, skipped=scheduled.skipped + 1, note=note)


def _close(root: Path, run: str) -> None:
    """Mark what a dead supervisor left as running."""
    try:
        folder = runs.open_run(root, run)
    except PlatformError:
        return
    if folder.record.state != "running":
        return
    with contextlib.suppress(RunConflictError), folder.lock():
        for name, step in folder.record.steps.items():
            if step.state == "running":
                folder.set_step(name, state="interrupted", ended=runs.now())
        folder.save(state="interrupted", ended=runs.now())
