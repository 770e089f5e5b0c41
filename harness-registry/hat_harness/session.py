"""The agent loop, without I/O: a session takes one event and returns the next actions.

Always holds: `handle` never blocks, reads no clock and draws nothing at random; the same events at the same times
give the same actions and the same trace. A turn ends exactly once, with one `Reply`, `Refuse` or `Silence` and then
`Done`: model calls, rounds, restarts and time are bounded, and every way out that is not the model's own ends in the
safe reply. Nothing shown before the final reply can still be rejected by a hook. Events that come late or from
elsewhere are counted in the trace; events that a driver must not send (a viewer message while a turn is open) raise
SessionError and change nothing. Time moves by `Tick` and by the `now` of `handle`; the first actions of a turn ask
for a `Wait` at its deadline.

Room events other than `state` open a turn (the model may greet or thank); they queue while a turn is open. What a turn
shows that the model did not sample (safe reply, refusal, replacement) is appended as an assistant message, so the next
turn's context says what viewers read. Not here: carrying actions out (drive), hooks' expressions (hooks).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from hat_harness import events as ev
from hat_harness.digest import harness_digest
from hat_harness.errors import SessionError
from hat_harness.events import Action, Event, Message
from hat_harness.flow import Flow
from hat_harness.gates import Gates
from hat_harness.hooks import CompiledHooks, compile_hooks
from hat_harness.spec import Harness
from hat_harness.tidy import tidy
from hat_harness.trace import FORMAT, Trace, built
from hat_harness.turn import Turn

State = Literal["idle", "model", "tools", "backoff"]
_QUEUE = 64
"""Room events that wait for the open turn; beyond it the oldest is dropped and counted."""


class Session(Flow):
    """One conversation under one harness.

    `count` gives the tokens of a text (else about a quarter of its bytes); `hooks` are the harness's own, compiled,
    when the caller has them already; `now` is the driver's clock at the start. `history` holds earlier exchanges (viewer,
    agent) that another host kept; they are carried into the first segment as far as they fit.
    """

    __slots__ = ()

    # ---- reading ----------------------------------------------------------------------------------------------

    @property
    def harness(self) -> Harness:
        """The harness that the next turn runs under."""
        return self._harness

    @property
    def state(self) -> State:
        """`idle` between turns; else what the open turn waits for."""
        turn = self._turn
        if turn is None:
            return "idle"
        if turn.pending:
            return "model"
        return "backoff" if turn.due is not None else "tools"

    @property
    def now(self) -> float:
        """The session's time: the latest that a driver told it."""
        return self._log.now

    @property
    def deadline(self) -> float | None:
        """When the open turn ends with the safe reply; None between turns."""
        return None if self._turn is None else self._turn.deadline

    @property
    def waits_for(self) -> frozenset[str]:
        """Ids of the tool calls that are out and not answered."""
        works = self._turn.works if self._turn is not None else ()
        return frozenset(work.call_id for work in works if work.sent and not work.done and not work.recorded)

    @property
    def context(self) -> tuple[Message, ...]:
        """The present segment's messages; empty before the first turn."""
        return tuple(self._segments.last.messages) if self._segments.found else ()

    @property
    def trace(self) -> Trace:
        """Everything that happened so far."""
        harness, room, started = self._start
        values = {
            "format": FORMAT,
            "session": self.session_id,
            "harness": harness_digest(harness),
            "harness_name": harness.name,
            "room": room,
            "started": started,
            "entries": self._log.entries(),
            "segments": self._segments.records(),
            "ignored": dict(self._log.ignored),
        }
        return built(Trace, values)

    # ---- taking events ----------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float | None = None) -> list[Action]:
        """Takes one event at time `now` (default: no time has passed) and returns what to do next.

        SessionError when a driver must not send it now. Nothing else that an event says can raise.
        """
        kind = type(event)
        handler = _HANDLERS.get(kind)
        if handler is None:
            cure = "send one of hat_harness.events"
            raise SessionError(f"{kind.__name__} is no event of a session", cure=cure)
        log, turn = self._log, self._turn
        if kind is ev.Tick:
            now = event.now if now is None else max(now, event.now)  # type: ignore[union-attr]  # kind says so
        now = log.now if now is None or now < log.now else now
        if kind is ev.ViewerMessage:
            self._check_message(event)  # type: ignore[arg-type]  # kind says so
        event = tidy(event)
        log.now = now
        self._out = []
        if turn is not None:
            if kind is ev.Tick and not self._due(turn):
                return []
            log.event(event, log.turn)
            if now >= turn.deadline:
                self._safe("deadline")
        elif kind is ev.Tick:
            return []
        else:
            log.event(event, log.turn + self._opens(event))
        handler(self, event)
        return self._out

    def _opens(self, event: Event) -> bool:
        return isinstance(event, ev.ViewerMessage) or (isinstance(event, ev.RoomEvent) and event.kind != "state")

    def _check_message(self, event: ev.ViewerMessage) -> None:
        if self._turn is not None:
            cure = "wait for Done, or cancel"
            raise SessionError("a viewer message while a turn is open", place=f"session {self.session_id}", cure=cure)
        if not event.texts:
            raise SessionError("a viewer message without texts", place=f"session {self.session_id}")

    def _due(self, turn: Turn) -> bool:
        """Whether a tick at the present time fires anything."""
        now = self._log.now
        waits = [turn.deadline, turn.due, *(work.due for work in turn.works if not work.done)]
        return any(when is not None and when <= now for when in waits)

    def _on_viewer(self, event: ev.ViewerMessage) -> None:
        self._begin("ViewerMessage", event.texts, "\n".join(event.texts))

    def _on_room(self, event: ev.RoomEvent) -> None:
        if self._turn is not None:
            if len(self._queue) >= _QUEUE:
                self._queue.popleft()
                self._log.ignore("RoomEvent", "queue full")
            self._queue.append(event)
            return
        self._enter(event)

    def _on_delta(self, event: ev.ModelDelta) -> None:
        turn = self._turn
        if turn is None or event.call_id != turn.pending:
            self._log.ignore("ModelDelta", "late")
        elif event.text and not self._gates.compiled.holds_reply:
            turn.shown = True
            self._act(ev.Emit(event.text))

    def _on_output(self, event: ev.ModelOutput) -> None:
        turn = self._turn
        if turn is None or not turn.pending or event.call_id != turn.pending:
            self._log.ignore("ModelOutput", "late")
            return
        turn.pending = ""
        if event.finish_reason == "error":
            self._model_failed(turn, "server")
        else:
            self._take_output(turn, event)

    def _on_result(self, event: ev.ToolResult) -> None:
        self._take_result(event.call_id, event.content, event.failure, "ToolResult")

    def _on_failure(self, event: ev.Failure) -> None:
        turn = self._turn
        if event.scope == "trajectory":
            if turn is None:
                self._log.ignore("Failure", "late")
            else:
                self._trajectory_failed(turn, event.detail or event.kind)
        elif turn is not None and turn.pending and event.call_id == turn.pending:
            turn.pending = ""
            self._model_failed(turn, event.kind)
        else:
            self._take_result(event.call_id, "", event.kind, "Failure")

    def _on_tick(self, event: ev.Tick) -> None:
        turn = self._turn
        if turn is None:
            return
        if turn.due is not None and turn.due <= self._log.now:
            turn.due = None
            self._send(turn)
        elif turn.works:
            self._advance(turn)

    def _on_cancel(self, event: ev.Cancel) -> None:
        self._queue.clear()
        if self._turn is None:
            self._log.ignore("Cancel", "no turn")
        else:
            self._finish("silence", "", f"cancelled: {event.reason}" if event.reason else "cancelled")

    def switch(self, harness: Harness, hooks: CompiledHooks | None = None) -> None:
        """Goes on under another harness from the next turn, in a new segment with the conversation kept.

        SessionError while a turn is open.
        """
        if self._turn is not None:
            raise SessionError("a change of harness while a turn is open", place=f"session {self.session_id}")
        compiled = hooks or compile_hooks(harness)
        self._log.note("harness", {"digest": harness_digest(harness)})
        known = self._gates.known
        self._harness = self._desk.harness = harness
        self._gates = self._desk.gates = Gates(compiled, self._log, harness.language, self._room)
        if known is not None and self._gates.known is not None:
            self._gates.known = known
        self._closed = None
        if self._segments.found:
            self._open("harness")
            self._session_start()


_HANDLERS: dict[type, Callable[[Session, Any], None]] = {
    ev.ViewerMessage: Session._on_viewer,
    ev.RoomEvent: Session._on_room,
    ev.ModelDelta: Session._on_delta,
    ev.ModelOutput: Session._on_output,
    ev.ToolResult: Session._on_result,
    ev.Failure: Session._on_failure,
    ev.Tick: Session._on_tick,
    ev.Cancel: Session._on_cancel,
}
