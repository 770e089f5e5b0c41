"""Carries one order out, in a process of its own: `python -m hat_pipelines.desk.supervise TICKET LOCK`.

The desk starts it and may end before it does. LOCK is an open file descriptor that holds the order's lock: while the
lock is held, the supervisor lives. Always holds: `<ticket>.outcome` says how the order ended, unless the process was
killed outright; SIGTERM ends the run as Ctrl-C would. Not here: the queue (desk), what a run is (run).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from hat_harness.errors import PlatformError
from hat_pipelines import cluster, run, runs
from hat_pipelines.desk.budget import Meter
from hat_pipelines.desk.catalogue import Catalogue
from hat_pipelines.desk.order import Order
from hat_pipelines.errors import InterruptedRunError, StepFailedError
from hat_pipelines.plan import Job
from hat_pipelines.runs import Fault, RunFolder, write_text

WATCH_S = 0.5
"""How often the budget is looked at."""


class Ticket(BaseModel):
    """What the supervisor needs to know, as a file beside the runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    order: Order
    run: str
    root: Path
    cache: Path | None
    profiles: Path
    harnesses: Path
    pipelines: tuple[str, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict)
    """For the steps: where MLflow is."""
    remote: dict[str, str] = Field(default_factory=dict)
    """Where a cluster's workflow engine is (hat_pipelines.remote.settings)."""

    def catalogue(self) -> Catalogue:
        """Names that the order may use."""
        return Catalogue(self.profiles, self.harnesses, self.pipelines)


class Outcome(BaseModel):
    """How an order ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: Literal["done", "failed", "cancelled", "over_budget"]
    fault: Fault | None = None


def main(argv: list[str]) -> int:
    """Body of the process; returns its exit code."""
    ticket_path, lock = Path(argv[0]), int(argv[1])
    os.set_inheritable(lock, False)  # steps must not hold it when this process is gone
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    write_text(ticket_path.with_suffix(".pid"), str(os.getpid()))
    ticket = Ticket.model_validate_json(ticket_path.read_bytes())
    outcome = carry_out(ticket)
    write_text(ticket_path.with_suffix(".outcome"), outcome.model_dump_json())
    return 0 if outcome.state == "done" else 1


def carry_out(ticket: Ticket) -> Outcome:
    """Run the order to its end; never raises for what a person can act on."""
    watch = Watch()
    try:
        if ticket.order.target == "local":
            _local(ticket, watch)
        else:
            from hat_pipelines.remote.follow import follow

            follow(ticket, lambda folder: _watching(watch, ticket.order, run.saved_job(folder))(folder))
    except (InterruptedRunError, KeyboardInterrupt):
        watch.stop()
        if watch.reason:
            cure = "raise the budget and resume: steps that are done are kept"
            fault = Fault(kind="exhausted", message=f"stopped by its budget: {watch.reason}", place="budget", cure=cure)
            return Outcome(state="over_budget", fault=fault)
        return Outcome(state="cancelled")
    except PlatformError as error:
        return Outcome(state="failed", fault=_fault(error))
    except OSError as error:
        full = error.errno in (28, 122)
        cure = "free disk space, or hat cache gc" if full else "look into the supervisor's log"
        told = error.strerror or str(error)
        return Outcome(
            state="failed",
            fault=Fault(
                kind="exhausted" if full else "internal", message=told, place=str(error.filename or ""), cure=cure
            ),
        )
    finally:
        watch.stop()
    return Outcome(state="done")


def _fault(error: PlatformError) -> Fault:
    problems = [str(problem) for problem in getattr(error, "problems", ())]
    told = "\n".join([error.message, *problems[:20]])
    cure = error.cure
    if isinstance(error, StepFailedError) and not cure:
        cure = "read the step's log, then resume"
    return Fault(kind=error.kind, message=told, place=error.place, cure=cure)


def _local(ticket: Ticket, watch: Watch) -> None:
    order = ticket.order
    options = run.Options(
        name=ticket.run,
        from_step=order.from_step,
        only=order.only,
        cache=ticket.cache if order.cache else None,
        quiet=True,
        environment=ticket.environment,
    )
    if order.resume:
        job = run.saved_job(runs.open_run(ticket.root, order.resume))
        run.resume(order.resume, ticket.root, replace(options, name="", on_open=_watching(watch, order, job)))
        return
    job = ticket.catalogue().job(order, ticket.root)
    run.start(job, ticket.root, replace(options, on_open=_watching(watch, order, job)))


def _watching(watch: Watch, order: Order, job: Job) -> Callable[[RunFolder], None]:
    def begin(folder: RunFolder) -> None:
        watch.begin(folder, order, cluster.gpus(job.dag, job.profile))

    return begin


class Watch:
    """Stops this process's run when it passes its budget."""

    def __init__(self) -> None:
        self.reason = ""
        self._over = threading.Event()

    def begin(self, folder: RunFolder, order: Order, gpus: dict[str, int]) -> None:
        """Look at the run's use every so often, if it has a budget."""
        if order.budget.tokens is None and order.budget.gpu_seconds is None:
            return
        meter = Meter(gpus)

        def look() -> None:
            while not self._over.wait(WATCH_S):
                try:
                    self.reason = meter.read(folder).beyond(order.budget)
                except (OSError, ValueError):
                    continue  # the record is replaced whole; the next look finds it
                if self.reason:
                    os.kill(os.getpid(), signal.SIGTERM)
                    return

        threading.Thread(target=look, daemon=True, name="budget").start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
