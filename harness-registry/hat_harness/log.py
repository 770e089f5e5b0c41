"""A session's record while it runs: cheap appends now, a `Trace` when one is asked for.

Always holds: records are kept as the frozen objects they are and turned into JSON once; turning them again gives equal
entries. Not here: what the entries mean (trace).
"""

from __future__ import annotations

from typing import Any, Literal

from hat_harness.codec import encode
from hat_harness.events import CallModel
from hat_harness.trace import Entry, built

_Raw = tuple[Literal["event", "action", "hook", "note"], float, int, str, Any]


class Log:
    """Entries in order, stamped with the session's time and turn."""

    __slots__ = ("_built", "_raw", "ignored", "now", "turn")

    def __init__(self, now: float) -> None:
        self.now = now
        self.turn = 0
        self.ignored: dict[str, int] = {}
        self._raw: list[_Raw] = []
        self._built: list[Entry] = []

    def event(self, event: Any, turn: int) -> None:
        """An event that the session took, under the number of the turn that it belongs to or opens."""
        self._raw.append(("event", self.now, turn, type(event).__name__, event))

    def action(self, action: Any) -> None:
        """An action that the session asks for."""
        self._raw.append(("action", self.now, self.turn, type(action).__name__, action))

    def hook(self, event: str, data: dict[str, Any]) -> None:
        """A hook's verdict."""
        self._raw.append(("hook", self.now, self.turn, event, data))

    def note(self, name: str, data: dict[str, Any]) -> None:
        """Anything else that the trace documents."""
        self._raw.append(("note", self.now, self.turn, name, data))

    def ignore(self, event: str, reason: str) -> None:
        """An event that came too late or from elsewhere."""
        self.ignored[reason] = self.ignored.get(reason, 0) + 1
        self.note("ignored", {"event": event, "reason": reason})

    def entries(self) -> tuple[Entry, ...]:
        """Everything so far."""
        made = self._built
        for kind, at, turn, name, data in self._raw[len(made) :]:
            cls = type(data)
            if cls is not dict:
                data = _call_model(data) if cls is CallModel else encode(data)
            made.append(built(Entry, {"kind": kind, "at": at, "turn": turn, "type": name, "data": data}))
        return tuple(made)


def _call_model(record: CallModel) -> dict[str, Any]:
    """A model call without its context, which stands in the segment once."""
    return {
        "call_id": record.call_id,
        "segment": record.segment,
        "messages": len(record.messages),
        "known": record.known,
        "max_tokens": record.max_tokens,
        "model": record.model,
    }
