"""The state of one open turn. Plain mutable records; what happens to them is in session, tooling and gates.

Always holds: a turn ends exactly once; every counter only grows, except by a restart, which starts the trajectory's
own lists again and keeps the counters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hat_harness.events import Message, ToolRequest
from hat_harness.spec import Tool


@dataclass(slots=True)
class Work:
    """One tool call that the model asked for."""

    call_id: str
    name: str
    tool: Tool | None
    """None for the activation tool and for names that no tool has."""
    arguments: Mapping[str, Any]
    """Canonical when `tool` is set and the arguments were valid, else as written."""
    request: ToolRequest | None = None
    """Set when the call is to be made."""
    text: str = ""
    failure: str = ""
    done: bool = False
    sent: bool = False
    recorded: bool = False
    activation: bool = False
    forced: str | None = None
    """Text that a `before_tool` hook gives as the result."""
    attempts: int = 0
    due: float | None = None
    """When a failed call is tried again."""

    def finish(self, text: str, failure: str = "") -> None:
        """The call is over."""
        self.text, self.failure, self.done, self.due = text, failure, True, None


@dataclass(slots=True)
class Turn:
    """One turn from the event that opened it to its reply."""

    number: int
    event: str
    texts: tuple[str, ...]
    deadline: float
    messages: list[Message] = field(default_factory=list)
    """What the open trajectory has put into the context, the user message first."""
    skills: list[str] = field(default_factory=list)
    finished: list[Work] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    """Calls of the last output, in its order."""
    rounds: int = 0
    fired: dict[str, int] = field(default_factory=dict)
    """Hook → how often it has sent this turn back."""
    model_calls: int = 0
    tool_calls: int = 0
    restarts: int = 0
    attempts: int = 0
    """Failed tries of the present model call."""
    fallback: bool = False
    pending: str = ""
    """Id of the model call that is out, or ""."""
    due: float | None = None
    """When a failed model call is tried again."""
    shown: bool = False
    """Text of the present model call was emitted."""

    def restart(self) -> None:
        """Drops the trajectory and keeps the question."""
        del self.messages[1:]
        self.skills, self.finished, self.works = [], [], []
        self.attempts, self.pending, self.due, self.shown = 0, "", None, False
