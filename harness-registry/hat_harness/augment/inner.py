"""Names of properties below a tool's parameters: in objects, lists of objects, `$ref`, `oneOf`, at any depth.

One renaming holds for all keys of all objects below the parameters concerned, so values need no schema to be renamed.
Always holds: an instance is valid under a schema exactly when the renamed instance is valid under the renamed one; the
inverse renaming gives the same text again. A parameter that may hold keys which are data (maps, open objects, anything)
keeps its names, and so does one that shares a definition with it. Nothing is changed in place.
Not here: the parameters' own names (schema), which names are drawn (naming).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hat_harness.augment.schema import completed
from hat_harness.canonical import renamed_inside
from hat_harness.spec import Adapter, Tool

Schema = Mapping[str, Any]
_DEFINITION = re.compile(r"#/(\$defs|definitions)/([^/]+)\Z")
_PLACE = re.compile(r"#/(properties|\$defs|definitions)/([^/]+)")
_IN_PLACE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not")
_ITEMS = ("items", "prefixItems", "contains", "additionalItems", "unevaluatedItems")
_OPEN = ("patternProperties", "additionalProperties", "unevaluatedProperties")
_TELLS = frozenset({"type", "enum", "const", "properties", *_ITEMS})
_REMOTE = ("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor", "$id")


@dataclass
class _Below:
    """What stands below one parameter."""

    names: dict[str, None] = field(default_factory=dict)
    refs: set[str] = field(default_factory=set)
    open: bool = False
    """Whether some object in it may have keys that are data."""


def inner_names(schema: Schema) -> dict[str, tuple[str, ...]]:
    """Parameter → names of the properties below it, of every parameter in which they may be renamed."""
    below = _closed(schema)
    return {parameter: tuple(found.names) for parameter, found in below.items() if found.names}


def below_names(schema: Any, depth: int = 0) -> set[str]:
    """Every property name below the parameters, renameable or not."""
    found: set[str] = set()
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            if key == "properties" and isinstance(value, Mapping):
                found |= set(value) if depth else set()
                for inner in value.values():
                    found |= below_names(inner, depth + 1)
            elif isinstance(value, Mapping | list):
                found |= below_names(value, depth + (key in ("$defs", "definitions")))
    elif isinstance(schema, list):
        for inner in schema:
            found |= below_names(inner, depth)
    return found


def rename_inner(schema: Schema, mapping: Mapping[str, str]) -> dict[str, Any]:
    """The schema with properties below its parameters renamed (old → new). AugmentError when two would share a name."""
    below = _closed(schema)
    chosen = frozenset(concerned(schema, mapping))
    refs = {ref for parameter in chosen for ref in below[parameter].refs}
    rename = _Renamer(completed(mapping), chosen)
    made = rename.top(schema)
    for group in ("$defs", "definitions"):
        if group in made:
            in_place = {ref for ref, _ in _references(schema)}
            made[group] = {
                name: rename.below(inner)
                if f"#/{group}/{name}" in refs
                else (rename.top(inner) if f"#/{group}/{name}" in in_place and isinstance(inner, Mapping) else inner)
                for name, inner in made[group].items()
            }
    return made


def concerned(schema: Schema, mapping: Mapping[str, str]) -> list[str]:
    """The parameters below which the renaming changes something."""
    return [name for name, found in _closed(schema).items() if not found.names.keys().isdisjoint(mapping)]


def with_inner(tool: Tool, mapping: Mapping[str, str]) -> tuple[Adapter, ...]:
    """The tool's adapters with a renaming below its parameters; one that undoes the last renaming takes it away."""
    canonical = {new: old for old, new in tool.parameter_names.items()}
    back = {new: old for old, new in mapping.items()}
    made = list(tool.adapters)
    for parameter in concerned(tool.parameters, mapping):
        name = canonical.get(parameter, parameter)
        last = next((index for index in reversed(range(len(made))) if name in made[index].parameters), None)
        if last is not None and made[last].kind == "inner_names" and made[last].values == back:
            del made[last]
        else:
            made.append(Adapter(kind="inner_names", parameters=(name,), values=dict(mapping)))
    return tuple(made)


# ---- looking --------------------------------------------------------------------------------------------------


def _closed(root: Schema) -> dict[str, _Below]:
    """What stands below each parameter whose names may change."""
    if not root.get("properties") or not _has_objects(root):
        return {}
    looks: dict[str, _Below] = {}
    spoiled: set[str] = set()
    for part in (root, *(target for _, target in _references(root))):
        for own in _parts(part):
            for name, inner in own.get("properties", {}).items():
                _look(inner, root, looks.setdefault(name, _Below()), set())
            for key in _OPEN:
                other = _Below()
                for inner in _schemas_of(own.get(key), key):
                    _look(inner, root, other, set())
                spoiled |= other.refs
            patterns = own.get("patternProperties", {})
            for name in looks:
                looks[name].open |= any(re.search(pattern, name) for pattern in patterns)
    spoiled |= {ref for ref, _ in _references(root)}
    for place, name in _pointed_at(root):
        if place == "properties" and name in looks:
            looks[name].open = True
        spoiled |= {f"#/{place}/{name}"}
    if any(key in part for part in _everywhere(root) for key in _REMOTE):
        return {}
    while True:
        spoiled |= {ref for found in looks.values() if found.open for ref in found.refs}
        more = [found for found in looks.values() if not found.open and found.refs & spoiled]
        if not more:
            return {name: found for name, found in looks.items() if not found.open}
        for found in more:
            found.open = True


def _has_objects(root: Schema) -> bool:
    """Whether anything but plain scalars stands below the parameters; most tools have nothing."""
    return any(
        not isinstance(inner, Mapping) or not inner.keys().isdisjoint(("properties", "$ref", *_ITEMS, *_IN_PLACE))
        for inner in root["properties"].values()
    )


def _parts(schema: Any) -> Iterator[Schema]:
    """The schema and every subschema that applies to the same instance, references not followed."""
    if not isinstance(schema, Mapping):
        return
    yield schema
    for key in _IN_PLACE:
        value = schema.get(key)
        for inner in value if isinstance(value, list) else [value]:
            yield from _parts(inner)
    for key in ("dependentSchemas", "dependencies"):
        for inner in schema.get(key, {}).values():
            yield from _parts(inner)


def _references(root: Schema) -> list[tuple[str, Schema]]:
    """(reference, target) of all definitions that apply to the arguments as a whole."""
    found: dict[str, Schema] = {}
    waiting: list[Any] = [root]
    while waiting:
        for part in _parts(waiting.pop()):
            target = _target(root, part.get("$ref"))
            if target is not None and part["$ref"] not in found:
                found[part["$ref"]] = target
                waiting.append(target)
    return list(found.items())


def _target(root: Schema, reference: Any) -> Any:
    """The definition that a reference names, or None for any other reference."""
    match = _DEFINITION.match(reference) if isinstance(reference, str) else None
    return None if match is None else root.get(match[1], {}).get(match[2].replace("~1", "/").replace("~0", "~"))


def _schemas_of(value: Any, key: str) -> list[Any]:
    if key == "patternProperties" and isinstance(value, Mapping):
        return list(value.values())
    return value if isinstance(value, list) else [] if value is None else [value]


def _everywhere(value: Any) -> Iterator[Schema]:
    if isinstance(value, Mapping):
        yield value
        for inner in value.values():
            yield from _everywhere(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _everywhere(inner)


def _pointed_at(root: Schema) -> Iterator[tuple[str, str]]:
    """Places that a reference enters deeper than at a definition: a pointer there must keep its way."""
    for part in _everywhere(root):
        reference = part.get("$ref")
        if not isinstance(reference, str) or _DEFINITION.match(reference):
            continue
        match = _PLACE.match(reference)
        if match is not None:
            yield match[1], match[2]
        else:
            yield from (("properties", name) for name in root["properties"])


def _look(schema: Any, root: Schema, found: _Below, seen: set[int]) -> None:
    """Everything at one place of an instance and below it."""
    if not isinstance(schema, Mapping):
        found.open |= schema is not False
        return
    if id(schema) in seen:
        return
    seen.add(id(schema))
    parts = list(_resolved(schema, root, found))
    found.open |= not any(part.keys() & _TELLS for part in parts)
    for part in parts:
        kind = part.get("type")
        kinds = kind if isinstance(kind, list) else [kind]
        limits = part.get("propertyNames")
        found.open |= any(part.get(key, False) is not False for key in _OPEN)
        found.open |= isinstance(limits, Mapping) and bool(set(limits) - {"enum", "const", "type"})
        found.open |= "object" in kinds and "properties" not in part and part.get("additionalProperties") is not False
        found.open |= "array" in kinds and not any(other.keys() & set(_ITEMS[:2]) for other in parts)
        for name, inner in part.get("properties", {}).items():
            found.names[name] = None
            _look(inner, root, found, seen)
        for key in _ITEMS:
            for inner in _schemas_of(part.get(key), key):
                _look(inner, root, found, seen)


def _resolved(schema: Any, root: Schema, found: _Below) -> Iterator[Schema]:
    """`_parts` with references to definitions followed, each once; any other reference opens what it stands in."""
    waiting, done = [schema], set[str]()
    while waiting:
        for part in _parts(waiting.pop()):
            yield part
            reference = part.get("$ref")
            if reference is None or reference in done:
                continue
            target = _target(root, reference)
            if target is None:
                found.open = True
                continue
            done.add(reference)
            found.refs.add(reference)
            waiting.append(target)


# ---- renaming -------------------------------------------------------------------------------------------------


class _Renamer:
    """One renaming; `chosen` are the parameters below which it holds."""

    def __init__(self, mapping: dict[str, str], chosen: frozenset[str]) -> None:
        self.mapping = mapping
        self.chosen = chosen

    def top(self, schema: Schema) -> dict[str, Any]:
        """A subschema about the arguments as a whole: their names stay."""
        made: dict[str, Any] = {}
        for key, value in schema.items():
            if key == "properties":
                made[key] = {name: self.below(inner) if name in self.chosen else inner for name, inner in value.items()}
            elif key in _IN_PLACE:
                made[key] = [self._top(inner) for inner in value] if isinstance(value, list) else self._top(value)
            elif key in ("dependentSchemas", "dependencies"):
                made[key] = {name: self._top(inner) for name, inner in value.items()}
            elif key in ("enum", "examples") and isinstance(value, list):
                made[key] = [self._arguments(inner) for inner in value]
            elif key in ("const", "default"):
                made[key] = self._arguments(value)
            else:
                made[key] = value
        return made

    def _top(self, schema: Any) -> Any:
        return self.top(schema) if isinstance(schema, Mapping) else schema

    def _arguments(self, value: Any) -> Any:
        """A value of the arguments as a whole."""
        if not isinstance(value, Mapping):
            return value
        return {
            name: renamed_inside(inner, self.mapping) if name in self.chosen else inner for name, inner in value.items()
        }

    def below(self, schema: Any) -> Any:
        """A subschema about something below a chosen parameter."""
        if isinstance(schema, list):
            return [self.below(inner) for inner in schema]
        if not isinstance(schema, Mapping):
            return schema
        return {key: self._keyword(key, value) for key, value in schema.items()}

    def _keyword(self, key: str, value: Any) -> Any:
        name = self.mapping.get
        if key in ("properties", "dependentSchemas"):
            return {name(own, own): self.below(inner) for own, inner in value.items()}
        if key == "required" and isinstance(value, list):
            return [name(own, own) for own in value]
        if key in ("dependentRequired", "dependencies"):
            return {
                name(own, own): [name(n, n) for n in inner] if isinstance(inner, list) else self.below(inner)
                for own, inner in value.items()
            }
        if key == "propertyNames" and isinstance(value, Mapping):
            made = dict(value)
            if isinstance(made.get("enum"), list):
                made["enum"] = [name(own, own) if isinstance(own, str) else own for own in made["enum"]]
            if isinstance(made.get("const"), str):
                made["const"] = name(made["const"], made["const"])
            return made
        if key in ("enum", "examples", "const", "default"):
            return renamed_inside(value, self.mapping)
        if key in (*_IN_PLACE, *_ITEMS, *_OPEN):
            return self.below(value)
        return value
