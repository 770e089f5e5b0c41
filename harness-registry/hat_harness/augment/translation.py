"""The dictionary between two states of one harness, for names, calls and texts of conversations.

Always holds: it depends on the two harnesses alone, and `Translation(b, a)` is the inverse of `Translation(a, b)`.
Parts are matched by canonical id; what only one side has (distractors) keeps its name.
Not here: walking over messages (trajectory).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from hat_harness.augment.calls import CallMap
from hat_harness.augment.mentions import Closure, completed_lookup
from hat_harness.augment.phrases import Swap
from hat_harness.render import RESULT_FIELDS, activation_quote, render_skill, skill_quote, tool_quote
from hat_harness.spec import Activation, Harness, Skill, Tool
from hat_harness.templates import compile_template
from hat_harness.texts import message_in, result_in

ERRORS = ("error : ", "错误：", 'skill "', "技能 “")
"""How texts start that the session writes itself in place of a tool's result."""
Quotable = Skill | Tool | Activation
_QUOTED = re.compile(r'"([^"\n]*)"|“([^”\n]*)”')


class Translation:
    """From conversations under `source` to conversations under `target`.

    `catalogue`: whether the conversations have read catalogue lines of the harness, which reasoning may quote.
    `replies`: whole replies → the same under the target, where who made the states knows them (another language).
    """

    def __init__(
        self, source: Harness, target: Harness, catalogue: bool = True, replies: Mapping[str, str] | None = None
    ) -> None:
        self.source = source
        self.target = target
        self.catalogue = catalogue
        self.replies = replies or {}
        self._lines: dict[int, tuple[str, str]] = {}

    @cached_property
    def _tools(self) -> list[tuple[Tool, Tool]]:
        there = {tool.id: tool for tool in self.target.tools}
        return [(tool, there[tool.id]) for tool in self.source.tools if tool.id in there]

    @cached_property
    def calls(self) -> dict[str, CallMap]:
        """Tool name in the source → the map of its arguments."""
        return {tool.name: CallMap(tool, other) for tool, other in self._tools}

    @cached_property
    def closure(self) -> Closure:
        """Names of tools, skills and parameters."""
        tools = {tool.name: other.name for tool, other in self._tools}
        parameters: dict[str, Mapping[str, str]] = {name: call.spoken for name, call in self.calls.items()}
        ours, theirs = self.source.activation, self.target.activation
        tools[ours.tool] = theirs.tool
        parameters[ours.tool] = {ours.parameter: theirs.parameter}
        there = {skill.id: skill.name for skill in self.target.skills}
        skills = {skill.name: there[skill.id] for skill in self.source.skills if skill.id in there}
        return Closure.of(tools, skills, parameters, ours.tool)

    @cached_property
    def _quotable(self) -> list[tuple[str, Quotable, Quotable]]:
        """(name, part of the source, part of the target) of everything that stands in the catalogue."""
        if not self.catalogue:
            return []
        there = {skill.id: skill for skill in self.target.skills}
        found: list[tuple[str, Quotable, Quotable]] = [
            (skill.name, skill, there[skill.id]) for skill in self.source.skills if skill.id in there
        ]
        found += [(tool.name, tool, other) for tool, other in self._tools]
        found.append((self.source.activation.tool, self.source.activation, self.target.activation))
        return found

    def quotes(self, text: str) -> list[tuple[str, str]]:
        """(line in the source, line in the target) of what the text quotes from the catalogue, longest first."""
        found = []
        for name, one, other in self._quotable:
            if name in text:
                pair = self._lines.get(id(one))
                if pair is None:
                    pair = self._lines[id(one)] = (_quote(self.source, one), _quote(self.target, other))
                if pair[0] != pair[1] and pair[0] in text:
                    found.append(pair)
        return sorted(found, key=lambda pair: -len(pair[0]))

    @cached_property
    def bodies(self) -> dict[str, tuple[str, str]]:
        """Skill name in the source → what activating it yields in the source and in the target."""
        there = {skill.id: skill for skill in self.target.skills}
        return {
            skill.name: (render_skill(self.source, skill), render_skill(self.target, there[skill.id]))
            for skill in self.source.skills
            if skill.id in there
        }

    @cached_property
    def swap(self) -> Swap:
        """Phrases of hooks, matched by hook and argument."""
        there = {hook.id: hook.arguments for hook in self.target.hooks}
        pairs: dict[str, str] = {}
        for hook in self.source.hooks:
            for argument, phrase in hook.arguments.items():
                other = there.get(hook.id, {}).get(argument, phrase)
                if other:
                    pairs.setdefault(phrase, other)
        return Swap(pairs)

    @cached_property
    def _envelopes(self) -> tuple[tuple[str, str], tuple[str, str]]:
        return _frame(self.source.layout.result), _frame(self.target.layout.result)

    # ---- texts ------------------------------------------------------------------------------------------------

    def reasoning(self, text: str) -> str:
        """Reasoning with quoted catalogue lines and references rewritten."""
        if not text:
            return text
        pieces = [text]
        for ours, theirs in self.quotes(text):
            pieces = _cut(pieces, ours, theirs)
        pieces[::2] = [self.mentioned(piece) for piece in pieces[::2]]
        return "".join(pieces)

    def mentioned(self, text: str) -> str:
        """A text with references in backticks rewritten."""
        return self.closure.text(text, (), self.call) if "`" in text else text

    def reply(self, text: str) -> str:
        """What the agent says: the recorded counterpart, else with demanded phrases exchanged and references rewritten."""
        if text in self.replies:
            return self.replies[text]
        return self.mentioned(self.swap.reply(text))

    def asked(self, text: str) -> str:
        """A user message: what viewers wrote stays, the session's own lines are told in the target's language."""
        return message_in(text, self.source.language, self.target.language)

    def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """A call as it is written under the target."""
        if name == self.source.activation.tool and name not in self.calls:
            closure = self.closure
            made = {closure.parameter(name, key): _named(closure, value) for key, value in arguments.items()}
            return closure.tool(name), made
        mapper = self.calls.get(name)
        return self.closure.tool(name), dict(arguments) if mapper is None else mapper(arguments)

    def result(self, text: str, name: str, arguments: Mapping[str, Any]) -> str:
        """What came back from the source's call `name(arguments)`."""
        (before, after), (new_before, new_after) = self._envelopes
        if text.startswith(ERRORS):
            return result_in(self._error(text, name), self.source.language, self.target.language)
        if name == self.source.activation.tool:
            return self._body(text, arguments)
        if (before, after) == (new_before, new_after):
            return text
        if len(text) >= len(before) + len(after) and text.startswith(before) and text.endswith(after):
            return new_before + text[len(before) : len(text) - len(after)] + new_after
        return text

    def _body(self, text: str, arguments: Mapping[str, Any]) -> str:
        """The body of the activated skill, wherever it stands in what came back."""
        skill = arguments.get(self.source.activation.parameter)
        ours, theirs = self.bodies.get(skill, ("", "")) if isinstance(skill, str) else ("", "")
        if ours and ours in text:
            at = text.index(ours)
            return text[:at] + theirs + text[at + len(ours) :]
        return self.mentioned(text)

    def _error(self, text: str, name: str) -> str:
        """Names in quotation marks in an error that the session wrote."""
        closure = self.closure
        own = closure.parameters.get(name, {})

        def one(match: re.Match[str]) -> str:
            word = match[1] if match[1] is not None else match[2]
            kinds = (own, closure.tools, closure.skills)
            known = next((names[word] for names in kinds if word in names), None)
            if known is None:
                moved = (completed_lookup(names, word) for names in kinds)
                known = next((new for new in moved if new != word), word)
            return match.group()[0] + known + match.group()[-1]

        return _QUOTED.sub(one, text)


def _named(closure: Closure, value: Any) -> Any:
    """What the activation tool is given: a skill, or a file of one (`skill/path`)."""
    if isinstance(value, str) and "/" in value:
        skill, _, path = value.partition("/")
        return f"{closure.skill(skill)}/{path}"
    return closure.skill(value)


def _quote(harness: Harness, part: Quotable) -> str:
    """The part's catalogue line from its first field to its last."""
    if isinstance(part, Skill):
        return skill_quote(harness, part)
    return tool_quote(harness, part) if isinstance(part, Tool) else activation_quote(harness)


def _frame(template: str) -> tuple[str, str]:
    """What stands before and after the result."""
    pieces = compile_template(template, RESULT_FIELDS)
    at = next((index for index, (_, name) in enumerate(pieces) if name), 0)
    before = "".join(literal for literal, _ in pieces[: at + 1])
    return before, "".join(literal for literal, _ in pieces[at + 1 :])


def _cut(pieces: list[str], ours: str, theirs: str) -> list[str]:
    """Cuts the untouched pieces (even places) at every occurrence of `ours`; `theirs` takes the odd places."""
    made: list[str] = []
    for index, piece in enumerate(pieces):
        if index % 2:
            made.append(piece)
            continue
        first, *rest = piece.split(ours)
        made.append(first)
        for part in rest:
            made += [theirs, part]
    return made
