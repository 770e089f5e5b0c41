"""What is held out of training never appears in a training draw, and is what the test draws measure."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, settings

from hat_harness.augment import HOLDOUTS, AugmentPlan, Holdout, apply, draw, suite_plan, trained_plan, training_plan
from hat_harness.augment.layouts import HELD_OUT as HELD_OUT_LAYOUTS
from hat_harness.augment.layouts import TRAINED as TRAINED_LAYOUTS
from hat_harness.augment.layouts import UNSEEN, drawn_layout
from hat_harness.augment.operators import (
    ActivationName,
    DistractorSkill,
    DistractorTool,
    HookPolicy,
    Language,
    Markup,
    ParameterName,
    SkillName,
    SkillText,
    ToolDescription,
    ToolName,
)
from hat_harness.spec import Harness
from tests.augmentation.strategies import GATE, HELD_OUT, OPENER, TRAINED, harnesses, make_harness, seeds

HELD_WORDS = {
    part
    for text in [*(name for pool in HELD_OUT.names.values() for name in pool), *HELD_OUT.gates, *HELD_OUT.openers]
    for part in re.split(r"[_\s]+", text)
} - {
    part
    for text in [*(name for pool in TRAINED.names.values() for name in pool), *TRAINED.gates, *TRAINED.openers]
    for part in re.split(r"[_\s]+", text)
}
TRAINING_MODES = {"trained": 1.0, "random": 2.0, "combination": 1.0, "swap": 1.0}
PHRASES = {"trained": 1.0, "random": 3.0}


def new_names(state) -> list[str]:
    return [new for rewrite in state.rewrites for names in rewrite.names.values() for new in names.values()]


@settings(max_examples=60, deadline=None)
@given(harnesses(few_shots=False), seeds)
def test_training_draws_hold_no_held_out_word(harness, seed):
    chosen = [
        SkillName(modes=TRAINING_MODES),
        ToolName(modes=TRAINING_MODES),
        ParameterName(modes=TRAINING_MODES),
        ActivationName(modes=TRAINING_MODES),
        SkillText(modes=PHRASES),
        HookPolicy(modes=PHRASES),
        DistractorSkill(counts=(2,)),
        DistractorTool(counts=(2,)),
    ]
    state = apply(harness, chosen, seed, TRAINED, held_out=HELD_OUT)
    drawn = new_names(state) + [new for _, new in state.phrases().values()]
    drawn += [part.name for part in (*state.harness.skills, *state.harness.tools) if part.id.startswith("distractor")]
    words = {word for text in drawn for word in re.split(r"[_\s-]+", text)}
    assert not words & HELD_WORDS


def test_the_check_above_can_fail():
    harness = make_harness(Random(1), few_shots=False)
    state = apply(harness, [ToolName(modes={"held_out": 1.0})], 1, TRAINED, held_out=HELD_OUT)
    assert {word for name in new_names(state) for word in name.split("_")} & HELD_WORDS


@pytest.mark.parametrize("preset", ["names", "skill", "tool", "parameter", "activation", "gate", "opener", "layout"])
def test_a_single_factor_preset_holds_out_that_factor_and_nothing_else(preset):
    harness, plan = make_harness(Random(3), few_shots=False), suite_plan(preset)
    held = {"names": ("skill", "tool", "parameter", "activation")}.get(preset, (preset,))
    for seed in range(25):
        state = apply(harness, plan, seed, TRAINED, held_out=HELD_OUT)
        kinds: dict[str, list[str]] = {
            "gate": [],
            "opener": [],
            "skill": [],
            "tool": [],
            "parameter": [],
            "activation": [],
        }
        for rewrite in state.rewrites:
            for kind, names in rewrite.names.items():
                kinds[kind.split("/")[0]] += [new for old, new in names.items() if new != old]
        for argument, (_, new) in state.phrases().items():
            kinds[argument].append(new)
        for kind, drawn in kinds.items():
            words = [set(re.split(r"[_\s]+", text)) & HELD_WORDS for text in drawn]
            if kind in held and kind not in ("activation", "parameter"):
                assert all(words), (kind, drawn)
            if kind not in held:
                assert not any(words), (kind, drawn)
        fields = (state.harness.layout.section, state.harness.layout.skill)
        assert (fields in {(one.section, one.skill) for one in HELD_OUT_LAYOUTS}) == (preset == "layout")


def test_t2_draws_like_training_but_always_and_t2x_holds_out_words_and_layouts():
    harness = make_harness(Random(5), few_shots=False)
    families = {family for seed in range(30) for family in apply(harness, suite_plan("T2"), seed, TRAINED).families}
    assert families == trained_plan().families()
    assert all(apply(harness, suite_plan("T2"), seed, TRAINED).rewrites for seed in range(30))
    for seed in range(10):
        state = apply(harness, suite_plan("T2x"), seed, TRAINED, held_out=HELD_OUT)
        assert state.phrases()["gate"][1] in HELD_OUT.gates
        assert state.phrases()["opener"][1] in HELD_OUT.openers
        assert state.harness.layout.skill in {one.skill for one in HELD_OUT_LAYOUTS}


def test_t2n_uses_nothing_that_any_pool_has():
    harness = make_harness(Random(5), few_shots=False)
    for seed in range(10):
        state = apply(harness, suite_plan("T2n"), seed, TRAINED, held_out=HELD_OUT)
        assert state.harness.layout.skill in {one.skill for one in UNSEEN}
        gate = state.phrases()["gate"][1]
        assert gate not in (*TRAINED.gates, *HELD_OUT.gates, GATE)


def test_t2e_changes_a_rule_and_says_what_is_right_now():
    harness = make_harness(Random(5), few_shots=False)
    changed = set()
    for seed in range(20):
        state = apply(harness, suite_plan("T2e"), seed, TRAINED, held_out=HELD_OUT)
        edit = next(rewrite for rewrite in state.rewrites if rewrite.operator.type == "rule_edit")
        (argument,) = edit.phrases
        new = state.phrases()[argument][1]
        assert state.phrases()[argument][0] == {"gate": GATE, "opener": OPENER}[argument]
        assert new in (HELD_OUT.gates if argument == "gate" else HELD_OUT.openers)
        assert any(hook.arguments.get(argument) == new for hook in state.harness.hooks)
        assert "hook_policy" not in state.families
        changed.add(argument)
    assert changed == {"gate", "opener"}


def test_a_removed_rule_leaves_no_text_that_asks_for_it():
    from hat_harness.augment.operators import RuleEdit

    harness = make_harness(Random(6), few_shots=False)
    state = apply(harness, [RuleEdit(edits=("remove",), arguments=("gate",))], 1, TRAINED)
    assert all(hook.id != "gate" for hook in state.harness.hooks)
    assert GATE not in str(state.harness.prompts)
    assert state.phrases() == {"gate": (GATE, "")}


def test_layouts_share_no_separator_with_the_unseen_ones():
    rng = Random(0)
    others = [*TRAINED_LAYOUTS, *HELD_OUT_LAYOUTS, *(drawn_layout(rng, "grammar", 0.5) for _ in range(300))]
    for one in others:
        assert not set("|^=$") & set(one.skill + one.tool)
    for one in UNSEEN:
        between = one.skill.split("{description}")[1].split("{name}")[0]
        assert between in ("|", "^", "=")
    assert not {one.skill for one in HELD_OUT_LAYOUTS} & {one.skill for one in others if one not in HELD_OUT_LAYOUTS}


def test_held_out_families_leave_training_and_are_always_on_in_tests():
    holdout = Holdout(families=("markup", "register", "skill_order"))
    train, test = holdout.train(trained_plan()), holdout.test(trained_plan())
    assert not {"markup", "register", "skill_order"} & train.families()
    for seed in range(20):
        on = {op.type for op in draw(test, Random(seed))}
        assert {"markup", "register", "skill_order"} <= on


def test_training_plans_lose_the_modes_that_draw_from_the_held_out_side():
    plan = AugmentPlan(operators=(ToolName(modes={"held_out": 1.0, "trained": 1.0}), Markup(modes={"unseen": 1.0})))
    kept = Holdout().train(plan).operators
    assert kept == (ToolName(modes={"trained": 1.0}), Markup(modes={"trained": 1.0}))


def test_the_training_plan_is_wider_than_the_suites_and_stays_on_the_trained_side():
    plan = training_plan()
    assert Holdout().train(plan) == plan
    assert plan.families() == trained_plan().families()
    assert {mode for op in plan.operators for mode in getattr(op, "modes", ())} == {"trained", "random", "grammar"}
    held_out = {one.skill for one in HELD_OUT_LAYOUTS} | {one.skill for one in UNSEEN}
    for seed in range(150):
        state = apply(make_harness(Random(seed), few_shots=False), plan, seed, TRAINED, held_out=HELD_OUT)
        drawn = new_names(state) + [new for _, new in state.phrases().values()]
        assert not {word for text in drawn for word in re.split(r"[_\s-]+", text)} & HELD_WORDS
        assert state.harness.layout.skill not in held_out
    assert {op.type: op for op in suite_plan("T2").operators} == {op.type: op for op in trained_plan().operators}


def test_the_share_of_undisturbed_draws_and_of_families_is_the_plans():
    plan = trained_plan()
    draws = [draw(plan, Random(seed)) for seed in range(4000)]
    undisturbed = sum(not chosen for chosen in draws) / len(draws)
    on = sum(any(op.type == "skill_name" for op in chosen) for chosen in draws) / len(draws)
    assert abs(undisturbed - 0.2) < 0.025
    assert abs(on - 0.8 * 0.85) < 0.03


def test_families_are_named_once_and_each_says_its_law():
    from typing import get_args

    from hat_harness.augment.operators import AnyOperator, Family

    union = get_args(get_args(AnyOperator)[0])
    types = [one.model_fields["type"].default for one in union]
    assert sorted(types) == sorted(get_args(Family))
    assert {one.law for one in union} == {"structural", "content", "perturbation"}


def test_every_preset_is_a_valid_plan_that_survives_json():
    for preset in HOLDOUTS:
        plan = suite_plan(preset)
        assert AugmentPlan.model_validate_json(plan.model_dump_json()) == plan


def test_held_out_descriptions_come_from_the_held_out_side_only():
    from hat_harness.augment import Words

    harness = make_harness(Random(5), few_shots=False)
    told = {tool.id: ("the other words",) for tool in harness.tools}
    state = apply(
        harness, [ToolDescription(modes={"held_out": 1.0}, original=0.0)], 1, TRAINED, held_out=Words(descriptions=told)
    )
    assert all(tool.description == "the other words" for tool in state.harness.tools)


def test_language_takes_every_text_from_the_paired_harness():
    from hat_harness.augment import original
    from hat_harness.augment.engine import undone
    from hat_harness.errors import AugmentError

    english = make_harness(Random(8), few_shots=False)
    chinese = english.model_copy(
        update={
            "language": "zh",
            "skills": tuple(
                s.model_copy(update={"body": "说 `use_skill` 。", "description": "技能"}) for s in english.skills
            ),
            "hooks": tuple(
                h.model_copy(update={"arguments": dict.fromkeys(h.arguments, "谢谢大家观看")}) for h in english.hooks
            ),
        }
    )
    state = apply(english, [Language(), ActivationName()], 1, TRAINED, pair=chinese)
    assert state.harness.language == "zh"
    assert all(skill.body == f"说 `{state.harness.activation.tool}` 。" for skill in state.harness.skills)
    assert state.phrases()["gate"] == (GATE, "谢谢大家观看")
    assert undone(state) == english == original(state)
    with pytest.raises(AugmentError, match="paired harness"):
        apply(english, [Language()], 1, TRAINED)
    assert isinstance(state.harness, Harness)
