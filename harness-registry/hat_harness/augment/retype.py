"""The parameter_type operator: other types for parameters, each undone by an adapter of the tool.

Always holds: canonical arguments that the old schema accepts become surface arguments that the new one accepts, and
come back unchanged (`hat_harness.canonical` states the law per adapter). A parameter whose schema says more than an
adapter can carry over keeps its type. Not here: the adapters themselves (hat_harness.canonical), names (naming).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random
from typing import Any

from hat_harness.augment.draft import Draft, Record, escape
from hat_harness.augment.naming import fresh
from hat_harness.augment.operators import ParameterType, Retyping
from hat_harness.augment.schema import fixed_names, property_names
from hat_harness.augment.translation import Translation
from hat_harness.augment.words import pool, random_part
from hat_harness.canonical import with_adapter
from hat_harness.spec import Adapter, Tool

_NOTES = frozenset({"type", "title", "description"})
_TRUE_FALSE = (("yes", "no"), ("on", "off"), ("y", "n"), ("enabled", "disabled"))
_GROUPS = ("options", "query", "input", "details", "filter")
_PLAIN = re.compile(r"[a-z]+\Z")


def retype(op: ParameterType, rng: Random, draft: Draft, record: Record, taken: set[str]) -> None:
    """Gives adapters to the tools' plain parameters; calls that texts spell out in fenced JSON are retyped too."""
    before = draft.harness()
    for index, tool in enumerate(draft.parts["tools"]):
        made = tool
        for name in _plain_parameters(tool):
            if rng.random() < op.share:
                adapter = _adapter(op.kinds, rng, draft, made, name)
                made = made if adapter is None else with_adapter(made, adapter)
        if "group" in op.kinds and rng.random() < op.share:
            made = _grouped(rng, made, taken)
        if made is not tool:
            record.kept[f"tools/{escape(tool.id)}"] = {
                "parameters": tool.parameters,
                "adapters": len(tool.adapters),
            }
            draft.parts["tools"][index] = made
    words = Translation(before, draft.harness())
    for path, text in tuple(draft.texts("skills", "prompts")):
        if "```" in text:
            draft.put(record, path, text, words.mentioned(text))


def _plain_parameters(tool: Tool) -> list[str]:
    """Canonical names of top-level parameters that no further keyword of the schema speaks of."""
    schema = tool.parameters
    extra = set(schema) - {"type", "properties", "required", "additionalProperties", "title", "description", "$schema"}
    if extra or schema.get("additionalProperties") not in (None, False):
        return []
    canonical = {surface: name for name, surface in tool.parameter_names.items()}
    busy = {name for adapter in tool.adapters for name in adapter.parameters}
    fixed = fixed_names(schema)
    names = [canonical.get(name, name) for name in property_names(schema) if name not in fixed]
    groups = {adapter.into for adapter in tool.adapters if adapter.kind == "nested"}
    return [name for name in names if name not in busy and name not in groups]


def _schema_of(tool: Tool, name: str) -> Mapping[str, Any]:
    found: Any = tool.parameters.get("properties", {}).get(tool.parameter_names.get(name, name))
    return found if isinstance(found, Mapping) else {}


def _adapter(kinds: tuple[Retyping, ...], rng: Random, draft: Draft, tool: Tool, name: str) -> Adapter | None:
    """A drawn adapter that fits the parameter's schema exactly, or None."""
    schema = _schema_of(tool, name)
    kind, plain = schema.get("type"), set(schema) <= _NOTES
    fitting: list[Retyping] = []
    if plain and kind == "integer":
        fitting.append("integer_string")
    if plain and kind == "boolean":
        fitting.append("boolean_enum")
    values = schema.get("enum")
    strings = kind == "string" and isinstance(values, list) and all(isinstance(value, str) for value in values)
    if strings and set(schema) <= _NOTES | {"enum", "default"} and len(set(values or ())) > 1:
        fitting.append("enum_rename")
    if plain and kind in ("string", "number", "integer", "boolean"):
        fitting.append("array")
    fitting = [one for one in fitting if one in kinds]
    if not fitting:
        return None
    chosen = rng.choice(fitting)
    if chosen == "integer_string":
        return Adapter(kind="integer_as_string", parameters=(name,))
    if chosen == "boolean_enum":
        yes, no = rng.choice(_TRUE_FALSE)
        return Adapter(kind="boolean_as_words", parameters=(name,), values={"true": yes, "false": no})
    if chosen == "array":
        return Adapter(kind="array_of_one", parameters=(name,))
    return Adapter(kind="values", parameters=(name,), values=_renamed_values(rng, draft, list(values or ())))


def _renamed_values(rng: Random, draft: Draft, values: list[str]) -> dict[str, str]:
    """New spellings of enum values: synonyms where the vocabulary has some, else the values with a fresh word."""
    taken = set(values)
    made: dict[str, str] = {}
    for value in values:
        synonyms = [word for word in draft.lexicon.trained.names.get(value, ()) if word not in taken]
        if synonyms:
            new = rng.choice(synonyms)
        else:
            stem = value if _PLAIN.match(value) else "value"
            words = pool(draft.lexicon.trained, "")
            new = f"{stem}_{rng.choice(words) if words else random_part(rng, draft.lexicon)}"
            while new in taken:
                new += rng.choice("abcdefgh")
        taken.add(new)
        made[value] = new
    return made


def _grouped(rng: Random, tool: Tool, taken: set[str]) -> Tool:
    """Two or more top-level parameters put into one object."""
    names = _groupable(tool)
    if len(names) < 2:
        return tool
    chosen = set(rng.sample(names, rng.randint(2, len(names))))
    own = set(property_names(tool.parameters))
    into = next((word for word in rng.sample(_GROUPS, len(_GROUPS)) if word not in own and word not in taken), "")
    into = into or fresh(rng, lambda: f"group_{rng.randrange(100)}", taken | own)
    members = tuple(name for name in names if name in chosen)
    return with_adapter(tool, Adapter(kind="nested", parameters=members, into=into))


def _groupable(tool: Tool) -> list[str]:
    """Top-level parameters; those with another adapter may be grouped too, since grouping comes last."""
    bare = tool.model_copy(update={"adapters": tuple(a for a in tool.adapters if a.kind == "nested")})
    if any(_has_reference(_schema_of(tool, name)) for name in _plain_parameters(bare)):
        return []
    return _plain_parameters(bare)


def _has_reference(schema: Mapping[str, Any]) -> bool:
    return "$ref" in str(schema)
