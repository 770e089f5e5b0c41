"""What every workflow engine can do, and how a wait ends.

Always holds: a workflow that is pending is not over; a wait ends when the workflow does, or with an error at its time
limit, after which the workflow goes on. Not here: engines (argo, kfp).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from hat_pipelines.errors import RemoteError
from hat_pipelines.plan import Job
from hat_pipelines.remote.store import Store

State = Literal["pending", "running", "done", "failed", "cancelled"]
OVER: tuple[State, ...] = ("done", "failed", "cancelled")
StepState = Literal["waiting", "running", "done", "cached", "skipped", "failed", "interrupted"]
POLL_S = 2.0


@dataclass(frozen=True, slots=True)
class StepStatus:
    """One step as the engine sees it."""

    state: StepState
    tries: int = 1
    message: str = ""
    started: str = ""
    ended: str = ""
    output: str = ""
    """Key of its step folder in the artifact repository, once it is done."""


@dataclass(frozen=True, slots=True)
class Status:
    """A workflow."""

    name: str
    state: State
    message: str = ""
    steps: Mapping[str, StepStatus] = field(default_factory=dict)
    ident: str = ""
    """By what the engine's own pages find it."""

    @property
    def over(self) -> bool:
        """Whether nothing will change any more."""
        return self.state in OVER


class Engine(Protocol):
    """A workflow engine. Every call has a time limit and raises RemoteError."""

    def start_job(self, job: Job, name: str, store: Store, *, cron: str = "") -> None:
        """Bring a job's inputs to the repository and start it under a name, or keep it as a schedule."""

    def status(self, name: str) -> Status:
        """How far a workflow is."""

    def logs(self, name: str, step: str) -> str:
        """What a step has written so far, "" before it began."""

    def cancel(self, name: str) -> bool:
        """Stop it; False when it was over."""

    def retry(self, name: str) -> None:
        """Run what failed and what is behind it again; finished steps are kept."""


def wait(
    engine: Engine,
    name: str,
    *,
    timeout_s: float | None = None,
    seen: Callable[[Status], None] = lambda status: None,
    pause: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Status:
    """Wait until a workflow is over. An engine that does not answer for a while is asked again, for up to five minutes."""
    begun, away = now(), 0.0
    while True:
        try:
            status = engine.status(name)
            away = 0.0
            seen(status)
            if status.over:
                return status
        except RemoteError as error:
            away += POLL_S
            if error.kind != "unavailable" or away > 300:
                raise
        if timeout_s is not None and now() - begun > timeout_s:
            raise RemoteError(
                f"{name} is not over after {timeout_s:.0f} s",
                place=name,
                cure="it goes on; ask again with pipeline status",
            )
        pause(POLL_S)
