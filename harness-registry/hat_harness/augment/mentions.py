"""Reference closure in texts: which words of a text name a skill, a tool or a parameter, and how they are rewritten.

A text refers to a thing by its name in backticks: `name`, `tool.parameter`, `tool(parameter=value)`,
`parameter=value`; or by a call written as JSON in a fenced block. Nothing else is touched: a word that merely equals a
name is prose. Always holds: `Closure.inverse()` undoes what `Closure` did, on any text; an unknown name stays unknown.
Not here: which names are drawn (naming), conversations' bare identifiers (conversation).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from hat_harness.augment.schema import completed

_CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
_NAME = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"
_SINGLE = re.compile(_NAME + r"\Z")
_DOTTED = re.compile(rf"({_NAME})\.({_NAME})\Z")
_CALL = re.compile(rf"({_NAME})(\(.*\))\Z", re.DOTALL)
_ASSIGN = re.compile(rf"({_NAME})(\s*[=:]\s*)(.*)\Z", re.DOTALL)
_ARGUMENT = re.compile(rf"(?<=[(,\s])({_NAME})(?=\s*[=:,)])|\"([^\"]*)\"|'([^']*)'|=\s*({_NAME})(?=\s*[,)])")
_FENCE = re.compile(r"```([A-Za-z]*)[ \t]*\n(.*?)\n?```\Z", re.DOTALL)

CallRewriter = Callable[[str, Mapping[str, Any]], tuple[str, dict[str, Any]]]


@lru_cache(maxsize=8192)
def spans(text: str) -> tuple[str, ...]:
    """The text cut into prose (even places) and code with its backticks (odd places)."""
    cut: list[str] = []
    at = 0
    for match in _CODE.finditer(text):
        cut += [text[at : match.start()], match.group()]
        at = match.end()
    return (*cut, text[at:])


def words_in_code(text: str) -> set[str]:
    """Every identifier that stands in code in the text; fresh names avoid them."""
    return {word for code in spans(text)[1::2] for word in re.findall(_NAME, code)} if "`" in text else set()


def dumps_like(value: Any, sample: str) -> str:
    """JSON text of `value` in the style of `sample` (spaces, escapes), as far as it is one of the four usual ones."""
    spaced = (", ", ": ")
    ascii_only = sample.isascii() and "\\u" in sample
    compact = ": " not in sample and ", " not in sample
    return json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":") if compact else spaced)


@dataclass(frozen=True)
class Closure:
    """One renaming of everything that can be named. Maps are complete: unchanged names map to themselves."""

    tools: Mapping[str, str]
    """Old → new name of every tool, the activation tool included."""
    skills: Mapping[str, str]
    parameters: Mapping[str, Mapping[str, str]]
    """Old tool name → old → new name of each of its parameters."""
    activation: str = ""
    """Old name of the activation tool: the value of its parameter is a skill."""
    flat: Mapping[str, str] = field(default_factory=dict)
    """Old → new parameter names where no tool is in sight; filled in by `of`."""
    free: Mapping[str, str] = field(default_factory=dict)
    """Names that became taken → names that became free."""

    @staticmethod
    def of(
        tools: Mapping[str, str],
        skills: Mapping[str, str],
        parameters: Mapping[str, Mapping[str, str]],
        activation: str = "",
    ) -> Closure:
        """A closure with its derived maps."""
        flat: dict[str, str] = {}
        for names in parameters.values():
            for old, new in names.items():
                flat.setdefault(old, new)
        known = {*tools, *skills, *flat}
        free: dict[str, str] = {}
        for mapping in (tools, skills, *parameters.values()):
            for old, new in mapping.items():
                if old != new and new not in known:
                    free.setdefault(new, old)
        return Closure(tools, skills, parameters, activation, flat, free)

    def inverse(self) -> Closure:
        """The closure that leads back."""
        tools = {new: old for old, new in self.tools.items()}
        parameters = {
            self.tools.get(tool, tool): {new: old for old, new in names.items()}
            for tool, names in self.parameters.items()
        }
        skills = {new: old for old, new in self.skills.items()}
        return Closure.of(tools, skills, parameters, self.tools.get(self.activation, ""))

    @property
    def idle(self) -> bool:
        """Whether it changes nothing."""
        return all(old == new for names in (self.tools, self.skills, self.flat) for old, new in names.items()) and all(
            old == new for names in self.parameters.values() for old, new in names.items()
        )

    # ---- single names -----------------------------------------------------------------------------------------

    def tool(self, name: str) -> str:
        """The new name of a called tool."""
        new = self.tools.get(name)
        return completed_lookup(self.tools, name) if new is None else new

    def skill(self, name: Any) -> Any:
        """The new name of an activated skill."""
        if not isinstance(name, str):
            return name
        new = self.skills.get(name)
        return completed_lookup(self.skills, name) if new is None else new

    def parameter(self, tool: str, name: str) -> str:
        """The new name of a parameter of the tool that was called `tool`."""
        names = self.parameters.get(tool)
        if names is None:
            return name
        new = names.get(name)
        return completed_lookup(names, name) if new is None else new

    # ---- texts ------------------------------------------------------------------------------------------------

    def text(self, text: str, near: tuple[str, ...] = (), call: CallRewriter | None = None) -> str:
        """The text with every reference renamed.

        `near` are old names of tools whose parameters the text probably speaks of; a tool mentioned before a parameter
        comes first. `call` rewrites the calls of fenced JSON blocks.
        """
        if "`" not in text:
            return text
        cut = list(spans(text))
        last: list[str] = []
        for place in range(1, len(cut), 2):
            code = cut[place]
            if code.startswith("```"):
                cut[place] = self._fenced(code, call)
            else:
                cut[place] = "`" + self._code(code[1:-1], last, near) + "`"
        return "".join(cut)

    def _code(self, code: str, last: list[str], near: tuple[str, ...]) -> str:
        single = self._single(code, last, near)
        if single is not None:
            return single
        if match := _DOTTED.match(code):
            tool, name = match.groups()
            return f"{self.tool(tool)}.{self.parameter(tool, name)}" if tool in self.tools else code
        if match := _CALL.match(code):
            tool, rest = match.groups()
            if tool in self.tools:
                last[:] = [tool]
                return self.tool(tool) + self._arguments(tool, rest)
            return code
        if (match := _ASSIGN.match(code)) and (new := self._parameter(match[1], last, near)) is not None:
            value = match[3]
            if self.parameters.get(self.activation, {}).get(match[1]) == new:
                bare = value.strip("\"'")
                value = value.replace(bare, self.skill(bare)) if bare else value
            return new + match[2] + value
        return code

    def _single(self, code: str, last: list[str], near: tuple[str, ...]) -> str | None:
        if code in self.tools:
            last[:] = [code]
            return self.tools[code]
        if code in self.skills:
            return self.skills[code]
        if (found := self._parameter(code, last, near)) is not None:
            return found
        if code in self.free:
            return self.free[code]
        return code if _SINGLE.match(code) else None

    def _parameter(self, code: str, last: list[str], near: tuple[str, ...]) -> str | None:
        for tool in (*last, *near):
            if code in self.parameters.get(tool, ()):
                return self.parameters[tool][code]
        return self.flat.get(code)

    def _arguments(self, tool: str, rest: str) -> str:
        names = self.parameters.get(tool, {})

        def one(match: re.Match[str]) -> str:
            name, double, single, bare = match.groups()
            if name is not None:
                return names.get(name, name)
            value = next(part for part in (double, single, bare) if part is not None)
            if tool != self.activation or value not in self.skills:
                return match.group()
            return match.group().replace(value, self.skills[value])

        return _ARGUMENT.sub(one, rest)

    def _fenced(self, block: str, call: CallRewriter | None) -> str:
        match = _FENCE.match(block)
        if call is None or match is None:
            return block
        try:
            value = json.loads(match[2])
        except ValueError:
            return block
        if not (isinstance(value, dict) and isinstance(value.get("name"), str)):
            return block
        arguments = value.get("arguments")
        if not isinstance(arguments, dict) or dumps_like(value, match[2]) != match[2]:
            return block
        name, renamed = call(value["name"], arguments)
        made = {**value, "name": name, "arguments": renamed}
        return block.replace(match[2], dumps_like(made, match[2]))


def completed_lookup(names: Mapping[str, str], name: str) -> str:
    """Where a name outside the map goes: to the name that it displaced, if it is one of the new names."""
    if name not in names.values():
        return name
    return completed(names)[name]
