"""JSON Schema rewriting (draft 2020-12 and the older spellings): renaming and reordering of an object's own properties.

Always holds: an instance is valid under a schema exactly when the renamed instance is valid under the renamed schema.
Only the properties of the object itself are touched, wherever in-place keywords (`allOf`, `if`, `dependentSchemas`,
local `$ref` …) speak of them; objects nested below keep their names. Nothing is changed in place.
Not here: changes of type (hat_harness.canonical.with_adapter) and which names are drawn (naming).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hat_harness.errors import AugmentError
from hat_harness.names import permutation

Schema = Mapping[str, Any]

_SCHEMA = ("if", "then", "else", "not")
_SCHEMAS = ("allOf", "anyOf", "oneOf")
_BELOW = ("items", "contains", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "propertyNames")
_BELOW_LIST = ("prefixItems", "items")
_BELOW_MAP = ("properties", "patternProperties", "$defs", "definitions")
_DEFS = ("$defs", "definitions")
_FLAT = frozenset({"type", "properties", "required", "additionalProperties", "title", "description", "$schema"})
"""Keywords of an object schema in which nothing but `properties` and `required` speaks of names."""
_DEFINITION = re.compile(r"#/(\$defs|definitions)/[^/]+\Z")


def completed(mapping: Mapping[str, str]) -> dict[str, str]:
    """The renaming as a permutation (`names.permutation`); AugmentError when two things would share a name."""
    if len(set(mapping.values())) != len(mapping):
        raise AugmentError("a renaming gives two names to one thing", place=", ".join(mapping))
    return permutation(mapping)


def rename_keys(value: Any, mapping: Mapping[str, str]) -> Any:
    """An object with its own keys renamed (`mapping` completed already); any other value as it is."""
    if not isinstance(value, Mapping):
        return value
    return {mapping.get(key, key): inner for key, inner in value.items()}


def property_names(schema: Schema, root: Schema | None = None) -> list[str]:
    """Names of the object's own properties in order of first mention, in-place keywords and references followed."""
    if schema.keys() <= _FLAT:
        return list(schema.get("properties", ()))
    found: dict[str, None] = {}
    for part in _in_place(schema, root or schema):
        properties = part.get("properties")
        if isinstance(properties, Mapping):
            found.update(dict.fromkeys(properties))
    return list(found)


def fixed_names(schema: Schema) -> frozenset[str]:
    """Own properties that must keep their names: some keyword constrains names by pattern, or refers from outside."""
    if schema.keys() <= _FLAT:
        return frozenset()
    fixed: set[str] = set()
    names = property_names(schema)
    for part in _in_place(schema, schema):
        for pattern in part.get("patternProperties", {}):
            fixed.update(name for name in names if re.search(pattern, name))
        limits = part.get("propertyNames", {})
        opaque = isinstance(limits, Mapping) and set(limits) - {"enum", "const", "type", "title", "description"}
        reference = part.get("$ref")
        away = reference is not None and not _DEFINITION.match(str(reference))
        if opaque or away or "$dynamicRef" in part:
            fixed.update(names)
    return frozenset(fixed)


def refers_in_place(schema: Schema) -> bool:
    """Whether renaming has to copy a definition, so that the inverse renaming does not give the same text."""
    return not schema.keys() <= _FLAT and any("$ref" in part for part in _in_place(schema, schema))


def name_fits(schema: Schema, name: str) -> bool:
    """Whether a new property may be called `name`: no pattern of the schema claims it."""
    if schema.keys() <= _FLAT:
        return True
    return not any(re.search(p, name) for part in _in_place(schema, schema) for p in part.get("patternProperties", {}))


def rename_properties(schema: Schema, mapping: Mapping[str, str]) -> dict[str, Any]:
    """The schema with its own properties renamed (old → new). AugmentError when two would share a name."""
    return _Renamer(schema, completed(mapping)).run()


def reorder_properties(schema: Schema, names: Sequence[str]) -> dict[str, Any]:
    """The schema with its top-level `properties` in the order of `names`; those not named follow as they were."""
    properties = schema.get("properties", {})
    order = [name for name in names if name in properties]
    order += [name for name in properties if name not in order]
    return {**schema, "properties": {name: properties[name] for name in order}}


def descriptions(schema: Any, pointer: str = "") -> Iterator[tuple[str, str]]:
    """(pointer, text) of every description in the schema, also of nested ones."""
    if isinstance(schema, Mapping):
        for key, inner in schema.items():
            if key == "description" and isinstance(inner, str):
                yield f"{pointer}/description", inner
            elif isinstance(inner, Mapping | list):
                yield from descriptions(inner, f"{pointer}/{key}")
    elif isinstance(schema, list):
        for index, inner in enumerate(schema):
            yield from descriptions(inner, f"{pointer}/{index}")


def _in_place(schema: Any, root: Schema, seen: tuple[str, ...] = ()) -> Iterator[Schema]:
    """The schema and every subschema that applies to the same instance."""
    if not isinstance(schema, Mapping):
        return
    yield schema
    if schema.keys() <= _FLAT:
        return
    for key in _SCHEMA:
        yield from _in_place(schema.get(key), root, seen)
    for key in _SCHEMAS:
        for inner in schema.get(key, ()):
            yield from _in_place(inner, root, seen)
    for key in ("dependentSchemas", "dependencies"):
        for inner in schema.get(key, {}).values():
            yield from _in_place(inner, root, seen)
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference not in seen:
        yield from _in_place(resolve(root, reference), root, (*seen, reference))


def resolve(root: Schema, reference: str) -> Any:
    """The subschema that a local reference (`#/…`) points to, or None."""
    if not reference.startswith("#/"):
        return None
    node: Any = root
    for token in _tokens(reference):
        if isinstance(node, Mapping) and token in node:
            node = node[token]
        elif isinstance(node, list) and token.isdigit() and int(token) < len(node):
            node = node[int(token)]
        else:
            return None
    return node


def _tokens(reference: str) -> list[str]:
    return [token.replace("~1", "/").replace("~0", "~") for token in reference[2:].split("/")]


def _pointer(tokens: Sequence[str]) -> str:
    return "#/" + "/".join(token.replace("~", "~0").replace("/", "~1") for token in tokens)


class _Renamer:
    """One renaming over one schema; copies of definitions that apply in place are made once each."""

    def __init__(self, root: Schema, mapping: dict[str, str]) -> None:
        self.root = root
        self.mapping = mapping
        self.refers = _mentions(root, "$ref")
        self.copies: dict[str, str] = {}
        """In-place reference → the reference to its renamed copy."""
        self.added: dict[tuple[str, str], Any] = {}

    def run(self) -> dict[str, Any]:
        made: dict[str, Any] = dict(self.own(self.root))
        for (group, name), value in self.added.items():
            made[group] = {**made.get(group, {}), name: value}
        return made

    def own(self, schema: Any) -> Any:
        """A subschema about the renamed object itself."""
        if not isinstance(schema, Mapping):
            return schema
        made: dict[str, Any] = {}
        for key, value in schema.items():
            made[key] = self.keyword(key, value)
        return made

    def keyword(self, key: str, value: Any) -> Any:
        """One keyword of a schema that speaks of the renamed object."""
        name = self.mapping.get
        if key == "properties":
            return {name(own, own): self.below(inner) for own, inner in value.items()}
        if key == "required":
            return [name(own, own) for own in value] if isinstance(value, list) else value
        if key in _SCHEMA:
            return self.own(value)
        if key in _SCHEMAS:
            return [self.own(inner) for inner in value]
        if key == "dependentSchemas":
            return {name(own, own): self.own(inner) for own, inner in value.items()}
        if key in ("dependentRequired", "dependencies"):
            return {
                name(own, own): [name(n, n) for n in inner] if isinstance(inner, list) else self.own(inner)
                for own, inner in value.items()
            }
        if key == "propertyNames" and isinstance(value, Mapping):
            return self.limits(value)
        if key in ("enum", "examples") and isinstance(value, list):
            return [rename_keys(inner, self.mapping) for inner in value]
        if key in ("const", "default"):
            return rename_keys(value, self.mapping)
        if key == "$ref":
            return self.copied(value)
        return self.inside(key, value)

    def limits(self, value: Schema) -> dict[str, Any]:
        """`propertyNames`: the instances are the names themselves."""
        made = dict(value)
        if isinstance(made.get("enum"), list):
            made["enum"] = [self.mapping.get(own, own) for own in made["enum"]]
        if "const" in made:
            made["const"] = self.mapping.get(made["const"], made["const"])
        return made

    def copied(self, reference: Any) -> Any:
        """An in-place reference: its target gets a renamed copy, since others may refer to the same definition."""
        if not isinstance(reference, str) or reference == "#":
            return reference
        if reference not in self.copies:
            target, tokens = resolve(self.root, reference), _tokens(reference)
            if target is None or len(tokens) != 2 or tokens[0] not in _DEFS:
                raise AugmentError(f"cannot rename properties through {reference}", cure="refer to a $defs entry")
            taken = set(self.root.get(tokens[0], {})) | {name for _, name in self.added}
            fresh = next(f"{tokens[1]}_{n}" for n in range(1, len(taken) + 2) if f"{tokens[1]}_{n}" not in taken)
            self.copies[reference] = _pointer([tokens[0], fresh])
            self.added[tokens[0], fresh] = None  # the name is taken before the copy may refer to itself
            self.added[tokens[0], fresh] = self.own(target)
        return self.copies[reference]

    def below(self, schema: Any) -> Any:
        """A subschema about something else: only pointers into renamed properties change."""
        if not self.refers or not isinstance(schema, Mapping):
            return schema
        return {key: self.pointed(value) if key == "$ref" else self.inside(key, value) for key, value in schema.items()}

    def inside(self, key: str, value: Any) -> Any:
        """The value of any other keyword, with the pointers below it followed."""
        if not self.refers:
            return value
        if key in _BELOW_MAP or key in ("dependentSchemas", "dependencies"):
            return {name: self.below(inner) for name, inner in value.items()}
        if isinstance(value, list) and key in (*_BELOW_LIST, *_SCHEMAS):
            return [self.below(inner) for inner in value]
        if key in _BELOW or key in _SCHEMA:
            return self.below(value)
        return value

    def pointed(self, reference: Any) -> Any:
        """A reference whose path runs through a renamed property."""
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return reference
        tokens, index = _tokens(reference), 0
        while index < len(tokens):
            step = tokens[index]
            if step == "properties" and index + 1 < len(tokens):
                tokens[index + 1] = self.mapping.get(tokens[index + 1], tokens[index + 1])
                return _pointer(tokens)
            if step == "dependentSchemas" and index + 1 < len(tokens):
                tokens[index + 1] = self.mapping.get(tokens[index + 1], tokens[index + 1])
                index += 2
            elif step in _SCHEMAS:
                index += 2
            elif step in _SCHEMA:
                index += 1
            else:
                break
        return _pointer(tokens)


def _mentions(value: Any, key: str) -> bool:
    """Whether an object with this key stands anywhere in the value."""
    if isinstance(value, dict):
        if key in value:
            return True
        return any(_mentions(inner, key) for inner in value.values() if isinstance(inner, dict | list))
    return isinstance(value, list) and any(_mentions(inner, key) for inner in value if isinstance(inner, dict | list))
