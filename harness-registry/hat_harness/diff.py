"""What an edit of a harness means: renamed skills, retyped parameters, moved sections, changed texts.

Always holds: parts are matched by canonical id, and one whose id changed too by equal content, so a rename is never
told as a removal and an addition; equal harnesses have no changes, and every part that differs is named by at least
one. Not here: how changes are shown (the command line and the console do that).
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hat_harness.names import permutation
from hat_harness.spec import Harness, Part, Skill, Tool

ChangeKind = Literal["added", "removed", "renamed", "moved", "retyped", "changed"]
_LISTS = {"prompts": "prompt", "skills": "skill", "tools": "tool", "hooks": "hook", "few_shots": "few shot"}
_SETTINGS = ("layout", "activation", "limits", "recovery")


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that an edit does."""

    kind: ChangeKind
    path: str
    """From the outside in: `skill item_qa`, `tool get_item / parameter item`, `sections`, `limits / deadline_s`."""
    before: Any = None
    """JSON value before, None where there was none."""
    after: Any = None
    """JSON value after, None where there is none."""

    def __str__(self) -> str:
        told = [_short(value) for value in (self.before, self.after) if value is not None]
        return f"{self.path} {self.kind}" + (f": {' -> '.join(told)}" if told else "")


def diff(old: Harness, new: Harness) -> tuple[Change, ...]:
    """Every change from `old` to `new`: parts first, then what belongs to the harness as a whole."""
    return tuple(_changes(old, new))


def words(before: str, after: str) -> list[tuple[Literal["same", "added", "removed"], str]]:
    """A text edit word by word; the pieces that are not `added` spell `before`, those not `removed` spell `after`."""
    a, b = (re.findall(r"\s+|\w+|[^\w\s]", text) for text in (before, after))
    pieces: list[tuple[Literal["same", "added", "removed"], str]] = []
    for step, i1, i2, j1, j2 in difflib.SequenceMatcher(a=a, b=b, autojunk=False).get_opcodes():
        if step == "equal":
            pieces.append(("same", "".join(a[i1:i2])))
            continue
        if i1 < i2:
            pieces.append(("removed", "".join(a[i1:i2])))
        if j1 < j2:
            pieces.append(("added", "".join(b[j1:j2])))
    return pieces


def _changes(old: Harness, new: Harness) -> Iterator[Change]:
    for name, label in _LISTS.items():
        yield from _parts(label, name, getattr(old, name), getattr(new, name))
    before, after = ({file.path: file for file in harness.files} for harness in (old, new))
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            yield Change(_presence(before.get(path), after.get(path)), f"file {path}")
    if sorted(old.sections) == sorted(new.sections) and old.sections != new.sections:
        yield Change("moved", "sections", list(old.sections), list(new.sections))
    else:
        yield from _fields("sections", old.sections, new.sections)
    for name in (*_SETTINGS, "name", "description", "language", "aliases", "client_tools"):
        yield from _fields(name, getattr(old, name), getattr(new, name))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "..."


def _presence(before: object, after: object) -> ChangeKind:
    if before is None:
        return "added"
    return "removed" if after is None else "changed"


def _plain(value: Any) -> Any:
    """The value as JSON data."""
    if isinstance(value, Part):
        return value.model_dump(mode="json")
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _fields(path: str, before: Any, after: Any, skip: Sequence[str] = ()) -> Iterator[Change]:
    """One change for each field that differs; a value without fields is one change itself."""
    if before == after:
        return
    if not (isinstance(before, Part) and isinstance(after, Part)):
        yield Change("changed", path, _plain(before), _plain(after))
        return
    for name in type(after).model_fields:
        if name not in skip:
            yield from _fields(f"{path} / {name}", getattr(before, name), getattr(after, name))


def _parts(label: str, name: str, old: Sequence[Any], new: Sequence[Any]) -> Iterator[Change]:
    before, after = ({part.id: part for part in parts} for parts in (old, new))
    gone = [ident for ident in before if ident not in after]
    came = [ident for ident in after if ident not in before]
    for ident in tuple(gone):
        twin = next((other for other in came if _same_content(before[ident], after[other])), None)
        if twin is not None:
            gone.remove(ident)
            came.remove(twin)
            yield Change("renamed", f"{label} {ident} / id", ident, twin)
    yield from (Change("removed", f"{label} {ident}") for ident in gone)
    yield from (Change("added", f"{label} {ident}") for ident in came)
    compare = _COMPARE.get(label, _fields)
    for ident in after:
        if ident in before:
            yield from compare(f"{label} {ident}", before[ident], after[ident])
    order = [[ident for ident in first if ident in second] for first, second in ((before, after), (after, before))]
    if order[0] != order[1]:
        yield Change("moved", name, *order)


def _same_content(a: Part, b: Part) -> bool:
    """Equal but for what it is called."""
    update: dict[str, Any] = {name: "" for name in ("id", "name") if name in type(a).model_fields}
    return a.model_copy(update=update) == b.model_copy(update=update)


def _skill(path: str, old: Skill, new: Skill) -> Iterator[Change]:
    if old.name != new.name:
        yield Change("renamed", path, old.name, new.name)
    yield from _fields(path, old, new, skip=("name",))


def _prompt(path: str, old: Any, new: Any) -> Iterator[Change]:
    if old.section != new.section:
        yield Change("moved", path, old.section, new.section)
    yield from _fields(path, old, new, skip=("section",))


def _tool(path: str, old: Tool, new: Tool) -> Iterator[Change]:
    if old.name != new.name:
        yield Change("renamed", path, old.name, new.name)
    yield from _parameters(path, old, new)
    yield from _fields(path, old, new, skip=("name", "parameters", "parameter_names"))


_Compare = Callable[[str, Any, Any], Iterator[Change]]
_COMPARE: Mapping[str, _Compare] = {"prompt": _prompt, "skill": _skill, "tool": _tool}


def _parameters(path: str, old: Tool, new: Tool) -> Iterator[Change]:
    """Changes of the parameters, matched by canonical name; whatever else differs in the schema is told as a whole."""
    before, after = _canonical(old), _canonical(new)
    told = 0
    for name in (*before, *(name for name in after if name not in before)):
        for change in _parameter(f"{path} / parameter {name}", before.get(name), after.get(name)):
            told += 1
            yield change
    if not told and (old.parameters, old.parameter_names) != (new.parameters, new.parameter_names):
        yield Change("changed", f"{path} / parameters", old.parameters, new.parameters)


@dataclass(frozen=True, slots=True)
class _Parameter:
    """What the model sees of one parameter."""

    name: str
    type: str
    required: bool
    rest: Mapping[str, Any]


def _parameter(path: str, old: _Parameter | None, new: _Parameter | None) -> Iterator[Change]:
    if old is None or new is None:
        yield Change(_presence(old, new), path, old and old.type, new and new.type)
        return
    if old.name != new.name:
        yield Change("renamed", path, old.name, new.name)
    if old.type != new.type:
        yield Change("retyped", path, old.type, new.type)
    if old.required != new.required:
        yield Change("changed", path, *("required" if one.required else "optional" for one in (old, new)))
    if old.rest != new.rest:
        yield Change("changed", path, dict(old.rest), dict(new.rest))


def _canonical(tool: Tool) -> dict[str, _Parameter]:
    """Canonical parameter name → what the model sees of it; parameters inside objects by dotted path."""
    canonical = {seen: name for name, seen in tool.parameter_names.items()}
    back: dict[str, dict[str, str]] = {}
    for adapter in reversed(tool.adapters):
        if adapter.kind == "inner_names":
            names = {new: old for old, new in permutation(adapter.values).items()}
            before = back.get(adapter.parameters[0], {})
            chained = {seen: names.get(middle, middle) for seen, middle in before.items()}
            back[adapter.parameters[0]] = {**names, **chained}
    found = {}
    for steps, parameter in _walk(tool.parameters):
        own = canonical.get(steps[0], steps[0])
        inner = back.get(own, {})
        found[".".join([own, *(inner.get(step, step) for step in steps[1:])])] = parameter
    return found


def _walk(root: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], _Parameter]]:
    """(names from the outside in, parameter), also of objects in lists and behind references to definitions."""
    waiting: list[tuple[tuple[str, ...], Any, tuple[str, ...]]] = [((), root, ())]
    while waiting:
        above, schema, seen = waiting.pop(0)
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            group, _, name = reference.removeprefix("#/").partition("/")
            target = root.get(group, {}).get(name) if group in ("$defs", "definitions") else None
            if isinstance(target, Mapping):
                waiting.insert(0, (above, target, (*seen, reference)))
        required = set(schema.get("required", ()))
        for name, inner in schema.get("properties", {}).items():
            if isinstance(inner, Mapping):
                rest = {key: value for key, value in inner.items() if key not in _TOLD}
                yield (*above, name), _Parameter(name, _type(inner), name in required, rest)
                waiting.append(((*above, name), inner, seen))
        if isinstance(schema.get("items"), Mapping):
            waiting.append((above, schema["items"], seen))


_TOLD = ("type", "properties", "required", "enum", "items")
"""Keywords that a parameter's type, and the parameters below it, tell of."""


def _type(schema: Mapping[str, Any]) -> str:
    """The type in few words: `string`, `list of integer`, `one of a, b`."""
    if "enum" in schema:
        return "one of " + ", ".join(str(value) for value in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        return f"list of {_type(schema['items'])}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
