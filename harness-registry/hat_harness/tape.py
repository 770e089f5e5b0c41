"""Traces as JSON lines, and their replay against a fresh session, byte for byte.

Always holds: `parse(dump(trace)) == trace` and `dump` of a replay equals the bytes that were recorded, or ReplayError
tells the first line that differs. Line 1 is the head, then one line per entry, then one per segment. Not here: what
runs models and tools (drive): a replay needs neither.
"""

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from hat_harness.codec import EVENTS, decode
from hat_harness.errors import ReplayError, SessionError
from hat_harness.events import Event, ToolRequest, ToolResult
from hat_harness.hooks import Explanation
from hat_harness.ports import ToolBackend
from hat_harness.session import Session
from hat_harness.spec import Harness, HookEvent
from hat_harness.trace import Entry, Segment, Trace

_EVENT_TYPES = frozenset(cls.__name__ for cls in EVENTS)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _line(value: Any) -> str:
    return _ENCODER.encode(value)


def dump(trace: Trace) -> bytes:
    """The trace as JSON lines, UTF-8. Equal traces give equal bytes."""
    head = trace.model_dump(exclude={"entries", "segments"})
    lines = [_line(head)]
    lines += [_line(entry.__dict__) for entry in trace.entries]
    lines += [_line({"segment": segment.model_dump()}) for segment in trace.segments]
    return ("\n".join(lines) + "\n").encode(errors="surrogatepass")


def parse(data: bytes) -> Trace:
    """The trace that `dump` wrote. ReplayError names the first bad line."""
    entries: list[Entry] = []
    segments: list[Segment] = []
    head: dict[str, Any] | None = None
    number = 1
    try:
        for line in data.decode(errors="surrogatepass").rstrip("\n").split("\n"):
            value = json.loads(line)
            if head is None:
                head = value
            elif "segment" in value and "kind" not in value:
                segments.append(Segment.model_validate(value["segment"]))
            else:
                entries.append(Entry.model_validate(value))
            number += 1
        return Trace.model_validate({**(head or {}), "entries": entries, "segments": segments})
    except (ValueError, ValidationError, TypeError) as error:
        raise ReplayError(f"no trace: {str(error).splitlines()[0]}", place=f"line {number}") from None


def replay(trace: Trace, session: Session, harnesses: Mapping[str, Harness] | None = None) -> Trace:
    """Feeds a recorded trace's events to a fresh session and returns its trace, which has the same bytes.

    The session must be new, with the recorded id, harness, room and token count. `harnesses`: digest → harness, for
    sessions that changed theirs. ReplayError: the session went another way; `place` is the first entry that differs.
    """
    for index, entry in enumerate(trace.entries):
        if entry.kind == "event":
            if entry.type not in _EVENT_TYPES:
                raise ReplayError(f"{entry.type} is no event", place=f"entry {index}")
            event = cast(Event, decode(entry.type, entry.data))
            try:
                session.handle(event, entry.at)
            except SessionError as error:
                compare(trace, session.trace)
                raise ReplayError(f"the session does not take {entry.type}: {error}", place=f"entry {index}") from None
        elif entry.kind == "note" and entry.type == "harness":
            harness = (harnesses or {}).get(entry.data["digest"])
            if harness is None:
                raise ReplayError(f"no harness {entry.data['digest']} to go on with", place=f"entry {index}")
            session.switch(harness)
    again = session.trace
    compare(trace, again)
    return again


@dataclass(frozen=True, slots=True)
class Told:
    """Why one hook fired or not at one moment of a recorded session."""

    turn: int
    event: str
    explanation: Explanation


def explain_trace(trace: Trace, session: Session) -> tuple[Told, ...]:
    """Replays a trace and explains every evaluation of every hook, in order. See `replay` for `session` and errors.

    A trace without segments (put together from a gateway's pieces) is compared by its entries alone.
    """
    found: list[Told] = []
    gates = session._gates  # the one reader of it outside the session: an explanation needs the very contexts

    def watch(event: HookEvent, turn: int, context: Mapping[str, Any]) -> None:
        for compiled in gates.compiled.by_event[event]:
            read = {name: context[name] for name in context if name in compiled.reads and name != "args"}
            frozen = copy.deepcopy(read)
            if "args" in compiled.reads:
                frozen["args"] = compiled.hook.arguments
            fires, error = compiled.verdict(context)
            found.append(Told(turn, event, Explanation(compiled.hook.id, fires, error, frozen)))

    gates.watch = watch
    replay(trace, session)
    return tuple(found)


class RecordedTools:
    """A tool backend that answers from a trace: for shadow traffic and for looking at one session again.

    A call with effects is never passed on; one that was not recorded fails as `unavailable`. Read-only calls that were
    not recorded go to `reads`, when one is given.
    """

    def __init__(self, trace: Trace, reads: ToolBackend | None = None) -> None:
        self._reads = reads
        self._found: dict[str, deque[tuple[str, str]]] = {}
        for entry in trace.entries:
            if entry.kind == "note" and entry.type == "call" and entry.data["failure"] not in ("malformed", "blocked"):
                key = self._key(entry.data["tool"], entry.data["arguments"])
                self._found.setdefault(key, deque()).append((entry.data["result"], entry.data["failure"]))

    @staticmethod
    def _key(tool: str, arguments: Mapping[str, Any]) -> str:
        return _line([tool, dict(arguments)])

    def call(self, session_id: str, request: ToolRequest) -> ToolResult:
        """The recorded result of the same call; the last one repeats."""
        recorded = self._found.get(self._key(request.name, request.arguments))
        if recorded:
            text, failure = recorded.popleft() if len(recorded) > 1 else recorded[0]
            return ToolResult(request.call_id, text, cast(Any, failure))
        if self._reads is not None and not request.idempotency_key:
            return self._reads.call(session_id, request)
        return ToolResult(request.call_id, "", "unavailable")


def compare(recorded: Trace, replayed: Trace) -> None:
    """ReplayError at the first difference between two traces; nothing when their bytes are equal.

    A recorded trace that has entries and no segments is compared by its entries.
    """
    left, right = recorded.entries, replayed.entries
    for index in range(max(len(left), len(right))):
        one = _line(left[index].model_dump()) if index < len(left) else "nothing"
        two = _line(right[index].model_dump()) if index < len(right) else "nothing"
        if one != two:
            raise ReplayError(f"recorded {one[:300]}, replayed {two[:300]}", place=f"entry {index}")
    if not recorded.segments and recorded.entries:
        return
    if dump(recorded) != dump(replayed):
        raise ReplayError("contexts or head differ", place=f"entry {len(left)}")
