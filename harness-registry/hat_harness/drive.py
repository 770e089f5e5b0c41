"""Drivers of sessions."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from hat_harness.events import Action, Event
from hat_harness.ports import AsyncModel, AsyncToolBackend, BatchModel, ToolBackend
from hat_harness.session import Session
from hat_harness.trace import Trace


class Clock(Protocol):
    """Time of the async driver."""

    def now(self) -> float:
        """Seconds, never going back."""

    async def sleep_until(self, when: float) -> None:
        """Returns when `now()` has reached `when`."""


def run_batch(
    cases: Sequence[tuple[Session, Sequence[Event]]],
    model: BatchModel,
    tools: ToolBackend | Callable[[str], ToolBackend],
) -> None:
    """Runs every session through its events; the pending model calls of a round are sampled together."""
    raise NotImplementedError


async def run_async(
    session: Session,
    events: Iterable[Event] | AsyncIterable[Event],
    model: AsyncModel,
    tools: AsyncToolBackend | ToolBackend,
    clock: Clock | None = None,
    on_action: Callable[[Action], Awaitable[None] | None] | None = None,
) -> None:
    """Runs one session through its events."""
    raise NotImplementedError


def run_tape(session: Session, trace: Trace) -> Trace:
    """Feeds a recorded trace's events; ReplayError at the first difference."""
    raise NotImplementedError
