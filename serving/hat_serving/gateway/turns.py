"""What is asked of the host and what it answers: plain records of one turn, and the clock that a turn runs on.

Not here: running turns (host), HTTP bodies (chat).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hat_harness import events as ev
from hat_harness.trace import Entry, Trace, TurnSummary, turns
from hat_serving.gateway.brought import Brought

OnText = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Ask:
    """One turn that a client asks for. `unit` and `conversation` are pseudonyms already."""

    name: str
    conversation: str
    unit: str
    event: ev.ViewerMessage | ev.RoomEvent | None
    """None when `results` let an open turn go on."""
    room: dict[str, Any] = field(default_factory=dict)
    history: tuple[tuple[str, str], ...] = ()
    room_id: str = ""
    """For mute only; never stored."""
    room_key: str = ""
    """Pseudonym of the room, for mute."""
    tools: Brought | None = None
    """What the client brings along; None: what it brought to the conversation before."""
    results: tuple[ev.ToolResult, ...] = ()
    """Of calls that the client was given."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How the turn ended, or what it waits for."""

    conversation: str
    arm: str
    release: str
    harness: str
    turn: TurnSummary
    muted: bool = False
    seconds: float = 0.0
    first_s: float | None = None
    """To the first shown text."""
    calls: tuple[ev.ToolRequest, ...] = ()
    """Calls that the client is to make before the turn goes on; () once it is over."""
    shown: str = ""
    """Text that came before those calls."""
    counted: tuple[int, int] = (0, 0)
    """Tokens in and out of the turn that an earlier answer told already."""

    @property
    def text(self) -> str:
        """What the viewer reads; "" for silence."""
        if self.calls:
            return self.shown
        return self.turn.reply if self.turn.outcome in {"reply", "refuse", "safe"} else ""


class Heard:
    """What a turn shows and asks of its client while it runs. `theirs`: ids of the client's tools."""

    def __init__(self, theirs: frozenset[str], on_text: OnText | None) -> None:
        self.shown: list[str] = []
        self.asked: list[ev.ToolRequest] = []
        self.first_at = 0.0
        """When the first text was shown, on the monotonic clock; 0: never."""
        self._theirs = theirs
        self._on_text = on_text

    def told(self, action: ev.Action) -> None:
        """Hear of an action; text is passed on. Nothing is awaited, so that who reads holds up nobody."""
        if type(action) is ev.Emit:
            self.first_at = self.first_at or time.monotonic()
            self.shown.append(action.text)
            if self._on_text is not None:
                self._on_text(action.text)

    def away(self, request: ev.ToolRequest) -> bool:
        """Whether the call is the client's to make; then it is noted."""
        theirs = request.name in self._theirs
        if theirs:
            self.asked.append(request)
        return theirs


def summary(trace: Trace, entries: Sequence[Entry], ask: Ask) -> TurnSummary:
    """What the turn in `entries` came to; an event that opens no turn (a new room state) is silence."""
    found = turns(trace.model_copy(update={"entries": tuple(entries)}))
    return found[-1] if found else nothing(ask, "state")


def nothing(ask: Ask, reason: str) -> TurnSummary:
    """A turn in which nothing happened."""
    return TurnSummary(index=0, event=type(ask.event).__name__, texts=(), outcome="silence", reason=reason)


def begun(trace: Trace) -> int:
    """Where the open turn's entries begin."""
    entries = trace.entries
    last = entries[-1].turn
    return next(index for index, entry in enumerate(entries) if entry.turn == last)


class SessionClock:
    """Continues the session's own time: never back, whatever the wall clock of this or another machine does.

    `still`: time stood still since the session was last told it, as for a turn that waited for its client.
    """

    def __init__(self, session_now: float, *, still: bool = False) -> None:
        self._offset = (session_now if still else max(session_now, time.time())) - time.monotonic()

    def now(self) -> float:
        """Seconds."""
        return time.monotonic() + self._offset

    async def sleep_until(self, when: float) -> None:
        """Sleep."""
        await asyncio.sleep(max(0.0, when - self.now()))
