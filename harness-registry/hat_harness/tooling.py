"""Tool calls of a turn: from what the model wrote to requests, results and recorded effects.

Always holds: a call is canonical and schema-checked before it is requested; a call with effects carries an
idempotency key (session, turn, tool, canonical arguments) and is requested at most once per key: an identical call
gets the recorded result, or waits for the one that is out, across restarts of the trajectory. Only read-only calls
are tried again. Errors are results that the model reads. Not here: what the model is told after all results are in
(session).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hat_harness.canonical import CallError, canonical_call, named_tool
from hat_harness.events import ToolCall, ToolRequest
from hat_harness.gates import Decision, Gates, Subject
from hat_harness.log import Log
from hat_harness.render import render_skill
from hat_harness.resources import read_resource
from hat_harness.spec import Harness, Retry, Skill, Tool
from hat_harness.texts import quoted, say
from hat_harness.turn import Turn, Work


def backoff(retry: Retry, attempt: int) -> float:
    """Seconds to wait before try number `attempt` + 1: doubling, bounded."""
    return min(retry.backoff_s * 2.0 ** (attempt - 1), retry.backoff_max_s)


def idempotency_key(session_id: str, turn: int, tool: str, arguments: Mapping[str, Any]) -> str:
    """64 hex that name one effect of one turn."""
    text = json.dumps([session_id, turn, tool, arguments], sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


@dataclass(slots=True)
class Effect:
    """A call with effects that was requested; at most one per key."""

    call_id: str
    key: str
    done: bool = False
    text: str = ""
    failure: str = ""


class Desk:
    """Plans, launches and completes the calls of the open turn."""

    __slots__ = ("_by_call", "_by_key", "_ids", "gates", "harness", "log", "session_id")

    def __init__(self, harness: Harness, session_id: str, log: Log, gates: Gates) -> None:
        self.harness = harness
        self.session_id = session_id
        self.log = log
        self.gates = gates
        self._ids: set[str] = set()
        self._by_key: dict[str, Effect] = {}
        self._by_call: dict[str, Effect] = {}

    def name_calls(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """The calls with ids that are unique in the session; the model's own id is kept where it is."""
        named = []
        for call in calls:
            if call.id and call.id not in self._ids:
                self._ids.add(call.id)
                named.append(call)
                continue
            number = len(self._ids) + 1
            while f"call_{number}" in self._ids:
                number += 1
            self._ids.add(f"call_{number}")
            named.append(ToolCall(f"call_{number}", call.name, call.arguments, call.error))
        return tuple(named)

    # ---- planning ---------------------------------------------------------------------------------------------

    def plan(self, turn: Turn, calls: Sequence[ToolCall], known: Mapping[str, str]) -> Decision | None:
        """Fills `turn.works`; a decision when a `before_tool` hook ends the turn. `known`: skills the model has read."""
        ended: Decision | None = None
        turn.works = []
        for call in calls:
            work = self._work(turn, call, known)
            turn.works.append(work)
            if ended is None and work.request is not None:
                decision = self.gates.run("before_tool", turn, Subject(work=work))
                if decision is not None:
                    ended = self._held(work, decision)
        return ended

    def _held(self, work: Work, decision: Decision) -> Decision | None:
        """A hook spoke before the call: its message is the result, or the turn ends."""
        if decision.kind == "round":
            work.finish(decision.message, "blocked")
        elif decision.kind == "replace":
            work.finish(decision.message)
        else:
            return decision
        work.request = None
        return None

    def _work(self, turn: Turn, call: ToolCall, known: Mapping[str, str]) -> Work:
        harness = self.harness
        arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
        work = Work(call.id, call.name, None, arguments)
        if call.error:
            work.tool = named_tool(harness, call.name)
            work.finish(say(harness.language, "error", text=call.error), "malformed")
        elif call.name == harness.activation.tool and harness.skills:
            self._activate(turn, work, known)
        else:
            self._request(turn, work)
        return work

    def _request(self, turn: Turn, work: Work) -> None:
        harness = self.harness
        found = canonical_call(harness, work.name, work.arguments)
        tool = named_tool(harness, work.name)
        work.tool = tool
        if isinstance(found, CallError) or tool is None:
            work.finish(found.text if isinstance(found, CallError) else "", "malformed")
        elif turn.tool_calls >= harness.limits.tool_calls:
            work.arguments = found.arguments
            work.finish(say(harness.language, "too_many"), "blocked")
        else:
            turn.tool_calls += 1
            work.arguments = found.arguments
            key = "" if tool.read_only else idempotency_key(self.session_id, turn.number, tool.id, found.arguments)
            work.request = ToolRequest(work.call_id, tool.id, found.arguments, key, tool.timeout_s)

    def _activate(self, turn: Turn, work: Work, known: Mapping[str, str]) -> None:
        """The activation tool is carried out here: the skill's body, or one of its files (`skill/path`), is its result."""
        harness = self.harness
        work.activation = True
        activation = harness.activation
        name = work.arguments.get(activation.parameter)
        if not isinstance(name, str) or len(work.arguments) != 1:
            text = say(harness.language, "skill_argument", parameter=activation.parameter)
            work.finish(text, "malformed")
            return
        skill = harness.skill(name)
        owner, slash, path = name.partition("/")
        if skill is None and slash and (holder := harness.skill(owner)) is not None:
            self._read(turn, work, holder, path, loaded=holder.id in turn.skills or holder.id in known)
            return
        if skill is None:
            names = quoted([item.name for item in harness.skills])
            work.finish(say(harness.language, "no_skill", name=name, known=names), "malformed")
            return
        repeated = skill.id in turn.skills or skill.id in known
        if skill.id not in turn.skills:
            turn.skills.append(skill.id)
        data = {"skill": skill.id, "name": name, "call_id": work.call_id, "repeated": repeated}
        self.log.note("skill", data)
        work.finish(say(harness.language, "loaded", name=name) if repeated else render_skill(harness, skill))

    def _read(self, turn: Turn, work: Work, skill: Skill, path: str, *, loaded: bool) -> None:
        """One further file of a loaded skill; it counts as a tool call, so that a turn reads a bounded number."""
        harness = self.harness
        if not loaded:
            work.finish(say(harness.language, "load_first", name=skill.name), "malformed")
        elif turn.tool_calls >= harness.limits.tool_calls:
            work.finish(say(harness.language, "too_many"), "blocked")
        else:
            turn.tool_calls += 1
            text, found = read_resource(harness, skill, path)
            data = {"skill": skill.id, "path": path[:200], "call_id": work.call_id, "found": found}
            self.log.note("resource", data)
            work.finish(text, "" if found else "malformed")

    # ---- running ----------------------------------------------------------------------------------------------

    def launch(self, turn: Turn, now: float) -> tuple[ToolRequest, ...]:
        """Requests that may go out now, within the limit of parallel calls; recorded effects are filled in."""
        found = []
        out = 0
        for work in turn.works:
            out += work.sent and not work.done
        for work in turn.works:
            request = work.request
            if work.done or work.sent or request is None or (work.due is not None and work.due > now):
                continue
            effect = self._by_key.get(request.idempotency_key) if request.idempotency_key else None
            if effect is not None and effect.done:
                work.recorded = True
                work.finish(effect.text, effect.failure)
            elif effect is not None:
                work.sent = work.recorded = True
            elif out < self.harness.limits.parallel_tools:
                out += 1
                work.sent, work.due = True, None
                found.append(request)
                if request.idempotency_key:
                    effect = Effect(work.call_id, request.idempotency_key)
                    self._by_key[effect.key] = self._by_call[effect.call_id] = effect
        return tuple(found)

    def take(self, turn: Turn | None, call_id: str, text: str, failure: str, now: float) -> float | bool:
        """One result. True: taken; False: nobody waits for it; a number: tried again at that time."""
        effect = self._by_call.get(call_id)
        if effect is not None:
            return self._take_effect(turn, effect, text, failure)
        work = next((item for item in turn.works if item.call_id == call_id), None) if turn else None
        if work is None or work.done or not work.sent:
            return False
        text = self._text(text, failure)
        retry = self.harness.recovery.retry
        if failure and failure != "cancelled" and work.attempts < retry.attempts:
            work.attempts += 1
            work.sent = False
            work.due = now + backoff(retry, work.attempts)
            return work.due
        work.finish(text, failure)
        return True

    def _take_effect(self, turn: Turn | None, effect: Effect, text: str, failure: str) -> bool:
        if effect.done:
            return False
        effect.done, effect.text, effect.failure = True, self._text(text, failure), failure
        waiting = False
        for work in turn.works if turn else ():
            if work.sent and not work.done and work.request and work.request.idempotency_key == effect.key:
                work.finish(effect.text, failure)
                waiting = True
        return waiting

    def _text(self, text: str, failure: str) -> str:
        return text or (say(self.harness.language, "failed", kind=failure.replace("_", " ")) if failure else "")

    # ---- after ------------------------------------------------------------------------------------------------

    def note(self, work: Work) -> None:
        """Writes a finished (or abandoned) call into the trace; the activation tool has notes of its own."""
        if work.activation:
            return
        data: dict[str, Any] = {
            "call_id": work.call_id,
            "name": work.name,
            "tool": work.tool.id if work.tool else work.name,
            "arguments": dict(work.arguments),
            "result": work.text,
            "failure": work.failure if work.done else "cancelled",
            "recorded": work.recorded,
        }
        self.log.note("call", data)


def canonical_id(tool: Tool | None, name: str) -> str:
    """The tool's canonical id, or the name as written when there is no such tool."""
    return tool.id if tool else name
