"""What the model reads of a harness: the system prompt, catalogue lines, skill bodies, tool definitions, result envelopes.

Always holds: pure and deterministic; the same harness and room give the same text. A room view is a mapping of key →
scalar, list of scalars or flat mapping, written one line a key: `list : "red mug" "blue lamp"`, `sale : "ten"`,
`stage : item "red mug" minutes "5"`. Not here: the conversation (session), token ids (hat_components.data).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hat_harness.events import Message, ToolCall
from hat_harness.kept import Kept
from hat_harness.spec import Harness, Skill, Tool
from hat_harness.templates import compile_template, fill, fill_core, render_template

SECTION_FIELDS = ("title", "TITLE", "body")
SKILL_FIELDS = ("name", "description")
TOOL_FIELDS = ("name", "description", "parameters")
RESULT_FIELDS = ("result",)
BUILT_IN = ("skills", "tools", "room")
_BREAK = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]+")
"""Line breaks and other control characters."""


def _skill_values(skill: Skill) -> dict[str, str]:
    return {"name": skill.name, "description": skill.description}


def _tool_values(tool: Tool) -> dict[str, str]:
    names = ",".join(_names(tool.parameters))
    return {"name": tool.name, "description": tool.description, "parameters": names}


def _names(schema: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Parameter names; those inside an object as `object.name`."""
    found = []
    for name, inner in schema.get("properties", {}).items():
        nested = _names(inner, f"{prefix}{name}.") if isinstance(inner, Mapping) else []
        found += nested or [prefix + name]
    return found


def _activation_values(harness: Harness) -> dict[str, str]:
    activation = harness.activation
    return {"name": activation.tool, "description": activation.description, "parameters": activation.parameter}


def skill_line(harness: Harness, skill: Skill) -> str:
    """The catalogue line of one skill."""
    return render_template(harness.layout.skill, SKILL_FIELDS, _skill_values(skill))


def skill_quote(harness: Harness, skill: Skill) -> str:
    """The catalogue line from its first field to its last (what a policy copies to read off the name)."""
    return fill_core(compile_template(harness.layout.skill, SKILL_FIELDS), _skill_values(skill))


def tool_line(harness: Harness, tool: Tool) -> str:
    """The line of one tool."""
    return render_template(harness.layout.tool, TOOL_FIELDS, _tool_values(tool))


def tool_quote(harness: Harness, tool: Tool) -> str:
    """The tool's line from its first field to its last."""
    return fill_core(compile_template(harness.layout.tool, TOOL_FIELDS), _tool_values(tool))


def activation_line(harness: Harness) -> str:
    """The line of the tool that loads a skill; it stands first in the tools section."""
    return render_template(harness.layout.tool, TOOL_FIELDS, _activation_values(harness))


def activation_quote(harness: Harness) -> str:
    """The activation tool's line from its first field to its last."""
    return fill_core(compile_template(harness.layout.tool, TOOL_FIELDS), _activation_values(harness))


def render_value(value: Any) -> str:
    """A room value on one line, every scalar in double quotes."""
    if isinstance(value, str):
        # What comes from a room must not begin a line of its own, which could pass for a heading.
        return f'"{value}"' if value.isprintable() else f'"{_BREAK.sub(" ", value)}"'
    if isinstance(value, Mapping):
        return " ".join([f"{key} {render_value(inner)}" for key, inner in value.items()])
    if isinstance(value, list | tuple):
        return " ".join([render_value(inner) for inner in value])
    if isinstance(value, bool):
        return '"yes"' if value else '"no"'
    return '"none"' if value is None else f'"{value}"'


def room_lines(room: Mapping[str, Any]) -> list[str]:
    """One line a key, in the mapping's order; empty lists and mappings are left out."""
    return [f"{key} : {render_value(value)}" for key, value in room.items() if value not in ([], (), {}, None)]


def _lines(
    harness: Harness, section: str, room: Mapping[str, Any], protected_only: bool = False
) -> list[tuple[str, str]]:
    """(part path, text) of everything that stands in a section, in order."""
    prompts = [part for part in harness.prompts if part.section == section and (part.protected or not protected_only)]
    prompts.sort(key=lambda part: (part.order, part.id))
    found = [(f"prompts/{part.id}.md", part.text) for part in prompts if part.text]
    if section == "skills":
        found += [(f"skills/{skill.id}", skill_line(harness, skill)) for skill in harness.skills]
    elif section == "tools" and harness.layout.tools != "schema":
        if harness.skills:
            found.append(("activation", activation_line(harness)))
        found += [(f"tools/{tool.id}", tool_line(harness, tool)) for tool in harness.tools]
    elif section == "room":
        found += [("room", line) for line in room_lines(room)]
    return found


def section_title(harness: Harness, section: str) -> str:
    """The title of the section's first prompt part that has one, else the section's name."""
    parts = sorted((part for part in harness.prompts if part.section == section), key=lambda p: (p.order, p.id))
    return next((part.title for part in parts if part.title), section)


def _section(harness: Harness, section: str, lines: Sequence[str]) -> str:
    values = _heading(section_title(harness, section), harness.layout.join.join(lines))
    return fill(compile_template(harness.layout.section, SECTION_FIELDS), values)


def _heading(title: str, body: str) -> dict[str, str]:
    return {"title": title, "TITLE": title.upper(), "body": body}


def render_system(harness: Harness, room: Mapping[str, Any] | None = None, *, protected_only: bool = False) -> str:
    """The system prompt: sections in the harness's order, each by the layout's template; empty sections are left out.

    `protected_only` leaves out prompt parts that are not protected (for a segment that would not fit otherwise).
    """
    fixed = _fixed(harness, protected_only=True) if protected_only else _FIXED.of(harness)
    texts = [part.with_lines(room_lines(room or {})) if isinstance(part, _Room) else part for part in fixed]
    return "\n".join([text for text in texts if text])


class _Room:
    """The room's section but for the lines that change; prompt parts of the section stand before them."""

    __slots__ = ("always", "pieces", "title")

    def __init__(self, harness: Harness, always: list[str]) -> None:
        self.always = always
        self.title = section_title(harness, "room")
        self.pieces = (compile_template(harness.layout.section, SECTION_FIELDS), harness.layout.join)

    def with_lines(self, lines: list[str]) -> str:
        """The section's text, "" when there is nothing in it."""
        body = [*self.always, *lines]
        template, join = self.pieces
        return fill(template, _heading(self.title, join.join(body))) if body else ""


def _fixed(harness: Harness, protected_only: bool = False) -> tuple[str | _Room, ...]:
    """The text of every section, "" for empty ones; the room's is filled in later, since it changes."""
    found: list[str | _Room] = []
    for section in harness.sections:
        lines = [text for _, text in _lines(harness, section, {}, protected_only)]
        if section == "room":
            found.append(_Room(harness, lines))
        else:
            found.append(_section(harness, section, lines) if lines else "")
    return tuple(found)


_FIXED: Kept[Harness, tuple[str | _Room, ...]] = Kept(_fixed)


def few_shot_messages(harness: Harness) -> tuple[Message, ...]:
    """The worked examples as messages, in order; they stand between the system prompt and the conversation."""
    return _SHOTS.of(harness)


def _shots(harness: Harness) -> tuple[Message, ...]:
    return tuple(_message(message) for shot in harness.few_shots for message in shot.messages)


def _message(data: Mapping[str, Any]) -> Message:
    """A message in OpenAI chat format as one of ours."""
    calls = []
    for call in data.get("tool_calls") or ():
        arguments = call["function"].get("arguments") or {}
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
        calls.append(ToolCall(str(call.get("id", "")), call["function"]["name"], parsed))
    return Message(
        data["role"],
        data.get("content") or "",
        data.get("reasoning_content") or "",
        tuple(calls),
        data.get("tool_call_id") or "",
        data.get("name") or "",
    )


_SHOTS: Kept[Harness, tuple[Message, ...]] = Kept(_shots)


def render_skill(harness: Harness, skill: Skill) -> str:
    """What the model reads when it activates a skill: the body, then a line that lists the folder's further files."""
    if not skill.resources:
        return skill.body
    return skill.body + "\nfiles : " + " ".join(f'"{path}"' for path in skill.resources)


def render_result(harness: Harness, text: str) -> str:
    """A tool result inside the layout's envelope."""
    template = harness.layout.result
    return text if template == "{result}" else render_template(template, RESULT_FIELDS, {"result": text})


def _function(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": dict(parameters)},
    }


def activation_schema(harness: Harness) -> dict[str, Any]:
    """JSON Schema of the activation tool's arguments. Where skills have files, `skill/path` is an argument too."""
    parameter = harness.activation.parameter
    names = [skill.name for skill in harness.skills]
    schema: dict[str, Any] = {"type": "string", "enum": names}
    if any(skill.resources for skill in harness.skills):
        # No enum: it would either forbid the files or list all of them before any skill is loaded.
        schema = {"type": "string", "description": "a skill, or skill/file once it is loaded"}
    return {
        "type": "object",
        "properties": {parameter: schema},
        "required": [parameter],
        "additionalProperties": False,
    }


def tool_definitions(harness: Harness) -> tuple[dict[str, Any], ...]:
    """OpenAI function definitions, the activation tool first; empty when the layout writes tools inline only."""
    return _DEFINITIONS.of(harness)


def _definitions(harness: Harness) -> tuple[dict[str, Any], ...]:
    if harness.layout.tools == "inline":
        return ()
    activation = harness.activation
    found = [_function(tool.name, tool.description, tool.parameters) for tool in harness.tools]
    if harness.skills:
        found.insert(0, _function(activation.tool, activation.description, activation_schema(harness)))
    return tuple(found)


_DEFINITIONS: Kept[Harness, tuple[dict[str, Any], ...]] = Kept(_definitions)


def parts_cost(harness: Harness, room: Mapping[str, Any] | None, count: Callable[[str], int]) -> list[tuple[str, int]]:
    """Tokens of every part that stands in the system prompt, in its order, and of tool definitions beside it.

    `count` gives the tokens of a text. Section headings are counted as `section/<name>`; a sum of parts may differ from
    the tokens of the whole by what a tokeniser joins across their borders.
    """
    costs: list[tuple[str, int]] = []
    for section in harness.sections:
        lines = _lines(harness, section, room or {})
        if lines:
            costs.append((f"section/{section}", count(_section(harness, section, ["" for _ in lines]))))
            costs += [(path, count(text)) for path, text in lines]
    definitions = tool_definitions(harness)
    costs += [("few_shots", count(message.content)) for message in few_shot_messages(harness)]
    if definitions:
        costs += [
            (f"definitions/{item['function']['name']}", count(json.dumps(item, ensure_ascii=False)))
            for item in definitions
        ]
    return costs
