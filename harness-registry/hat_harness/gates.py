"""Runs the hooks of one lifecycle event and says what follows.

Always holds: hooks run in their order; the first `refuse`, `silence` or `replace` that fires ends the run, messages
of `block` and `require` are gathered so that the model can satisfy them in one round; a hook that has sent a turn
back more often than its `max_rounds` exhausts it. Only the context fields that some hook of the event reads are
built. Not here: what the session does with a decision (session, tooling).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hat_harness.hooks import CompiledHook, CompiledHooks, activation_of, message_of
from hat_harness.log import Log
from hat_harness.numbers import gather, numbers
from hat_harness.spec import HookEvent
from hat_harness.turn import Turn, Work


@dataclass(frozen=True, slots=True)
class Decision:
    """What the hooks of an event ask for."""

    kind: Literal["round", "refuse", "silence", "replace", "exhausted"]
    message: str
    hook: str
    keep: bool = False
    """After a tool: the model reads the result and the message (all that fired were `require`)."""


@dataclass(slots=True)
class Subject:
    """What an event is about, next to the turn itself."""

    reply: str = ""
    reasoning: str = ""
    calls: tuple[str, ...] = ()
    finish: str = ""
    work: Work | None = None


class Known:
    """Numbers of the texts that the model has read in this conversation."""

    __slots__ = ("_numbers", "_texts")

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._numbers: dict[str, None] = {}

    def read(self, text: str) -> None:
        """The model reads this text."""
        self._texts.append(text)

    def numbers(self) -> list[str]:
        """All numbers so far; each text is scanned once."""
        if self._texts:
            self._numbers |= gather(self._texts)
            self._texts.clear()
        return list(self._numbers)


def _work(work: Work, result: bool) -> dict[str, Any]:
    tool = work.tool
    found: dict[str, Any] = {
        "id": tool.id if tool else work.name,
        "name": work.name,
        "arguments": work.arguments,
        "read_only": tool.read_only if tool else True,
    }
    if result:
        found["result"] = work.text
        found["failed"] = work.failure != ""
    return found


class Gates:
    """The hooks of one session."""

    __slots__ = ("compiled", "known", "language", "log", "room", "watch")

    def __init__(self, compiled: CompiledHooks, log: Log, language: str, room: Mapping[str, Any]) -> None:
        self.compiled = compiled
        self.log = log
        self.language = language
        self.room = room
        self.watch: Callable[[HookEvent, int, Mapping[str, Any]], None] | None = None
        """Told the context of every event that has hooks, before they run."""
        wanted = any("known_numbers" in reads for reads in compiled.reads.values())
        self.known = Known() if wanted else None

    def context(self, event: HookEvent, turn: Turn, subject: Subject) -> dict[str, Any]:
        """The fields that hooks of this event read."""
        return {name: _BUILD[name](self, event, turn, subject) for name in self.compiled.reads[event]}

    def run(self, event: HookEvent, turn: Turn, subject: Subject) -> Decision | None:
        """What the hooks of `event` ask for; None when nothing does."""
        hooks = self.compiled.by_event.get(event)
        if not hooks:
            return None
        context = self.context(event, turn, subject)
        if self.watch is not None:
            self.watch(event, turn.number, context)
        activation = activation_of(event, context)
        sent_back: list[tuple[CompiledHook, str]] = []
        for item in hooks:
            hook = item.hook
            fired, error = item.verdict(context, activation)
            entry = {"hook": hook.id, "action": hook.action, "fired": fired}
            if error:
                entry["error"] = error
            self.log.hook(event, entry)
            if not fired:
                continue
            work = subject.work
            message = message_of(hook, {"reply": subject.reply, "result": work.text if work else ""})
            if message:
                entry["message"] = message
            if hook.action in ("refuse", "silence", "replace"):
                return Decision(hook.action, message, hook.id)
            if hook.action != "annotate":
                sent_back.append((item, message))
        return self._round(turn, sent_back) if sent_back else None

    def _round(self, turn: Turn, sent_back: list[tuple[CompiledHook, str]]) -> Decision:
        """One more round for all that asked for it, unless one of them has had its share."""
        message = "\n".join(dict.fromkeys(text for _, text in sent_back if text))
        hooks = [item.hook for item, _ in sent_back]
        names = " ".join(hook.id for hook in hooks)
        exhausted = False
        for hook in hooks:
            turn.fired[hook.id] = turn.fired.get(hook.id, 0) + 1
            exhausted = exhausted or turn.fired[hook.id] > hook.max_rounds
        if exhausted:
            return Decision("exhausted", message, names)
        turn.rounds += 1
        self.log.note("round", {"hooks": [hook.id for hook in hooks], "message": message})
        return Decision("round", message, names, keep=all(hook.action == "require" for hook in hooks))


_BUILD: dict[str, Callable[[Gates, HookEvent, Turn, Subject], Any]] = {
    "event": lambda gates, event, turn, subject: event,
    "language": lambda gates, event, turn, subject: gates.language,
    "room": lambda gates, event, turn, subject: gates.room,
    "args": lambda gates, event, turn, subject: {},
    "turn": lambda gates, event, turn, subject: turn.number,
    "round": lambda gates, event, turn, subject: turn.rounds,
    "viewer": lambda gates, event, turn, subject: list(turn.texts),
    "skills": lambda gates, event, turn, subject: turn.skills,
    "tools": lambda gates, event, turn, subject: [_work(work, True) for work in turn.finished],
    "tool": lambda gates, event, turn, subject: (
        _work(subject.work, event == "after_tool") if subject.work is not None else {}
    ),
    "reply": lambda gates, event, turn, subject: subject.reply,
    "reasoning": lambda gates, event, turn, subject: subject.reasoning,
    "calls": lambda gates, event, turn, subject: list(subject.calls),
    "finish": lambda gates, event, turn, subject: subject.finish,
    "numbers": lambda gates, event, turn, subject: numbers(subject.reply),
    "known_numbers": lambda gates, event, turn, subject: gates.known.numbers() if gates.known else [],
}
