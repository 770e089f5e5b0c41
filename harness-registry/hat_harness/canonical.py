"""Between what the model writes and what a tool is: surface calls and canonical calls.

The model sees `Tool.name` and `Tool.parameters`; backends, scorers and hooks see `Tool.id` and canonical arguments.
To the surface: adapters in order (each on its canonical parameter), then the names of `parameter_names`, then groups
put into their object. Back: the exact reverse.

Laws: for canonical arguments `a` that the canonical schema accepts, `canonical(surface(a)) == a`; for surface
arguments `s` that `Tool.parameters` accepts, `surface(canonical(s)) == s`. Arguments that no adapter or name concerns
pass unchanged; an unknown one with a name that a renaming took goes by the name that it freed.

| kind | canonical | the model writes |
|---|---|---|
| integer_as_string | 7 | "7" |
| string_as_integer | "7" | 7 |
| boolean_as_words | true | values["true"] |
| words_as_boolean | values["true"] | true |
| values | "red" | values["red"] (values that are not listed stay) |
| array_of_one | x | [x] |
| inner_names | {price: 3} | {values["price"]: 3}, at every depth |
| nested | p, q | into: {p, q} |

Not here: deciding which adapters a tool gets (hat_harness.augment), JSON Schema checks (arguments).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hat_harness.arguments import check_arguments
from hat_harness.kept import Kept
from hat_harness.names import permutation
from hat_harness.spec import Adapter, Harness, Tool
from hat_harness.texts import quoted, say

_INTEGER = re.compile(r"(0|-?[1-9][0-9]*)\Z")


@dataclass(frozen=True, slots=True)
class CanonicalCall:
    """A call by canonical tool id with canonical arguments."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallError:
    """Why a call cannot be made; `text` is written for the model, in the harness's language."""

    text: str
    tool: str = ""
    """Canonical id, when the tool is known."""


# ---- one value ------------------------------------------------------------------------------------------------


def _to_surface_value(adapter: Adapter, value: Any) -> Any:
    match adapter.kind:
        case "integer_as_string":
            return str(value)
        case "string_as_integer":
            return int(value)
        case "boolean_as_words":
            return adapter.values["true" if value else "false"]
        case "words_as_boolean":
            return value == adapter.values["true"]
        case "values":
            return adapter.values.get(value, value) if isinstance(value, str) else value
        case "inner_names":
            return renamed_inside(value, permutation(adapter.values))
        case _:
            return [value]


def _to_canonical_value(adapter: Adapter, value: Any) -> Any:
    match adapter.kind:
        case "integer_as_string":
            if not isinstance(value, str) or not _INTEGER.match(value):
                raise ValueError("a whole number in quotes")
            return int(value)
        case "string_as_integer":
            return str(int(value))
        case "boolean_as_words":
            if value == adapter.values["true"]:
                return True
            if value == adapter.values["false"]:
                return False
            raise ValueError(f"{adapter.values['true']} or {adapter.values['false']}")
        case "words_as_boolean":
            return adapter.values["true" if value else "false"]
        case "values":
            inverse = {surface: canonical for canonical, surface in adapter.values.items()}
            return inverse.get(value, value) if isinstance(value, str) else value
        case "inner_names":
            return renamed_inside(value, {new: old for old, new in permutation(adapter.values).items()})
        case _:
            if not isinstance(value, list) or len(value) != 1:
                raise ValueError("a list of one")
            return value[0]


def renamed_inside(value: Any, names: Mapping[str, str]) -> Any:
    """A JSON value with the keys of every object in it renamed (`names` a permutation)."""
    if isinstance(value, Mapping):
        return {names.get(key, key): renamed_inside(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [renamed_inside(inner, names) for inner in value]
    return value


# ---- whole arguments ------------------------------------------------------------------------------------------


def surface_arguments(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Canonical arguments as the model must write them."""
    values = dict(arguments)
    for adapter in tool.adapters:
        if adapter.kind != "nested" and adapter.parameters[0] in values:
            name = adapter.parameters[0]
            values[name] = _to_surface_value(adapter, values[name])
    names = permutation(tool.parameter_names)
    groups = [adapter for adapter in tool.adapters if adapter.kind == "nested"]
    owner = {parameter: adapter.into for adapter in groups for parameter in adapter.parameters}
    surface: dict[str, Any] = {}
    for name, value in values.items():
        written = names.get(name, name)
        if name in owner:
            surface.setdefault(owner[name], {})[written] = value
        else:
            surface[written] = value
    return surface


def canonical_arguments(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Surface arguments as the tool's own; ValueError with a readable reason when a value cannot be read back."""
    if not tool.parameter_names and not tool.adapters:
        return dict(arguments)
    flat: dict[str, Any] = {}
    groups = {adapter.into for adapter in tool.adapters if adapter.kind == "nested"}
    for written, value in arguments.items():
        if written in groups and isinstance(value, Mapping):
            flat.update(value)
        else:
            flat[written] = value
    back = {surface: canonical for canonical, surface in permutation(tool.parameter_names).items()}
    values = {back.get(written, written): value for written, value in flat.items()}
    for adapter in reversed(tool.adapters):
        name = adapter.parameters[0]
        if adapter.kind == "nested" or name not in values:
            continue
        try:
            values[name] = _to_canonical_value(adapter, values[name])
        except ValueError as error:
            raise ValueError(f"{tool.parameter_names.get(name, name)} must be {error}") from None
    return values


_NAMED: Kept[Harness, dict[str, Tool]] = Kept(lambda harness: {tool.name: tool for tool in reversed(harness.tools)})


def named_tool(harness: Harness, name: str) -> Tool | None:
    """The tool that the model knows as `name`, or None; by a table that is made once per harness."""
    return _NAMED.of(harness).get(name)


def canonical_call(harness: Harness, name: str, arguments: Mapping[str, Any]) -> CanonicalCall | CallError:
    """What a call that the model wrote means: tool id and canonical arguments, or why it cannot be made."""
    tool = named_tool(harness, name)
    if tool is None:
        names = [item.name for item in harness.tools]
        if harness.skills:
            names.insert(0, harness.activation.tool)
        return CallError(say(harness.language, "no_tool", name=name, known=quoted(names)))
    try:
        fault = check_arguments(tool, arguments)
    except Exception:  # a schema that `validate` would have refused; jsonschema has no one error class for it
        fault = say(harness.language, "unusable", name=tool.name)
    if fault:
        return CallError(say(harness.language, "error", text=fault), tool.id)
    try:
        return CanonicalCall(tool.id, canonical_arguments(tool, arguments))
    except ValueError as error:
        return CallError(say(harness.language, "error", text=str(error)), tool.id)


def surface_call(harness: Harness, tool_id: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """How the model must write a canonical call: (name, arguments). KeyError for a tool that the harness has not."""
    tool = next((tool for tool in harness.tools if tool.id == tool_id), None)
    if tool is None:
        raise KeyError(tool_id)
    return tool.name, surface_arguments(tool, arguments)


# ---- rewriting a tool -----------------------------------------------------------------------------------------


def _retype(adapter: Adapter) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """How one property's schema changes; descriptions stay, whatever else spoke of the old type goes."""

    def change(schema: dict[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {key: schema[key] for key in ("title", "description") if key in schema}
        values = adapter.values
        match adapter.kind:
            case "integer_as_string":
                if "enum" in schema:
                    return {**kept, "type": "string", "enum": [str(value) for value in schema["enum"]]}
                return {**kept, "type": "string", "pattern": "^(0|-?[1-9][0-9]*)$"}
            case "string_as_integer":
                if "enum" in schema:
                    return {**kept, "type": "integer", "enum": [int(value) for value in schema["enum"]]}
                return {**kept, "type": "integer"}
            case "boolean_as_words":
                return {**kept, "type": "string", "enum": [values["true"], values["false"]]}
            case "words_as_boolean":
                return {**kept, "type": "boolean"}
            case "values":
                changed = dict(schema)
                if "enum" in schema:
                    changed["enum"] = [
                        values.get(value, value) if isinstance(value, str) else value for value in schema["enum"]
                    ]
                if "default" in schema and isinstance(schema["default"], str):
                    changed["default"] = values.get(schema["default"], schema["default"])
                return changed
            case _:
                return {**kept, "type": "array", "items": schema, "minItems": 1, "maxItems": 1}

    return change


_EXPECTS: dict[str, str] = {
    "integer_as_string": "integer",
    "string_as_integer": "string",
    "boolean_as_words": "boolean",
    "words_as_boolean": "string",
}
"""What a parameter must be before it is retyped."""


def _nest(schema: dict[str, Any], names: list[str], into: str) -> None:
    """Moves the named properties into one object property that stands where the first of them stood."""
    properties, required = schema["properties"], schema.get("required", [])
    inner: dict[str, Any] = {"type": "object", "properties": {name: properties[name] for name in names}}
    needed = [name for name in required if name in names]
    if needed:
        inner["required"] = needed
    inner["additionalProperties"] = False
    moved: dict[str, Any] = {}
    for name, value in properties.items():
        if name not in names:
            moved[name] = value
        elif into not in moved:
            moved[into] = inner
    schema["properties"] = moved
    if required:
        outer = [name for name in required if name not in names]
        schema["required"] = [*outer, into] if needed else outer


def with_adapter(tool: Tool, adapter: Adapter) -> Tool:
    """The tool with one more adapter, its schema rewritten to match.

    The parameters must stand at the top level of the schema (a group that was nested stays as it is). ValueError when
    one is missing or of another type than the adapter is for, or when the group's name is taken. Not for `inner_names`,
    which may concern definitions of the whole schema (hat_harness.augment.inner).
    """
    if adapter.kind == "inner_names":
        raise ValueError("inner names are changed with the whole schema")
    schema = copy.deepcopy(tool.parameters)
    properties = schema.setdefault("properties", {})
    names = [tool.parameter_names.get(name, name) for name in adapter.parameters]
    missing = [name for name in names if name not in properties]
    if missing:
        raise ValueError(f"{tool.id} has no top-level parameter {', '.join(missing)}")
    if adapter.kind == "nested":
        if adapter.into in properties and adapter.into not in names:
            raise ValueError(f"{tool.id} already has a parameter {adapter.into}")
        _nest(schema, names, adapter.into)
    else:
        wanted, given = _EXPECTS.get(adapter.kind), properties[names[0]].get("type")
        if wanted is not None and given != wanted:
            raise ValueError(f"{adapter.kind} needs a parameter of type {wanted}, {names[0]} is {given}")
        properties[names[0]] = _retype(adapter)(properties[names[0]])
    return tool.model_copy(update={"parameters": schema, "adapters": (*tool.adapters, adapter)})
