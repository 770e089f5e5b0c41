"""The inputs of a run as fields: key, type, default, choices, bounds, help. Pages and programs get the same ones.

Fields come from the config classes of the steps, defaults from the profile, help from the docstring under each field.
A step that stands for several arms has one field where the arms agree and one for each where they do not.
Always holds: what `read` lets through may still be refused by the profile; `blame` says by which field.
Not here: markup (hat_console).
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, Literal, get_args

from pydantic import BaseModel

from hat_harness.errors import Problem
from hat_pipelines import components
from hat_pipelines.dag import Dag, Step
from hat_pipelines.profile import Local, Profile

Kind = Literal["integer", "number", "boolean", "text", "choice", "json"]
DERIVED = frozenset({"seed", "scenario", "threads", "arm", "run", "profile", "code"})
"""Fields of a step that follow from the whole run, so they are no inputs of their own."""
WHOLE = ("seed", "arms", "scenario", "branches", "seeds", "local")


@dataclass(frozen=True, slots=True)
class Field:
    """One input."""

    key: str
    """Key of the profile: `steps.sft.fit.tokens`."""
    label: str
    kind: Kind
    default: Any
    """What the profile says."""
    help: str = ""
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    strict: bool = False
    """The minimum itself is not allowed."""
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """The fields of one step, or of the whole run."""

    name: str
    about: str = ""
    fields: tuple[Field, ...] = field(default_factory=tuple)


def sections(profile: Profile, dag: Dag) -> list[Section]:
    """All inputs of a profile's pipeline, those of the whole run first."""
    found = [Section("run", "", tuple(_whole(profile)))]
    resolved = profile.resolved(dag).steps
    groups: dict[str, list[Step]] = {}
    for step in dag.steps:
        groups.setdefault(step.base, []).append(step)
    for base, steps in groups.items():
        made = _fields(base, steps, resolved)
        if made:
            found.append(Section(base, _about(steps[0].component), tuple(made)))
    return found


def choices(component: str, config: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Key of a component's config → the values that it is chosen from, of keys that have several."""
    schema = components.config_class(component).model_json_schema()
    return {one.key: one.choices for one in _walk(schema, schema, config, "", {}) if len(one.choices) > 1}


def as_json(found: Sequence[Section]) -> list[dict[str, Any]]:
    """Sections as plain data."""
    return [asdict(section) for section in found]


def read(found: Sequence[Section], posted: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Values that differ from the defaults, and field key → what is wrong with its text."""
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for one in (one for section in found for one in section.fields):
        text = posted.get(one.key)
        if text is None:
            continue
        try:
            value = _parse(one, text.strip())
        except ValueError as error:
            problems[one.key] = str(error)
            continue
        if value != one.default or (type(value) is bool and type(one.default) is not bool):
            values[one.key] = value
    return values, problems


def blame(found: Sequence[Section], problems: Sequence[Problem]) -> tuple[dict[str, str], list[str]]:
    """Field key → message for findings that a field is to blame for, and the messages of all others."""
    keys = [one.key for section in found for one in section.fields]
    by_field: dict[str, str] = {}
    others: list[str] = []
    for problem in problems:
        told = problem.message + (f" ({problem.cure})" if problem.cure else "")
        given = problem.path.removeprefix("--set ").partition("=")[0]
        key = next((key for key in keys if given == key or _same(given, key)), "")
        if key:
            by_field.setdefault(key, told)
        else:
            others.append(f"{problem.path}: {told}")
    return by_field, others


def _same(given: str, key: str) -> bool:
    """Whether `steps.sft-hsa.fit.tokens` is an arm's form of `steps.sft.fit.tokens`."""
    one, other = given.split("."), key.split(".")
    return len(one) == len(other) > 2 and one[2:] == other[2:] and one[1].startswith(f"{other[1]}-")


def _parse(one: Field, text: str) -> Any:
    if not text and one.nullable:
        return None
    if one.kind == "text":
        return text
    if one.kind == "choice":
        found = [choice for choice in one.choices if str(choice) == text]
        if not found:
            raise ValueError(f"one of: {', '.join(str(choice) for choice in one.choices)}")
        return found[0]
    if one.kind == "boolean":
        if text not in ("true", "false"):
            raise ValueError("true or false")
        return text == "true"
    if one.kind == "json":
        try:
            return json.loads(text)
        except ValueError:
            raise ValueError("not JSON") from None
    return _number(one, text)


def _number(one: Field, text: str) -> int | float:
    try:
        value = int(text) if one.kind == "integer" else float(text)
    except ValueError:
        raise ValueError("a whole number" if one.kind == "integer" else "a number") from None
    if one.minimum is not None and (value < one.minimum or (one.strict and value == one.minimum)):
        raise ValueError(f"{'above' if one.strict else 'at least'} {one.minimum:g}")
    if one.maximum is not None and value > one.maximum:
        raise ValueError(f"at most {one.maximum:g}")
    return value


def _whole(profile: Profile) -> list[Field]:
    data = profile.model_dump(mode="json")
    schema = Profile.model_json_schema()
    found: list[Field] = []
    for name in WHOLE:
        if name == "local":
            inner = Local.model_json_schema()
            found += _walk(inner, inner, data["local"], "local", _help(Local))
        elif name in schema["properties"]:
            part = {"properties": {name: schema["properties"][name]}}
            found += _walk(schema, part, {name: data[name]}, "", _help(Profile))
    return found


def _fields(base: str, steps: Sequence[Step], resolved: Mapping[str, Mapping[str, Any]]) -> list[Field]:
    cls = components.config_class(steps[0].component)
    schema, helps = cls.model_json_schema(), _help(cls)
    by_step = {
        step.name: {
            one.key.removeprefix(f"steps.{step.name}."): one
            for one in _walk(schema, schema, resolved[step.name], f"steps.{step.name}", helps)
        }
        for step in steps
    }
    found: list[Field] = []
    for inner, one in by_step[steps[0].name].items():
        if inner in DERIVED:
            continue
        variants = [fields[inner] for fields in by_step.values() if inner in fields]
        if all(other.default == one.default for other in variants):
            found.append(_renamed(one, f"steps.{base}.{inner}", inner))
        else:
            found += [_renamed(other, other.key, other.key.removeprefix("steps.")) for other in variants]
    return found


def _renamed(one: Field, key: str, label: str) -> Field:
    return Field(
        key, label, one.kind, one.default, one.help, one.choices, one.minimum, one.maximum, one.strict, one.nullable
    )


def _walk(
    schema: Mapping[str, Any], part: Mapping[str, Any], value: Any, prefix: str, helps: Mapping[str, str]
) -> list[Field]:
    """Fields of an object schema; nested objects give the fields inside them."""
    found: list[Field] = []
    for name, raw in part.get("properties", {}).items():
        key = f"{prefix}.{name}" if prefix else name
        inner, nullable = _plain(schema, raw)
        mine = value.get(name) if isinstance(value, Mapping) else None
        below = {path.removeprefix(f"{name}."): text for path, text in helps.items() if path.startswith(f"{name}.")}
        if inner.get("properties") and isinstance(mine, Mapping):
            found += _walk(schema, inner, mine, key, below)
        else:
            found.append(_field(key, name, inner, mine, helps.get(name, ""), nullable))
    return found


def _plain(schema: Mapping[str, Any], raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """A property without references and without its null, and whether null is allowed."""
    nullable = False
    options = raw.get("anyOf")
    if options:
        nullable = any(option.get("type") == "null" for option in options)
        rest = [option for option in options if option.get("type") != "null"]
        raw = rest[0] if len(rest) == 1 else {}
    reference = raw.get("$ref") or (raw.get("allOf") or [{}])[0].get("$ref")
    if reference:
        raw = schema.get("$defs", {}).get(reference.rpartition("/")[2], {})
    return raw, nullable


def _field(key: str, label: str, inner: Mapping[str, Any], value: Any, told: str, nullable: bool) -> Field:
    choices = tuple(inner.get("enum", ())) or ((inner["const"],) if "const" in inner else ())
    kinds: dict[str, Kind] = {"integer": "integer", "number": "number", "boolean": "boolean", "string": "text"}
    kind: Kind = "choice" if choices else kinds.get(str(inner.get("type")), "json")
    low, strict = inner.get("minimum"), False
    if low is None and "exclusiveMinimum" in inner:
        low, strict = inner["exclusiveMinimum"], True
    high = inner.get("maximum", inner.get("exclusiveMaximum"))
    return Field(key, label, kind, value, told, choices, low, high, strict, nullable)


def _about(component: str) -> str:
    doc = components.config_class(component).__doc__ or ""
    return " ".join(doc.split())


@cache
def _help(model: type[BaseModel]) -> dict[str, str]:
    """Path of a field → the docstring under it, through nested models."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if issubclass(cls, BaseModel) and cls is not BaseModel:
            found |= _docstrings(cls)
    for name, info in model.model_fields.items():
        inner = [part for part in (info.annotation, *get_args(info.annotation)) if isinstance(part, type)]
        for part in inner:
            if issubclass(part, BaseModel):
                found |= {f"{name}.{path}": text for path, text in _help(part).items()}
    return found


def _docstrings(cls: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return {}
    assert isinstance(tree.body[0], ast.ClassDef)
    body = tree.body[0].body
    found: dict[str, str] = {}
    for here, behind in pairwise(body):
        if (
            isinstance(here, ast.AnnAssign)
            and isinstance(here.target, ast.Name)
            and isinstance(behind, ast.Expr)
            and isinstance(behind.value, ast.Constant)
            and isinstance(behind.value.value, str)
        ):
            found[here.target.id] = " ".join(behind.value.value.split())
    return found
