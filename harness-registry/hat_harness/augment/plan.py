"""Plans: which families are on, how often, from which pools; and what is held out of training.

Always holds: `draw` consumes only its `random.Random`; a plan made by `Holdout.train` contains no held-out family and
no held-out pool, and `Holdout.test` measures exactly the held-out factors on top of the trained ones.
Not here: carrying a plan out (engine).
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from hat_harness.augment.operators import (
    ActivationName,
    AnyOperator,
    DistractorSkill,
    DistractorTool,
    Family,
    HookPolicy,
    Markup,
    ParameterName,
    ParameterOrder,
    ResultEnvelope,
    RuleEdit,
    SectionOrder,
    Share,
    SkillDescription,
    SkillName,
    SkillOrder,
    SkillText,
    ToolDescription,
    ToolName,
    ToolOrder,
)

Factor = Literal["skill", "tool", "parameter", "activation", "gate", "opener", "layout", "envelope", "description"]

_FACTOR: Mapping[Factor, tuple[Family, ...]] = {
    "skill": ("skill_name", "distractor_skill"),
    "tool": ("tool_name", "distractor_tool"),
    "parameter": ("parameter_name",),
    "activation": ("activation",),
    "gate": ("hook_policy",),
    "opener": ("skill_text",),
    "layout": ("markup",),
    "envelope": ("result_envelope",),
    "description": ("skill_description", "tool_description"),
}
_OPERATOR: TypeAdapter[AnyOperator] = TypeAdapter(AnyOperator)
_NAMED: tuple[Family, ...] = ("skill_name", "tool_name", "parameter_name", "activation")
NAMES: tuple[Factor, ...] = ("skill", "tool", "parameter", "activation")


class AugmentPlan(BaseModel):
    """A distribution over rewrites."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operators: tuple[AnyOperator, ...] = ()
    p: Share = 0.85
    """Probability of each family that does not set its own."""
    original: Share = 0.2
    """Share of draws that leave the harness undisturbed."""
    lexicon: tuple[str, ...] = ()
    """Further words for random names and phrases, such as whole-word tokens of a small tokenizer."""

    def families(self) -> frozenset[str]:
        """Types of the operators in the plan."""
        return frozenset(operator.type for operator in self.operators)


def draw(plan: AugmentPlan, rng: Random) -> list[AnyOperator]:
    """The operators of one draw: none with probability `original`, else each on with its `p`; in order of stage.

    One random number is consumed per operator whatever comes out, so that a family's draw does not depend on others.
    """
    undisturbed = rng.random() < plan.original
    chosen = [op for op in plan.operators if rng.random() < (plan.p if op.p is None else op.p)]
    return [] if undisturbed else sorted(chosen, key=lambda op: op.stage)


def trained_plan() -> AugmentPlan:
    """The vetted plan that suites are measured by: names from the pools, phrases random half of the time, trained
    layouts, distractors."""
    return AugmentPlan(
        operators=(
            SkillName(),
            ToolName(),
            ParameterName(),
            ActivationName(),
            SkillDescription(),
            ToolDescription(),
            SkillText(),
            HookPolicy(),
            SkillOrder(),
            ToolOrder(),
            ParameterOrder(p=0.3),
            SectionOrder(),
            Markup(),
            ResultEnvelope(p=0.3),
            DistractorSkill(),
            DistractorTool(),
        )
    )


def training_plan() -> AugmentPlan:
    """What arms are trained on: the vetted plan, with names random half of the time and layouts of the grammar three
    times in ten, so that a model copies what stands there instead of choosing among the pools' words."""
    wider: dict[str, dict[str, float]] = {family: {"trained": 0.5, "random": 0.5} for family in _NAMED}
    wider["markup"] = {"trained": 0.7, "grammar": 0.3}
    plan = trained_plan()
    operators = tuple(
        op.model_copy(update={"modes": wider[op.type]}) if op.type in wider else op for op in plan.operators
    )
    return plan.model_copy(update={"operators": operators})


class Holdout(BaseModel):
    """What training must not see: families leave the plan whole, factors keep their family but not the pool."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    families: tuple[Family, ...] = ()
    """Whole families kept out of training."""
    factors: tuple[Factor, ...] = ()
    """Factors whose held-out pool is used in tests."""
    fresh: bool = False
    """Tests draw random names, random phrases of held-out words and never-seen separators instead of the pools."""
    edits: bool = False
    """Tests change a rule (T2e)."""

    def train(self, plan: AugmentPlan) -> AugmentPlan:
        """`plan` without the held-out families and without the modes that draw from the held-out side."""
        kept = tuple(op for op in plan.operators if op.type not in self.families)
        return plan.model_copy(update={"operators": tuple(_trained_side(op) for op in kept)})

    def test(self, plan: AugmentPlan) -> AugmentPlan:
        """Every draw disturbed, trained families as trained, held-out families always on, held-out factors fresh."""
        forced = {family for factor in self.factors for family in _FACTOR[factor]}
        operators: list[AnyOperator] = []
        missing = sorted((forced | set(self.families)) - plan.families())
        for op in (*plan.operators, *(_OPERATOR.validate_python({"type": family}) for family in missing)):
            if op.type in forced:
                operators.append(self._held_out(op))
            elif op.type in self.families:
                operators.append(op.model_copy(update={"p": 1.0}))
            elif op.type == "hook_policy" and self.edits:
                continue
            else:
                operators.append(op)
        if self.edits:
            operators.append(RuleEdit(p=1.0))
        return plan.model_copy(update={"operators": tuple(operators), "p": 1.0, "original": 0.0})

    def _held_out(self, op: AnyOperator) -> AnyOperator:
        if op.type == "markup":
            modes: dict[str, float] = {"unseen" if self.fresh else "held_out": 1.0}
        elif op.type in ("result_envelope", "skill_description", "tool_description"):
            modes = {"held_out": 1.0}
        else:
            modes = {"random_held_out" if self.fresh else "held_out": 1.0}
        return op.model_copy(update={"p": 1.0, "modes": modes})


def _trained_side(op: AnyOperator) -> AnyOperator:
    """`op` without the modes that draw from the held-out side."""
    modes = getattr(op, "modes", None)
    if not modes:
        return op
    kept = {mode: weight for mode, weight in modes.items() if mode not in ("held_out", "random_held_out", "unseen")}
    return op if kept == modes else op.model_copy(update={"modes": kept or {"trained": 1.0}})


HOLDOUTS: Mapping[str, Holdout] = {
    "T2": Holdout(),
    "T2x": Holdout(factors=(*NAMES, "gate", "opener", "layout")),
    "T2n": Holdout(factors=(*NAMES, "gate", "opener", "layout"), fresh=True),
    "T2e": Holdout(edits=True),
    "names": Holdout(factors=NAMES),
    "skill": Holdout(factors=("skill",)),
    "tool": Holdout(factors=("tool",)),
    "parameter": Holdout(factors=("parameter",)),
    "activation": Holdout(factors=("activation",)),
    "gate": Holdout(factors=("gate",)),
    "opener": Holdout(factors=("opener",)),
    "layout": Holdout(factors=("layout",)),
    "envelope": Holdout(factors=("envelope",)),
    "description": Holdout(factors=("description",)),
}
"""Suites and single-factor splits by name."""

Preset = Annotated[str, Field(pattern="^(" + "|".join(HOLDOUTS) + ")$")]


def suite_plan(preset: str, plan: AugmentPlan | None = None) -> AugmentPlan:
    """The test plan of a named holdout, over `plan` (by default the vetted training plan)."""
    return HOLDOUTS[preset].test(trained_plan() if plan is None else plan)
