"""Renaming skills, tools, parameters and the activation tool, and the closure over everything that refers to them.

Always holds: new names satisfy `spec.NAME_PATTERN`, are unique among tools with the activation tool and among skills,
and are either fresh (no name, id or word in code has them) or a permutation of old ones; a new parameter name stands
for one old name throughout the harness. So the way back needs the maps alone.
Not here: words (words), the syntax of references (mentions).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, get_args

from hat_harness.augment.draft import Draft, PartT, Record, changed
from hat_harness.augment.inner import below_names, concerned, inner_names, rename_inner, with_inner
from hat_harness.augment.mentions import CallRewriter, Closure
from hat_harness.augment.operators import ActivationName, LayoutMode, ParameterName, SkillName, ToolName
from hat_harness.augment.schema import (
    completed,
    fixed_names,
    name_fits,
    property_names,
    refers_in_place,
    rename_properties,
)
from hat_harness.augment.words import ACTIVATION, Lexicon, NameMode, drawn_name, noisy
from hat_harness.canonical import renamed_inside
from hat_harness.spec import NAME_PATTERN, Tool

MODES: tuple[str, ...] = tuple(dict.fromkeys((*get_args(NameMode), *get_args(LayoutMode))))
"""Every mode of every operator, in the order in which one is drawn."""
_VALID = re.compile(NAME_PATTERN)
_TRIES = 40
_POOL_TRIES = 12
"""Tries from the pool before random names are drawn instead."""


@dataclass
class Names:
    """The renamings gathered from the naming operators of one draft."""

    skills: dict[str, str] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, dict[str, str]] = field(default_factory=dict)
    """Tool id → old → new name; the activation tool's under ''."""
    inner: dict[str, dict[str, str]] = field(default_factory=dict)
    """Tool id → old → new name of properties below its parameters."""


def weighted(rng: Random, weights: Mapping[Any, float]) -> Any:
    """One mode drawn by weight. The order of the mapping says nothing, as digests of plans leave it out."""
    if len(weights) == 1:
        return next(iter(weights))
    modes = sorted(weights, key=MODES.index)
    return rng.choices(modes, [weights[mode] for mode in modes])[0]


def fresh(rng: Random, make: Callable[[], str], taken: set[str]) -> str:
    """A valid name from `make` that is not taken; after some tries digits are appended. Becomes taken."""
    name = ""
    for _ in range(_TRIES):
        name = make()[:64]
        if name not in taken and _VALID.match(name):
            break
    else:
        stem = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:56] or "n"
        stem = stem if _VALID.match(stem) else f"n_{stem}"[:56]
        name = stem
        while name in taken:
            name = f"{stem}_{rng.randrange(10**6)}"
    taken.add(name)
    return name


def permuted(rng: Random, names: list[str]) -> dict[str, str]:
    """The names permuted without a fixed point (as they are when there is one name only)."""
    order = list(names)
    rng.shuffle(order)
    return {name: order[(index + 1) % len(order)] for index, name in enumerate(order)}


def new_name(rng: Random, lex: Lexicon, key: str, old: str, mode: NameMode, style: int, bare: bool = False) -> str:
    """A candidate; `misleading` has been dealt with before."""
    if mode == "char_noise":
        return noisy(rng, old)
    return drawn_name(rng, lex, key, mode, style, bare)


def draw_names(op: Any, rng: Random, draft: Draft, record: Record, taken: set[str], names: Names) -> None:
    """Carries out one naming operator: fills `names` and the record; the texts follow in `close`."""
    mode: NameMode = weighted(rng, op.modes)
    style = rng.randrange(3)
    if isinstance(op, ParameterName):
        _draw_parameters(op, rng, draft, record, taken, names, mode)
    elif isinstance(op, ActivationName):
        _draw_activation(rng, draft, record, taken, names, mode, style)
    else:
        assert isinstance(op, SkillName | ToolName)
        kind = "skills" if isinstance(op, SkillName) else "tools"
        target = names.skills if kind == "skills" else names.tools
        chosen = [part for part in draft.parts[kind] if rng.random() < op.share]
        if mode == "misleading":
            elsewhere = _elsewhere(draft, kind)
            old = [part.name for part in chosen if part.name not in elsewhere]
            target.update(permuted(rng, old) if len(old) > 1 else {})
        else:
            for part in chosen:

                def make(part: Any = part) -> str:
                    return new_name(rng, draft.lexicon, part.id, part.name, mode, style)

                target[part.name] = fresh(rng, make, taken)
        if target:
            record.names[kind[:-1]] = dict(target)


def _elsewhere(draft: Draft, kind: str) -> set[str]:
    """Names that things of other kinds have: such a name in a text may mean either, so it is not permuted."""
    activation = draft.single["activation"]
    found = {activation.tool, activation.parameter}
    if kind != "skills":
        found.update(skill.name for skill in draft.parts["skills"])
    if kind != "tools":
        found.update(tool.name for tool in draft.parts["tools"])
    if kind != "parameters":
        for tool in draft.parts["tools"]:
            found.update(property_names(tool.parameters))
    return found


def _draw_activation(
    rng: Random, draft: Draft, record: Record, taken: set[str], names: Names, mode: NameMode, style: int
) -> None:
    activation, lex = draft.single["activation"], draft.lexicon
    if mode == "misleading":
        return
    tool = fresh(rng, lambda: new_name(rng, lex, ACTIVATION, activation.tool, mode, style), taken)
    key = f"{ACTIVATION}.parameter"

    def makes() -> str:
        return new_name(rng, lex, key, activation.parameter, mode, style, bare=True)

    parameter = makes()
    if parameter != activation.parameter:
        parameter = parameter if parameter not in taken and _VALID.match(parameter) else fresh(rng, makes, taken)
    taken.add(parameter)
    names.tools[activation.tool] = tool
    names.parameters[""] = {activation.parameter: parameter}
    record.names[ACTIVATION] = {activation.tool: tool, activation.parameter: parameter}


def renameable(tool: Tool) -> list[str]:
    """Top-level parameters that may be renamed: none that a pattern constrains, no group that an adapter made."""
    fixed = fixed_names(tool.parameters)
    groups = {adapter.into for adapter in tool.adapters if adapter.kind == "nested"}
    return [name for name in property_names(tool.parameters) if name not in fixed and name not in groups]


def _draw_parameters(
    op: ParameterName, rng: Random, draft: Draft, record: Record, taken: set[str], names: Names, mode: NameMode
) -> None:
    owner: dict[str, str] = {}
    """New name → the one old name that it stands for."""
    shuffled: dict[str, str] = {}
    tools = draft.parts["tools"]
    deep = {tool.id: inner_names(tool.parameters) for tool in tools}
    if mode == "misleading":
        elsewhere = _elsewhere(draft, "parameters")
        fixed = {name for tool in tools for name in property_names(tool.parameters) if name not in renameable(tool)}
        fixed |= {name for tool in tools for name in below_names(tool.parameters)}
        old = list(dict.fromkeys(name for tool in tools for name in renameable(tool)))
        old = [name for name in old if name not in elsewhere and name not in fixed]
        shuffled = permuted(rng, old) if len(old) > 1 else {}
    for tool in tools:
        if mode == "misleading":
            mapping = {name: shuffled[name] for name in renameable(tool) if name in shuffled}
        else:
            mapping = _tool_parameters(op, rng, draft.lexicon, tool, taken, owner, mode)
        if mapping:
            names.parameters[tool.id] = mapping
            if refers_in_place(tool.parameters):
                record.kept[f"parameters/{tool.id}"] = tool.parameters
            record.names[f"parameter/{tool.id}"] = mapping
        below = _below(tool, deep[tool.id])
        if below and mode != "misleading":
            inner = _tool_parameters(op, rng, draft.lexicon, tool, taken | set(below), owner, mode, mapping, below)
            if inner:
                names.inner[tool.id] = record.names[f"inner/{tool.id}"] = inner
    if mode == "misleading":
        _shuffle_inner(rng, draft, record, names, elsewhere, deep)
    taken.update(owner)


def _below(tool: Tool, deep: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Names below the tool's parameters that may be renamed; groups that an adapter made hold parameters themselves."""
    groups = {adapter.into for adapter in tool.adapters if adapter.kind == "nested"}
    if groups & deep.keys():
        return []
    return list(dict.fromkeys(name for found in deep.values() for name in found))


def _shuffle_inner(
    rng: Random,
    draft: Draft,
    record: Record,
    names: Names,
    elsewhere: set[str],
    deep: Mapping[str, Mapping[str, tuple[str, ...]]],
) -> None:
    """Names below parameters permuted among themselves, the same way in all tools."""
    tools = draft.parts["tools"]
    free = {tool.id: _below(tool, deep[tool.id]) for tool in tools}
    fixed = elsewhere | {name for tool in tools for name in property_names(tool.parameters)}
    fixed |= {name for tool in tools for name in below_names(tool.parameters) if name not in free[tool.id]}
    old = [name for name in dict.fromkeys(n for found in free.values() for n in found) if name not in fixed]
    shuffled = permuted(rng, old) if len(old) > 1 else {}
    for tool in tools:
        mapping = {name: shuffled[name] for name in free[tool.id] if name in shuffled}
        if mapping:
            names.inner[tool.id] = record.names[f"inner/{tool.id}"] = mapping


def _tool_parameters(
    op: ParameterName,
    rng: Random,
    lex: Lexicon,
    tool: Tool,
    taken: set[str],
    owner: dict[str, str],
    mode: NameMode,
    top: Mapping[str, str] | None = None,
    below: Sequence[str] = (),
) -> dict[str, str]:
    """New names of a tool's parameters, or with `top` (what these got) of the properties below them."""
    canonical = {new: old for old, new in tool.parameter_names.items()}
    spare: NameMode = "random_held_out" if mode in ("held_out", "random_held_out") else "random"
    mapping: dict[str, str] = {}
    used: set[str] = set() if top is None else set(top.values())
    own = set() if top is None else set(property_names(tool.parameters))
    for old in renameable(tool) if top is None else below:
        if rng.random() >= op.share:
            continue
        if old in own:
            # A text may mean either by the one name, so both go by one name again, or keep it.
            if top and old in top:
                mapping[old] = top[old]
            continue
        for attempt in range(_TRIES):
            way = mode if attempt < _POOL_TRIES else spare
            new = new_name(rng, lex, canonical.get(old, old), old, way, 0, bare=True)[:64]
            free = new not in taken and owner.get(new, old) == old and new not in used
            if free and new not in own and _VALID.match(new) and name_fits(tool.parameters, new):
                break
        else:
            new = fresh(rng, lambda: noisy(rng, "p_" + "".join(rng.choice("abcdefgh") for _ in range(6))), taken | used)
            if not name_fits(tool.parameters, new):
                continue
        mapping[old] = new
        used.add(new)
        owner[new] = old
    return mapping


# ---- closure --------------------------------------------------------------------------------------------------


def closure_of(draft: Draft, names: Names) -> Closure:
    """The complete maps, from the names that stand now to the new ones."""
    activation = draft.single["activation"]
    tools = {tool.name: names.tools.get(tool.name, tool.name) for tool in draft.parts["tools"]}
    parameters: dict[str, Mapping[str, str]] = {}
    for tool in draft.parts["tools"]:
        renamed = names.parameters.get(tool.id, {})
        deep = names.inner.get(tool.id, {})
        below = dict.fromkeys(name for found in inner_names(tool.parameters).values() for name in found)
        parameters[tool.name] = {name: deep.get(name, name) for name in below} | {
            name: renamed.get(name, name) for name in property_names(tool.parameters)
        }
    tools[activation.tool] = names.tools.get(activation.tool, activation.tool)
    own = names.parameters.get("", {})
    parameters[activation.tool] = {activation.parameter: own.get(activation.parameter, activation.parameter)}
    skills = {skill.name: names.skills.get(skill.name, skill.name) for skill in draft.parts["skills"]}
    return Closure.of(tools, skills, parameters, activation.tool)


def close(draft: Draft, names: Names) -> Closure:
    """Renames the parts themselves and every reference to them; returns the closure that did it."""
    closure = closure_of(draft, names)
    by_id = {tool.id: tool.name for tool in draft.parts["tools"]}

    deep = {
        tool.name: (concerned(tool.parameters, inner), completed(inner))
        for tool in draft.parts["tools"]
        if (inner := names.inner.get(tool.id))
    }

    def call(name: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        parameters, mapping = deep.get(name, ((), {}))
        for parameter in parameters:
            if parameter in arguments:
                arguments = {**arguments, parameter: renamed_inside(arguments[parameter], mapping)}
        return _renamed_call(closure, name, arguments)

    for index, skill in enumerate(draft.parts["skills"]):
        near = tuple(by_id[tool] for tool in skill.tools if tool in by_id)
        values = {
            "name": closure.skills[skill.name],
            "description": closure.text(skill.description, near, call),
            "body": closure.text(skill.body, near, call),
        }
        draft.parts["skills"][index] = _if_changed(skill, values)
    for index, tool in enumerate(draft.parts["tools"]):
        draft.parts["tools"][index] = _close_tool(tool, closure, names, call, draft.coded)
    for kind, name in (("prompts", "text"), ("hooks", "message")):
        for index, part in enumerate(draft.parts[kind]):
            text = getattr(part, name)
            draft.parts[kind][index] = _if_changed(part, {name: closure.text(text, (), call)})
    activation = draft.single["activation"]
    values = {
        "tool": closure.tools[activation.tool],
        "parameter": closure.parameters[activation.tool][activation.parameter],
        "description": closure.text(activation.description, (), call),
    }
    draft.single["activation"] = _if_changed(activation, values)
    return closure


def _if_changed(part: PartT, values: dict[str, Any]) -> PartT:
    """The part itself when nothing differs, so that its digest stays cached."""
    differs = {name: value for name, value in values.items() if getattr(part, name) != value}
    return changed(part, **differs) if differs else part


def _renamed_call(closure: Closure, name: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    made = {}
    for key, value in arguments.items():
        made[closure.parameter(name, key)] = closure.skill(value) if name == closure.activation else value
    return closure.tool(name), made


def _close_tool(tool: Tool, closure: Closure, names: Names, call: CallRewriter, coded: frozenset[str] | None) -> Tool:
    near = (tool.name,)
    values: dict[str, Any] = {
        "name": closure.tools[tool.name],
        "description": closure.text(tool.description, near, call),
    }
    mapping = names.parameters.get(tool.id)
    parameters = tool.parameters
    inner = names.inner.get(tool.id)
    if inner:
        values["adapters"] = with_inner(tool, inner)
        parameters = rename_inner(parameters, inner)
    if mapping:
        parameters = rename_properties(parameters, mapping)
        values["parameter_names"] = _canonical_names(tool, mapping)
    if coded is None or tool.id in coded:
        parameters = describe_schema(parameters, lambda text: closure.text(text, near, call))
    values["parameters"] = parameters
    return _if_changed(tool, values)


def _canonical_names(tool: Tool, mapping: Mapping[str, str]) -> dict[str, str]:
    """Canonical → new name, those that have come back to their canonical name left out."""
    known = {new: old for old, new in tool.parameter_names.items()}
    made = dict(tool.parameter_names)
    for old, new in mapping.items():
        made[known.get(old, old)] = new
    return {old: new for old, new in made.items() if old != new}


def describe_schema(schema: Any, rewrite: Callable[[str], str]) -> Any:
    """The schema with every description rewritten; the schema itself when none refers to anything."""
    if isinstance(schema, Mapping):
        made = {
            key: rewrite(value)
            if key == "description" and isinstance(value, str)
            else (describe_schema(value, rewrite) if isinstance(value, Mapping | list) else value)
            for key, value in schema.items()
        }
        return made if any(made[key] is not schema[key] for key in schema) else schema
    if isinstance(schema, list):
        items = [describe_schema(value, rewrite) for value in schema]
        return items if any(new is not old for new, old in zip(items, schema, strict=True)) else schema
    return schema
