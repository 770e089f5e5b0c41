"""The square commutes: a session rewritten to a state is the session that the expert plays under that state."""

from __future__ import annotations

from pathlib import Path

import pytest

from hat_harness.augment import apply, restore_trajectory, rewrite_trajectory, suite_plan, trained_plan
from hat_harness.augment.operators import AnyOperator, HookMessage, ParameterType, Register, ResultEnvelope
from hat_harness.load import load_harness
from hat_harness.spec import Harness
from hat_harness.validate import validate
from hat_scenarios.live_commerce import LiveCommerce, Settings
from hat_scenarios.play import play_expert

HARNESSES = Path(__file__).parents[2] / "harness-registry" / "harnesses"


def shipped(name: str) -> Harness:
    harness = load_harness(HARNESSES / name)
    limits = harness.limits.model_copy(update={"segment_tokens": 100_000})
    return harness.model_copy(update={"limits": limits})  # one segment a session: what is compared stands in it


def without_distractors() -> list[AnyOperator]:
    kept = [op for op in trained_plan().operators if not op.type.startswith("distractor")]
    return [*kept, ParameterType(), ResultEnvelope(), Register(), HookMessage()]


@pytest.mark.parametrize(("preset", "seed"), [("training", 0), ("T2x", 1), ("T2n", 2)])
def test_rewriting_and_playing_commute(preset: str, seed: int) -> None:
    harness, scenario = shipped("live-commerce"), LiveCommerce(Settings(mix="balanced", difficulty=2))
    items = list(scenario.items(5 + seed, "test", 40))
    words, held_out = scenario.vocabulary(), scenario.vocabulary(held_out=True)
    chosen: list[AnyOperator] = without_distractors()
    if preset != "training":
        chosen = [op for op in suite_plan(preset).operators if not op.type.startswith("distractor")]
    states = [apply(harness, chosen, number, words, held_out=held_out) for number in range(len(items))]
    before = play_expert(scenario, [(harness, item) for item in items])
    after = play_expert(scenario, [(state.harness, item) for state, item in zip(states, items, strict=True)])
    moved = 0
    for state, old, new in zip(states, before, after, strict=True):
        wanted, given = list(new.segments[0].messages), list(old.segments[0].messages)
        assert rewrite_trajectory(state, given, wanted[0].content) == wanted
        assert restore_trajectory(state, wanted, given[0].content) == given
        moved += wanted[1:] != given[1:]
    assert moved == len(items)


@pytest.mark.parametrize("name", ["live-commerce", "live-commerce-zh", "react-baseline"])
def test_shipped_harnesses_stay_valid_under_every_suite(name: str) -> None:
    harness, scenario = load_harness(HARNESSES / name), LiveCommerce(Settings())
    words, held_out = scenario.vocabulary(), scenario.vocabulary(held_out=True)
    for preset in ("T2", "T2x", "T2n", "T2e", "description"):
        for seed in range(6):
            state = apply(harness, suite_plan(preset), seed, words, held_out=held_out)
            assert validate(state.harness) == []
            texts = [part.text for part in state.harness.prompts] + [skill.body for skill in state.harness.skills]
            for old, new in state.phrases().values():
                assert any(new in text for text in texts)
                assert not any(f'"{old}"' in text or f"= {old}" in text for text in texts)
