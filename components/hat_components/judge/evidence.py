"""Tools by which a member looks into the trace of the turn that it judges.

Always holds: nothing after the judged turn can be seen; every answer is bounded; searching is for plain text, so that
no pattern can stall the judge; whatever a trace contains comes back between fences that its author could not know.
Not here: asking the member (members), the rubric (prompt).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from hat_components.judge.subject import Subject
from hat_harness.digest import digest_bytes
from hat_harness.trace import CallSummary, Segment, TurnSummary, turns

LIMIT = 6000
"""Characters of one answer; longer texts are read in pages."""
_HITS = 12
_AROUND = 160


def _tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS: tuple[dict[str, Any], ...] = (
    _tool("list_turns", "The turns up to the judged one: event, comment, outcome."),
    _tool("get_turn", "One turn: comments, skills, calls by number, hooks that fired, reply.", turn="integer"),
    _tool("get_call", "One tool call of a turn with arguments and full result.", turn="integer", call="integer"),
    _tool("get_instructions", "The agent's instructions (skills, tools, rules, room), by page from 1.", page="integer"),
    _tool("get_skill", "The text of a skill that was loaded.", skill="string"),
    _tool("get_room", "The room as the session began with it, by page from 1.", page="integer"),
    _tool(
        "search",
        "Where a text occurs in instructions, skills, room, comments, calls, results and replies.",
        text="string",
    ),
)
"""OpenAI function definitions."""


class Evidence:
    """Read-only view of one subject's trace."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    @cached_property
    def turns(self) -> dict[int, TurnSummary]:
        """The turns up to the judged one, by index."""
        return {t.index: t for t in turns(self.subject.trace) if t.index <= self.subject.turn}

    @cached_property
    def fence(self) -> str:
        """Marks what comes from this trace. It follows from the whole trace, so nothing in the trace can contain it."""
        return digest_bytes(f"{self.subject.id}\x1f{self.subject.trace.model_dump_json()}".encode())[7:19]

    @property
    def judged(self) -> TurnSummary:
        """The turn that is judged."""
        return self.turns[self.subject.turn]

    def instructions(self) -> str:
        """The system prompt of the segment that the judged turn ended in, as far as it can be told."""
        for segment in reversed(self._segments()):
            for message in segment.messages:
                if message.role == "system":
                    return message.content
        return ""

    def skills(self) -> dict[str, str]:
        """Canonical id and written name of each loaded skill → its text as the agent read it."""
        results = {m.tool_call_id: m.content for s in self.subject.trace.segments for m in s.messages if m.tool_call_id}
        found: dict[str, str] = {}
        for entry in self.subject.trace.entries:
            if entry.kind == "note" and entry.type == "skill" and entry.turn <= self.subject.turn:
                text = results.get(entry.data["call_id"], "")
                if text and not entry.data.get("repeated"):
                    found[entry.data["skill"]] = text
                    found[entry.data["name"]] = text
        return found

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The answer of a tool; a wrong call is told what is wrong, never raised."""
        try:
            return self._answer(name, arguments)
        except (KeyError, TypeError, ValueError) as error:
            return f"error: {name} cannot take {json.dumps(dict(arguments), ensure_ascii=False)[:200]} ({error})"

    def text(self) -> str:
        """Everything that a member could read, for telling a copied verdict from a made one."""
        return "\n".join(content for _, content in self._documents())

    def fenced(self, label: str, text: str) -> str:
        """Text of the trace, marked as data."""
        return f"<<{label} {self.fence}\n{text}\n{self.fence}>>"

    def turn_text(self, turn: TurnSummary, *, results: bool) -> str:
        """One turn as lines; `results` also gives the calls' results, shortened."""
        said = " | ".join(turn.texts) or "(no comment)"
        lines = [f"event: {turn.event}", f"comment: {said}", f"skills: {', '.join(turn.skills) or 'none'}"]
        for number, call in enumerate(turn.calls, 1):
            lines.append(f"call {number}: {_call_line(call)}")
            if results:
                lines.append(f"result {number}: {_cut(call.result, LIMIT // 4)}")
        fired = [f"{hook.hook} ({hook.action})" for hook in turn.hooks if hook.fired]
        lines.append(f"hooks that fired: {', '.join(fired) or 'none'}")
        lines.append(f"outcome: {turn.outcome}" + (f" ({turn.reason})" if turn.reason else ""))
        return "\n".join([*lines, f"reply: {_cut(turn.reply, LIMIT // 2)}"])

    def _answer(self, name: str, arguments: Mapping[str, Any]) -> str:
        if name == "list_turns":
            rows = [
                f"{t.index}: {t.event} | {_cut(' | '.join(t.texts), 120)} | {t.outcome}" for t in self.turns.values()
            ]
            return self.fenced("turns", "\n".join(rows))
        if name == "get_turn":
            turn = self.turns[int(arguments["turn"])]
            return self.fenced(f"turn {turn.index}", self.turn_text(turn, results=False))
        if name == "get_call":
            number = int(arguments["call"])
            calls = self.turns[int(arguments["turn"])].calls
            if not 1 <= number <= len(calls):
                raise ValueError(f"the turn has {len(calls)} calls")
            call = calls[number - 1]
            return self.fenced(f"call {number}", f"{_call_line(call)}\nresult: {_cut(call.result, LIMIT)}")
        if name == "get_instructions":
            return self.fenced("instructions", _page(self.instructions(), int(arguments["page"])))
        if name == "get_room":
            room = json.dumps(self.subject.trace.room, ensure_ascii=False, indent=1, default=str)
            return self.fenced("room", _page(room, int(arguments["page"])))
        if name == "get_skill":
            return self.fenced("skill", _cut(self.skills()[str(arguments["skill"])], LIMIT))
        if name == "search":
            return self.fenced("found", self._search(str(arguments["text"])))
        raise ValueError("there is no such tool")

    def _documents(self) -> list[tuple[str, str]]:
        skills = {text: name for name, text in self.skills().items()}
        found = [
            ("instructions", self.instructions()),
            ("room", json.dumps(self.subject.trace.room, ensure_ascii=False, default=str)),
        ]
        found += [(f"skill {name}", text) for text, name in skills.items()]
        for turn in self.turns.values():
            found.append((f"turn {turn.index}", self.turn_text(turn, results=False)))
            found += [(f"turn {turn.index}, result {k}", call.result) for k, call in enumerate(turn.calls, 1)]
        return found

    def _search(self, text: str) -> str:
        wanted = text.casefold().strip()
        if not wanted:
            raise ValueError("the text is empty")
        hits: list[str] = []
        for name, content in self._documents():
            at = content.casefold().find(wanted)
            if at >= 0:
                around = content[max(0, at - _AROUND) : at + len(wanted) + _AROUND].replace("\n", " ")
                hits.append(f"{name}: … {around} …")
        return "\n".join(hits[:_HITS]) if hits else "nowhere"

    def _segments(self) -> list[Segment]:
        """Segments that were open by the end of the judged turn."""
        opened = {0}
        for entry in self.subject.trace.entries:
            if entry.type == "segment" and entry.kind == "note" and entry.turn <= self.subject.turn:
                opened.add(int(entry.data["segment"]))
        return [segment for segment in self.subject.trace.segments if segment.index in opened]


def _call_line(call: CallSummary) -> str:
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False, default=str)
    failed = f" failed: {call.failure}" if call.failure else ""
    return f"{call.tool}({_cut(arguments, 500)}){failed}"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} characters more)"


def _page(text: str, page: int) -> str:
    pages = max(1, -(-len(text) // LIMIT))
    if not 1 <= page <= pages:
        raise ValueError(f"there are {pages} pages")
    return f"{text[(page - 1) * LIMIT : page * LIMIT]}\n(page {page} of {pages})"
