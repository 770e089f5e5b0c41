"""Are a tool's JSON Schemas safe to use? Valid, closed in themselves, finite.

Always holds: a schema that passes compiles, never fetches anything, and its references end (a `$ref` that leads back
to itself is refused). Not here: checking arguments against it (arguments).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hat_harness.spec import Tool

_REMOTE = ("$id", "$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor")
_LITERAL = ("enum", "const", "default", "examples")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
MAX_PATTERN = 512


def _schemas(schema: Any, path: str = "#") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every subschema with its JSON pointer; values (enum, default, ...) are not looked into."""
    if isinstance(schema, Mapping):
        yield path, schema
        for key, value in schema.items():
            if key in _LITERAL:
                continue
            if key in _NAMED and isinstance(value, Mapping):
                for name, inner in value.items():
                    yield from _schemas(inner, f"{path}/{key}/{_escape(name)}")
            else:
                yield from _schemas(value, f"{path}/{_escape(key)}")
    elif isinstance(schema, list):
        for index, inner in enumerate(schema):
            yield from _schemas(inner, f"{path}/{index}")


def _escape(name: str) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")


def _reference_problems(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Remote and dangling references, and references that lead back to themselves."""
    targets: dict[str, str] = {}
    for path, schema in found.items():
        for key in _REMOTE:
            if key in schema:
                yield f"{path}: {key} is not allowed"
        reference = schema.get("$ref")
        if reference is None:
            continue
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            yield f"{path}: $ref {reference} points outside the schema"
        elif reference not in found:
            yield f"{path}: $ref {reference} points to nothing"
        else:
            targets[path] = reference
    yield from _cycles(targets)


def _cycles(targets: Mapping[str, str]) -> Iterator[str]:
    """References whose target holds, directly or through others, the reference itself."""

    def inside(path: str, top: str) -> bool:
        return path == top or path.startswith(top + "/") or top == "#"

    follows = {path: [other for other in targets if inside(other, target)] for path, target in targets.items()}
    state: dict[str, int] = {}
    for start in targets:
        stack = [(start, iter(follows[start]))] if start not in state else []
        state.setdefault(start, 1)
        while stack:
            path, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                state[path] = 2
                stack.pop()
            elif state.get(following) == 1:
                yield f"{path}: $ref {targets[path]} leads back to itself"
                return
            elif following not in state:
                state[following] = 1
                stack.append((following, iter(follows[following])))


def schema_problems(schema: Any) -> list[str]:
    """What is wrong with one schema of a tool."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return ["the schema must be of type object"]
    try:
        Draft202012Validator.check_schema(schema)
        found = dict(_schemas(schema))
    except SchemaError as error:
        return [f"{'/'.join(['#', *map(str, error.absolute_path)])}: {error.message[:200]}"]
    except RecursionError:
        return ["the schema nests too deep"]
    problems = list(_reference_problems(found))
    for path, inner in found.items():
        pattern = inner.get("pattern")
        for text in [pattern] if isinstance(pattern, str) else []:
            if len(text) > MAX_PATTERN:
                problems.append(f"{path}: the pattern is longer than {MAX_PATTERN}")
                continue
            try:
                re.compile(text)
            except re.error as error:
                problems.append(f"{path}: the pattern does not compile: {error}")
    return problems


def _all_properties(schema: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    for name, inner in schema.get("properties", {}).items():
        found.add(name)
        if isinstance(inner, Mapping) and isinstance(inner.get("properties"), Mapping):
            found |= _all_properties(inner)
    return found


def parameter_names(tool: Tool) -> set[str]:
    """Every parameter name of a tool as the model sees it, those inside objects included."""
    return _all_properties(tool.parameters) if isinstance(tool.parameters.get("properties", {}), Mapping) else set()


def adapter_problems(tool: Tool) -> list[str]:
    """Where renamed and retyped parameters do not fit the schema or cannot be undone."""
    known = parameter_names(tool)
    problems = [f"parameter_names: {to} is no parameter" for to in tool.parameter_names.values() if to not in known]
    if len(set(tool.parameter_names.values())) != len(tool.parameter_names):
        problems.append("parameter_names: two parameters have one name")
    nested: set[str] = set()
    for adapter in tool.adapters:
        names = [tool.parameter_names.get(name, name) for name in adapter.parameters]
        problems += [f"adapter {adapter.kind}: {name} is no parameter" for name in names if name not in known]
        values = adapter.values
        if adapter.kind == "nested":
            if adapter.into not in tool.parameters.get("properties", {}):
                problems.append(f"adapter nested: {adapter.into or 'into'} is no parameter")
            problems += [f"adapter nested: {name} is in two groups" for name in adapter.parameters if name in nested]
            nested |= set(adapter.parameters)
        elif len(adapter.parameters) != 1:
            problems.append(f"adapter {adapter.kind}: needs exactly one parameter")
        if adapter.kind == "inner_names" and not values:
            problems.append("adapter inner_names: needs names")
        if adapter.kind in ("boolean_as_words", "words_as_boolean") and set(values) != {"true", "false"}:
            problems.append(f"adapter {adapter.kind}: needs the values true and false")
        if len(set(values.values())) != len(values):
            problems.append(f"adapter {adapter.kind}: two values become one")
    return problems
