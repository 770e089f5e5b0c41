"""How a turn goes on: from the event that opens it, through model calls, gates and tools, to its one end.

Always holds: what stands at the top of hat_harness.session. Every method leaves the session either idle or waiting for
something that it has asked for (a model call, tool results, a tick). Not here: which events may come when (session),
planning and recording of tool calls (tooling).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hat_harness import events as ev
from hat_harness.canonical import named_tool
from hat_harness.events import Action, Message
from hat_harness.gates import Decision, Gates, Subject
from hat_harness.hooks import CompiledHooks, compile_hooks
from hat_harness.log import Log
from hat_harness.render import render_result, render_skill, room_lines
from hat_harness.segments import Reason, Segments
from hat_harness.spec import Harness
from hat_harness.texts import event_line, say
from hat_harness.tooling import Desk, backoff, canonical_id
from hat_harness.trace import Outcome
from hat_harness.turn import Turn


class Flow:
    """The open turn of a session and everything that it works with."""

    __slots__ = (
        "_calls",
        "_closed",
        "_desk",
        "_gates",
        "_harness",
        "_log",
        "_out",
        "_queue",
        "_room",
        "_segments",
        "_shown_room",
        "_start",
        "_turn",
        "session_id",
    )

    def __init__(
        self,
        harness: Harness,
        *,
        session_id: str,
        room: Mapping[str, Any] | None = None,
        hooks: CompiledHooks | None = None,
        count: Callable[[str], int] | None = None,
        now: float = 0.0,
        history: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.session_id = session_id
        self._harness = harness
        self._room: dict[str, Any] = dict(room or {})
        self._shown_room = self._room
        self._log = Log(now)
        self._gates = Gates(hooks or compile_hooks(harness), self._log, harness.language, self._room)
        self._desk = Desk(harness, session_id, self._log, self._gates)
        self._segments = Segments(count)
        self._segments.exchanges.extend((Message("user", said), Message("assistant", told)) for said, told in history)
        self._turn: Turn | None = None
        self._out: list[Action] = []
        self._queue: deque[ev.RoomEvent] = deque()
        self._calls = 0
        self._closed: Decision | None = None
        self._start = (harness, self._room, now)

    # ---- a turn -----------------------------------------------------------------------------------------------

    def _act(self, action: Action) -> None:
        self._out.append(action)
        self._log.action(action)

    def _open(self, reason: Reason, turn: Turn | None = None) -> None:
        segment = self._segments.open(self._harness, self._room, reason, turn.messages if turn else ())
        self._shown_room = self._room
        if turn is not None:
            turn.messages[:] = segment.messages[len(segment.messages) - len(turn.messages) :]
        self._log.note("segment", {"segment": segment.index, "reason": reason})
        if self._gates.known is not None:
            for message in segment.messages:
                if message.role != "assistant":
                    self._gates.known.read(message.content)

    def _enter(self, event: ev.RoomEvent) -> None:
        """A room event while no turn is open: the room changes, and all but `state` open a turn."""
        if event.state is not None:
            self._room = dict(event.state)
            self._gates.room = self._room
        if event.kind != "state":
            self._begin(event.kind, (), event_line(self._harness.language, event.kind, event.data))

    def _session_start(self) -> None:
        if self._gates.compiled.by_event:
            nothing = Turn(0, "", (), 0.0)
            self._closed = self._gates.run("session_start", nothing, Subject())

    def _begin(self, name: str, texts: tuple[str, ...], content: str) -> None:
        self._log.turn += 1
        turn = Turn(self._log.turn, name, texts, self._log.now + self._harness.limits.deadline_s)
        self._turn = turn
        self._log.note("turn", {"event": name, "texts": list(texts)})
        if not self._segments.found:
            self._open("start")
            self._session_start()
        self._add(turn, Message("user", "\n".join([*self._room_changes(), content])))
        closed = self._closed
        if closed is not None:
            self._end(closed)
            return
        self._call(turn)
        if self._turn is turn:
            self._act(ev.Wait(turn.deadline))

    def _room_changes(self) -> list[str]:
        """Lines for what the model has not read yet of the room."""
        if self._room is self._shown_room:
            return []
        shown, self._shown_room = self._shown_room, self._room
        if "room" not in self._harness.sections:
            return []
        changed = {key: value for key, value in self._room.items() if key not in shown or shown[key] != value}
        gone = [say(self._harness.language, "gone", key=key) for key in shown if key not in self._room]
        return room_lines(changed) + gone

    def _add(self, turn: Turn, message: Message) -> None:
        """A message of the open trajectory that was not sampled."""
        turn.messages.append(message)
        self._segments.add(message)
        if self._gates.known is not None and message.role != "assistant":
            self._gates.known.read(message.content)

    def _call(self, turn: Turn) -> None:
        """The next model call of the trajectory."""
        decision = self._gates.run("before_model", turn, Subject())
        if decision is not None and decision.kind != "round":
            self._end(decision)
            return
        if decision is not None:
            self._add(turn, Message("user", decision.message, name=decision.hook.split(" ")[0]))
        turn.attempts = 0
        self._send(turn)

    def _send(self, turn: Turn) -> None:
        if turn.model_calls >= self._harness.limits.model_calls:
            self._safe("model calls")
            return
        if self._segments.full(self._harness, turn.messages):
            self._open("budget", turn)
        segment = self._segments.last
        turn.model_calls += 1
        self._calls += 1
        turn.pending = f"m{self._calls}"
        turn.shown = False
        messages = tuple(segment.messages)
        known, segment.sent = segment.sent, len(messages)
        model = self._harness.recovery.fallback_model if turn.fallback else ""
        limit = self._harness.limits.output_tokens
        self._act(ev.CallModel(turn.pending, segment.index, messages, known, segment.tools, limit, model))

    def _take_output(self, turn: Turn, output: ev.ModelOutput) -> None:
        calls = self._desk.name_calls(output.tool_calls) if output.tool_calls else ()
        blank = not calls and not output.content.strip()
        decision = None
        if "after_model" in self._gates.compiled.by_event:
            decision = self._gates.run("after_model", turn, self._subject(output, calls))
        if blank and decision is None:
            decision = self._gates.run("stop", turn, self._subject(output, ()))
            if decision is None:
                self._model_failed(turn, "malformed")
                return
        message = Message("assistant", output.content, output.reasoning, calls)
        turn.messages.append(message)
        total = output.prompt_tokens + output.completion_tokens if output.prompt_tokens else 0
        self._segments.add_sampled(message, output.call_id, total)
        turn.works = []
        if decision is not None:
            self._after_output(turn, decision, calls)
        elif calls:
            ended = self._desk.plan(turn, calls, self._bodies())
            if ended is not None:
                self._end(ended)
            else:
                self._advance(turn)
        else:
            self._stop(turn, output)

    def _subject(self, output: ev.ModelOutput, calls: tuple[ev.ToolCall, ...]) -> Subject:
        ids = tuple([canonical_id(named_tool(self._harness, call.name), call.name) for call in calls])
        return Subject(output.content, output.reasoning, ids, output.finish_reason)

    def _after_output(self, turn: Turn, decision: Decision, calls: tuple[ev.ToolCall, ...]) -> None:
        """A hook spoke about an output: another round with its message, or the end."""
        text = decision.message if decision.kind == "round" else say(self._harness.language, "not_made")
        for call in calls:
            self._add(turn, Message("tool", render_result(self._harness, text), tool_call_id=call.id, name=call.name))
        if decision.kind != "round":
            self._end(decision)
            return
        if not calls:
            self._add(turn, Message("user", decision.message, name=decision.hook.split(" ")[0]))
        self._call(turn)

    def _stop(self, turn: Turn, output: ev.ModelOutput) -> None:
        decision = self._gates.run("stop", turn, self._subject(output, ()))
        if decision is None:
            self._finish("reply", output.content, "")
        else:
            self._after_output(turn, decision, ())

    def _bodies(self) -> dict[str, str]:
        """Skills whose body stands in the present segment, when the harness loads each only once per segment."""
        if self._harness.activation.once_per == "turn":
            return {}
        bodies = {render_skill(self._harness, skill): skill.id for skill in self._harness.skills}
        read = (message.content for message in self._segments.last.messages if message.role == "tool")
        return {bodies[text]: text for text in read if text in bodies}

    # ---- tools ------------------------------------------------------------------------------------------------

    def _take_result(self, call_id: str, text: str, failure: str, name: str) -> None:
        taken = self._desk.take(self._turn, call_id, text, failure, self._log.now)
        if taken is False:
            self._log.ignore(name, "late")
            return
        if taken is not True:
            self._act(ev.Wait(taken))
        if self._turn is not None:
            self._advance(self._turn)

    def _advance(self, turn: Turn) -> None:
        """Launches what may go out; when every call of the output is done, tells the model."""
        requests = self._desk.launch(turn, self._log.now)
        if requests:
            self._act(ev.CallTools(requests))
        for work in turn.works:
            if not work.done:
                return
        ended: Decision | None = None
        works, turn.works = turn.works, []
        for work in works:
            decision = None
            if work.tool is not None and work.request is not None and ended is None:
                decision = self._gates.run("after_tool", turn, Subject(work=work))
            text = self._told(work.text, decision)
            if decision is not None and decision.kind not in ("round", "replace"):
                ended = decision
            if not work.activation:
                text = render_result(self._harness, self._segments.cut(text, self._room_left()))
                turn.finished.append(work)
            self._desk.note(work)
            self._add(turn, Message("tool", text, tool_call_id=work.call_id, name=work.name))
        if ended is not None:
            self._end(ended)
        else:
            self._call(turn)

    def _told(self, text: str, decision: Decision | None) -> str:
        """What the model reads of a result after the hooks."""
        if decision is None or decision.kind not in ("round", "replace"):
            return text
        return f"{text}\n{decision.message}" if decision.keep else decision.message

    def _room_left(self) -> int:
        """Tokens that one more result may take: half of what is left, and a sixteenth of the budget at least."""
        limits = self._harness.limits
        budget = limits.segment_tokens - limits.output_tokens
        return max((budget - self._segments.last.tokens) // 2, limits.segment_tokens // 16)

    # ---- failures and ends ------------------------------------------------------------------------------------

    def _model_failed(self, turn: Turn, kind: str) -> None:
        """A model call failed: try again, then the fallback model, then the trajectory as a whole."""
        recovery = self._harness.recovery
        turn.attempts += 1
        if turn.shown:
            # Viewers saw a piece of it; only a restart tells the consumer to take it back.
            self._trajectory_failed(turn, f"{kind} after text was shown")
        elif turn.attempts <= recovery.retry.attempts and kind != "cancelled":
            turn.due = self._log.now + backoff(recovery.retry, turn.attempts)
            self._act(ev.Wait(turn.due))
        elif recovery.fallback_model and not turn.fallback:
            turn.fallback, turn.attempts = True, 0
            self._send(turn)
        else:
            self._trajectory_failed(turn, kind)

    def _trajectory_failed(self, turn: Turn, reason: str) -> None:
        if turn.restarts >= self._harness.limits.restarts:
            self._safe(reason)
            return
        for work in turn.works:
            self._desk.note(work)
        turn.restarts += 1
        turn.restart()
        self._act(ev.Restart(turn.restarts, reason))
        self._open("restart", turn)
        self._call(turn)

    def _safe(self, reason: str) -> None:
        self._finish("safe", self._harness.recovery.safe_reply, reason)

    def _end(self, decision: Decision) -> None:
        """Ends the turn as a hook decided."""
        match decision.kind:
            case "refuse":
                self._finish("refuse", decision.message, "", decision.hook)
            case "silence":
                self._finish("silence", "", decision.message or decision.hook)
            case "replace":
                self._finish("reply", decision.message, decision.hook, sampled=False)
            case _:
                self._safe(f"rounds of {decision.hook}")

    def _finish(self, outcome: Outcome, text: str, reason: str, hook: str = "", sampled: bool = True) -> None:
        turn = self._turn
        assert turn is not None  # only called with a turn open
        self._close_calls(turn)
        if outcome == "reply":
            self._act(ev.Reply(text))
        elif outcome == "safe":
            self._act(ev.Reply(text, safe=True))
        elif outcome == "refuse":
            self._act(ev.Refuse(text, hook))
        else:
            self._act(ev.Silence(reason))
        if text and (outcome != "reply" or not sampled):
            self._add(turn, Message("assistant", text))
        self._log.note("end", {"outcome": outcome, "text": text, "reason": reason or hook})
        shown = (Message("assistant", text),) if text else ()
        self._segments.end_turn((turn.messages[0], *shown))
        self._turn = None
        self._act(ev.Done())
        while self._queue and self._turn is None:
            self._enter(self._queue.popleft())

    def _close_calls(self, turn: Turn) -> None:
        """Calls that are still open get an error in the context, so that it stays well-formed, and a note each."""
        for work in turn.works:
            self._desk.note(work)
            text = work.text if work.done else say(self._harness.language, "not_made")
            self._add(turn, Message("tool", text, tool_call_id=work.call_id, name=work.name))
        turn.works = []
