"""Are a call's arguments what the tool's JSON Schema says? One sentence for the model, or nothing.

Always holds: a verdict equals that of `jsonschema` (draft 2020-12) on the same schema with `additionalProperties:
false` put into the top-level object when the schema says nothing about further properties, so a misspelt optional
parameter is told to the model, not lost. Flat objects of plain scalars are checked by compiled closures, everything
else by jsonschema, which loads on first need. Not here: whether a schema is a valid schema (validate).
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hat_harness.kept import Kept
from hat_harness.spec import Tool

Check = Callable[[Any], str]
"""Gives "" for a valid value, else what it must be."""

_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "$comment", "deprecated"})
_SCALAR_KEYS = _ANNOTATIONS | {"type", "enum", "const", "minLength", "maxLength", "minimum", "maximum", "pattern"}
_OBJECT_KEYS = _ANNOTATIONS | {"type", "properties", "required", "additionalProperties", "$schema"}
_CLOSING = ("additionalProperties", "patternProperties", "unevaluatedProperties", "$ref", "allOf", "anyOf", "oneOf")


def _is_integer(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value) and value.is_integer())


_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "string": (lambda value: isinstance(value, str), "a string"),
    "integer": (_is_integer, "a whole number"),
    "number": (lambda value: isinstance(value, int | float) and not isinstance(value, bool), "a number"),
    "boolean": (lambda value: isinstance(value, bool), "true or false"),
}


def _same(left: Any, right: Any) -> bool:
    """JSON equality of scalars: 1 equals 1.0 and neither equals true."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _range_checks(schema: Mapping[str, Any]) -> list[tuple[Callable[[Any], bool], str]]:
    """Length and size limits; they say nothing about values of another type, as JSON Schema has it."""
    checks: list[tuple[Callable[[Any], bool], str]] = []

    def number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    if (least := schema.get("minLength")) is not None:
        checks.append((lambda v: not isinstance(v, str) or len(v) >= least, f"at least {least} characters long"))
    if (most := schema.get("maxLength")) is not None:
        checks.append((lambda v: not isinstance(v, str) or len(v) <= most, f"at most {most} characters long"))
    if (low := schema.get("minimum")) is not None:
        checks.append((lambda v: not number(v) or v >= low, f"at least {low}"))
    if (high := schema.get("maximum")) is not None:
        checks.append((lambda v: not number(v) or v <= high, f"at most {high}"))
    if (pattern := schema.get("pattern")) is not None:
        found = re.compile(pattern).search
        checks.append((lambda v: not isinstance(v, str) or found(v) is not None, f"of the form {pattern}"))
    return checks


def _listed(values: Sequence[Any]) -> str:
    return "one of " + " ".join(f'"{value}"' for value in values)


def _scalar_check(schema: Any) -> Check | None:
    """A closure for a plain scalar schema, or None when the schema says more than the fast path knows."""
    if not isinstance(schema, Mapping) or not _SCALAR_KEYS.issuperset(schema):
        return None
    if not isinstance(schema.get("type"), str) or schema["type"] not in _TYPES:
        return None
    right_type, type_text = _TYPES[schema["type"]]
    checks = _range_checks(schema)
    if "enum" in schema or "const" in schema:
        allowed = [schema["const"]] if "const" in schema else schema["enum"]
        if ("const" in schema and "enum" in schema) or any(isinstance(value, list | dict) for value in allowed):
            return None
        if not allowed:
            return None
        checks.append((lambda value: any(_same(value, item) for item in allowed), _listed(allowed)))
    if not checks:
        return lambda value: "" if right_type(value) else type_text

    def check(value: Any) -> str:
        if not right_type(value):
            return type_text
        for passes, text in checks:
            if not passes(value):
                return text
        return ""

    return check


def _fast(schema: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], str] | None:
    if not _OBJECT_KEYS.issuperset(schema) or schema.get("type") != "object":
        return None
    if schema.get("additionalProperties", False) is not False:
        return None
    checks: dict[str, Check] = {}
    for name, inner in schema.get("properties", {}).items():
        found = _scalar_check(inner)
        if found is None:
            return None
        checks[name] = found
    required: tuple[str, ...] = tuple(schema.get("required", ()))

    def check(arguments: Mapping[str, Any]) -> str:
        for name in required:
            if name not in arguments:
                return f'missing parameter "{name}"'
        for name, value in arguments.items():
            one = checks.get(name)
            if one is None:
                return _unknown(name, checks)
            wanted = one(value)
            if wanted:
                return f'parameter "{name}" must be {wanted}'
        return ""

    return check


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    hint = f'"{close[0]}"' if close else " ".join(f'"{item}"' for item in known)
    return f'unknown parameter "{name}"' + (f" , parameters are {hint}" if hint else " , it takes none")


def _slow(schema: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], str]:
    """Through jsonschema; the first error in order of path is told."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    closed = dict(schema)
    if not any(key in schema for key in _CLOSING):
        closed["additionalProperties"] = False
    # An empty registry: a schema that points outside itself fails instead of fetching anything.
    validator = Draft202012Validator(closed, registry=Registry())

    def check(arguments: Mapping[str, Any]) -> str:
        errors = sorted(validator.iter_errors(dict(arguments)), key=lambda error: [str(step) for step in error.path])
        if not errors:
            return ""
        first = errors[0]
        where = ".".join(str(step) for step in first.path)
        text = first.message[:200]
        return f'parameter "{where}" : {text}' if where else text

    return check


_CHECKS: Kept[Tool, Callable[[Mapping[str, Any]], str]] = Kept(
    lambda tool: _fast(tool.parameters) or _slow(tool.parameters)
)


def check_arguments(tool: Tool, arguments: Mapping[str, Any]) -> str:
    """ "" when the arguments are valid, else one short sentence that tells the model what to change.

    Raises what jsonschema raises for a schema that `validate` refuses.
    """
    return _CHECKS.of(tool)(arguments)
