"""The agent loop, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hat_harness.events import Action, Event, Message
from hat_harness.hooks import CompiledHooks
from hat_harness.spec import Harness
from hat_harness.trace import Trace


class Session:
    """One conversation under one harness: takes events, gives the next actions."""

    def __init__(
        self,
        harness: Harness,
        *,
        session_id: str,
        room: Mapping[str, Any] | None = None,
        hooks: CompiledHooks | None = None,
        count: Callable[[str], int] | None = None,
        now: float = 0.0,
    ) -> None:
        raise NotImplementedError

    def handle(self, event: Event, now: float | None = None) -> list[Action]:
        """Takes one event; returns what must be done next."""
        raise NotImplementedError

    @property
    def trace(self) -> Trace:
        """Everything that happened so far."""
        raise NotImplementedError

    @property
    def context(self) -> tuple[Message, ...]:
        """The present segment's messages."""
        raise NotImplementedError

    @property
    def state(self) -> str:
        """idle, model, tools, backoff."""
        raise NotImplementedError
