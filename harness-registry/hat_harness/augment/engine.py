"""The engine: from a harness, a plan and a seed to a harness state, and back to the base.

Always holds: pure (nothing is read, written or remembered that changes a result); the same harness, plan, seed and
vocabulary give the same bytes on every machine; each family draws from a seed of its own, so that switching one family
off leaves the draws of the others as they were. Not here: the single operators, trajectories.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from hat_harness.augment import content, perturb, structure
from hat_harness.augment.draft import Draft, Record, changed
from hat_harness.augment.followers import with_shots
from hat_harness.augment.naming import Names, close, draw_names
from hat_harness.augment.operators import AnyOperator
from hat_harness.augment.plan import AugmentPlan, draw
from hat_harness.augment.retype import retype
from hat_harness.augment.state import HarnessState, Rewrite
from hat_harness.augment.words import WordsLike, lexicon
from hat_harness.digest import harness_digest
from hat_harness.errors import AugmentError
from hat_harness.spec import Harness

_NAMING = ("skill_name", "tool_name", "parameter_name", "activation")
_RUN: dict[str, Callable[[Any, Random, Draft, Record], None]] = {
    "skill_description": content.describe,
    "tool_description": content.describe,
    "skill_text": content.skill_text,
    "register": content.register,
    "language": content.language,
    "hook_policy": perturb.hook_policy,
    "hook_message": perturb.hook_message,
    "rule_edit": perturb.rule_edit,
    "skill_order": structure.reorder_parts,
    "tool_order": structure.reorder_parts,
    "parameter_order": structure.reorder_parameters,
    "section_order": structure.reorder_sections,
    "markup": structure.mark_up,
    "result_envelope": structure.envelope,
}
_TAKING: dict[str, Callable[[Any, Random, Draft, Record, set[str]], None]] = {
    "parameter_type": retype,
    "distractor_skill": perturb.distract,
    "distractor_tool": perturb.distract,
}


def operator_seed(seed: int, family: str, index: int) -> int:
    """The seed of one operator: 63 bits that depend on the draw's seed, the family and its place among its kind."""
    data = hashlib.sha256(f"{seed}\x1f{family}\x1f{index}".encode()).digest()
    return int.from_bytes(data[:8], "big") >> 1


def apply(
    harness: Harness,
    plan: AugmentPlan | Sequence[AnyOperator],
    seed: int,
    vocabulary: WordsLike,
    *,
    held_out: WordsLike | None = None,
    pair: Harness | None = None,
) -> HarnessState:
    """One draw of the plan (or exactly the given operators) applied to `harness`.

    `held_out` is the other half of the vocabulary: training draws avoid its words, test draws use them. `pair` says the
    same as `harness` in another language; only the `language` family needs it.
    """
    extra = plan.lexicon if isinstance(plan, AugmentPlan) else ()
    return carry_out(harness, seeded(plan, seed), seed, Draft.of(harness, lexicon(vocabulary, held_out, extra), pair))


def seeded(plan: AugmentPlan | Sequence[AnyOperator], seed: int) -> list[tuple[AnyOperator, int]]:
    """The operators of one draw, in order of stage, each with its own seed."""
    if isinstance(plan, AugmentPlan):
        operators = draw(plan, Random(operator_seed(seed, "plan", 0)))
    else:
        operators = sorted(plan, key=lambda op: op.stage)
    counts: dict[str, int] = {}
    steps: list[tuple[AnyOperator, int]] = []
    for op in operators:
        counts[op.type] = counts.get(op.type, 0) + 1
        steps.append((op, operator_seed(seed, op.type, counts[op.type] - 1)))
    return steps


def replay(
    harness: Harness,
    state: HarnessState,
    vocabulary: WordsLike,
    *,
    held_out: WordsLike | None = None,
    pair: Harness | None = None,
    extra: tuple[str, ...] = (),
) -> HarnessState:
    """The state made again from its base, using nothing of it but the operators and their seeds."""
    steps = [(rewrite.operator, rewrite.seed) for rewrite in state.rewrites]
    return carry_out(harness, steps, state.seed, Draft.of(harness, lexicon(vocabulary, held_out, extra), pair))


def carry_out(
    base: Harness,
    steps: Sequence[tuple[AnyOperator, int]],
    seed: int,
    draft: Draft,
    digest: bool = True,
) -> HarnessState:
    """Operators with their seeds carried out on a draft of `base`.

    Without `digest` the state's `base_digest` is "" (a base that is not a registered harness needs none).
    """
    records: list[Record] = []
    names: Names | None = None
    taken: set[str] = set()
    if any(op.type in _NAMING or op.type in _TAKING for op, _ in steps):
        taken = draft.taken() | _pair_words(draft) | draft.avoid
    for op, own in steps:
        rng, record = Random(own), Record(op, own)
        records.append(record)
        if op.type in _NAMING:
            names = Names() if names is None else names
            draw_names(op, rng, draft, record, taken, names)
            continue
        if names is not None and op.stage > 30:
            close(draft, names)
            names = None
        if op.type in _RUN:
            _RUN[op.type](op, rng, draft, record)
        elif op.type in _TAKING:
            _TAKING[op.type](op, rng, draft, record, taken)
    if names is not None:
        close(draft, names)
    state = HarnessState.model_construct(
        harness=with_shots(base, draft.harness()),
        base_digest=base_digest(base) if digest else "",
        seed=seed,
        rewrites=tuple(record.rewrite() for record in records),
    )
    state._base = base
    return state


def _pair_words(draft: Draft) -> set[str]:
    """Words in code of the paired harness, whose texts may come in."""
    return set() if draft.pair is None else Draft.of(draft.pair, draft.lexicon).taken()


# ---- back -----------------------------------------------------------------------------------------------------


def original(state: HarnessState) -> Harness:
    """The harness that the state was made from, by undoing its rewrites; AugmentError when the digest disagrees."""
    if state._base is None:
        base = undone(state)
        if base_digest(base) != state.base_digest:
            raise AugmentError("the rewrites do not lead back to the base", place=state.base_digest)
        state._base = base
    return state._base


def undone(state: HarnessState) -> Harness:
    """The state's harness with its rewrites undone in reverse order, from the records alone."""
    draft = Draft.of(state.harness, lexicon(_NOTHING))
    pending: list[Rewrite] = []
    for rewrite in reversed(state.rewrites):
        if rewrite.operator.type in _NAMING:
            pending.append(rewrite)
            continue
        if pending:
            _undo_names(draft, pending)
            pending = []
        structure.undo_structure(rewrite, draft)
        perturb.undo_perturbation(rewrite, draft)
        content.undo_texts(rewrite, draft)
    if pending:
        _undo_names(draft, pending)
    return with_shots(state.harness, draft.harness())


def _undo_names(draft: Draft, rewrites: Sequence[Rewrite]) -> None:
    names = Names()
    for rewrite in rewrites:
        for kind, mapping in rewrite.names.items():
            back = {new: old for old, new in mapping.items()}
            if kind == "skill":
                names.skills.update(back)
            elif kind == "tool":
                names.tools.update(back)
            elif kind == "activation":
                tool, parameter = draft.single["activation"].tool, draft.single["activation"].parameter
                names.tools[tool] = back[tool]
                names.parameters[""] = {parameter: back[parameter]}
            elif kind.startswith("inner/"):
                names.inner[kind.removeprefix("inner/")] = back
            else:
                names.parameters[kind.removeprefix("parameter/")] = back
    close(draft, names)
    for rewrite in rewrites:
        for path, schema in rewrite.kept.items():
            index = draft.place("tools", path.removeprefix("parameters/"))
            if index is not None:
                draft.parts["tools"][index] = changed(draft.parts["tools"][index], parameters=schema)


class _Nothing:
    """A vocabulary without words."""

    names: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - never written to
    gates: tuple[str, ...] = ()
    openers: tuple[str, ...] = ()
    descriptions: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - never written to
    distractors: tuple[tuple[str, str], ...] = ()


_NOTHING = _Nothing()
_DIGESTS: dict[int, tuple[weakref.ref[Harness], str]] = {}


def base_digest(harness: Harness) -> str:
    """The harness's digest, remembered for as long as this (immutable) harness lives."""
    known = _DIGESTS.get(id(harness))
    if known is not None and known[0]() is harness:
        return known[1]
    digest, key = harness_digest(harness), id(harness)
    _DIGESTS[key] = (weakref.ref(harness, lambda _: _DIGESTS.pop(key, None)), digest)
    return digest
