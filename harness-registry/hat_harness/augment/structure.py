"""Structural operators besides renaming: orders, markup, the result envelope, and types of parameters.

Always holds: a permutation follows from the operator's seed and the number of things; what a new type or template
replaces is kept in the record. Not here: names (naming).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from hat_harness.augment.draft import Draft, Record, changed, escape
from hat_harness.augment.layouts import ENVELOPES_HELD_OUT, ENVELOPES_TRAINED, drawn_layout
from hat_harness.augment.naming import weighted
from hat_harness.augment.operators import (
    Markup,
    ParameterOrder,
    ResultEnvelope,
    SectionOrder,
    SkillOrder,
    ToolOrder,
)
from hat_harness.augment.schema import reorder_properties
from hat_harness.spec import Layout


def shuffled(rng: Random, things: Sequence[Any]) -> list[Any]:
    """A shuffled copy."""
    made = list(things)
    rng.shuffle(made)
    return made


def reorder_parts(op: SkillOrder | ToolOrder, rng: Random, draft: Draft, record: Record) -> None:
    """Shuffles skills or tools."""
    kind = "skills" if isinstance(op, SkillOrder) else "tools"
    parts = draft.parts[kind]
    record.order[kind] = tuple(part.id for part in parts)
    draft.reorder(kind, shuffled(rng, parts))


def reorder_parameters(op: ParameterOrder, rng: Random, draft: Draft, record: Record) -> None:
    """Shuffles the top-level parameters of every tool that has two or more."""
    for index, tool in enumerate(draft.parts["tools"]):
        names = list(tool.parameters.get("properties", {}))
        if len(names) > 1:
            record.order[f"parameters/{tool.id}"] = tuple(names)
            schema = reorder_properties(tool.parameters, shuffled(rng, names))
            draft.parts["tools"][index] = changed(tool, parameters=schema)


def reorder_sections(op: SectionOrder, rng: Random, draft: Draft, record: Record) -> None:
    """Shuffles the inner sections; each outer one goes to either end."""
    inner = shuffled(rng, [name for name in draft.sections if name not in op.outer])
    for name in draft.sections:
        if name in op.outer:
            inner.insert(rng.choice((0, len(inner))), name)
    record.order["sections"] = draft.sections
    draft.sections = tuple(inner)


def mark_up(op: Markup, rng: Random, draft: Draft, record: Record) -> None:
    """Another layout; the result envelope and the way tools are given stay."""
    old: Layout = draft.single["layout"]
    new = drawn_layout(rng, weighted(rng, op.modes), op.name_first)
    fields = ("section", "skill", "tool", "join")
    record.kept["layout"] = {name: getattr(old, name) for name in fields}
    draft.single["layout"] = changed(old, **{name: getattr(new, name) for name in fields})


def envelope(op: ResultEnvelope, rng: Random, draft: Draft, record: Record) -> None:
    """Another text around tool results."""
    old: Layout = draft.single["layout"]
    pool = ENVELOPES_HELD_OUT if weighted(rng, op.modes) == "held_out" else ENVELOPES_TRAINED
    record.kept.setdefault("layout", {})["result"] = old.result
    draft.single["layout"] = changed(old, result=rng.choice(pool))


def undo_structure(record: Any, draft: Draft) -> None:
    """Takes back what the operators of this module did, from their record."""
    for kind, old in record.order.items():
        if kind in ("skills", "tools"):
            by_id = {part.id: part for part in draft.parts[kind]}
            draft.reorder(kind, [by_id[identifier] for identifier in old])
        elif kind == "sections":
            draft.sections = tuple(old)
        else:
            index = draft.place("tools", kind.removeprefix("parameters/"))
            assert index is not None
            tool = draft.parts["tools"][index]
            draft.parts["tools"][index] = changed(tool, parameters=reorder_properties(tool.parameters, list(old)))
    kept: Mapping[str, Any] = record.kept.get("layout", {})
    if kept:
        draft.single["layout"] = changed(draft.single["layout"], **kept)
    for path, value in record.kept.items():
        if path.startswith("tools/"):
            index = next(i for i, tool in enumerate(draft.parts["tools"]) if f"tools/{escape(tool.id)}" == path)
            tool = draft.parts["tools"][index]
            added = len(tool.adapters) - value["adapters"]
            draft.parts["tools"][index] = changed(
                tool, parameters=value["parameters"], adapters=tool.adapters[: len(tool.adapters) - added]
            )
