"""Every rewrite can be undone: structural ones from operator and seed, content ones from their record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hat_harness.augment import (
    HarnessState,
    apply,
    original,
    replay,
    restore_trajectory,
    rewrite_trajectory,
)
from hat_harness.augment.engine import undone
from hat_harness.digest import harness_digest
from hat_harness.errors import AugmentError
from hat_harness.events import Message, ToolCall
from hat_harness.render import render_system
from hat_harness.spec import Harness
from tests.augmentation.strategies import (
    CONTENT,
    HELD_OUT,
    PERTURBATION,
    ROOM,
    STRUCTURAL,
    TRAINED,
    harnesses,
    operators,
    seeds,
    sessions,
)


def system(harness: Harness) -> str:
    return render_system(harness, ROOM)


def parsed(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages with arguments as objects: a group does not keep the order of its keys."""
    made = json.loads(json.dumps(messages))
    for message in made:
        for call in message.get("tool_calls", ()):
            if isinstance(call["function"]["arguments"], str):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return made


@settings(max_examples=80, deadline=None)
@given(harnesses(), operators(STRUCTURAL), seeds)
def test_structural_rewrites_follow_from_operator_and_seed_alone(harness, chosen, seed):
    state = apply(harness, chosen, seed, TRAINED, held_out=HELD_OUT)
    stripped = state.model_copy(
        update={
            "harness": harness,
            "rewrites": tuple(
                rewrite.model_copy(update={"names": {}, "order": {}, "texts": {}, "kept": {}, "added": ()})
                for rewrite in state.rewrites
            ),
        }
    )
    again = replay(harness, stripped, TRAINED, held_out=HELD_OUT)
    assert again.model_dump_json() == state.model_dump_json()
    assert original(again) == harness


@settings(max_examples=100, deadline=None)
@given(harnesses(), operators(), seeds)
def test_a_stored_state_leads_back_to_its_base_without_any_vocabulary(harness, chosen, seed):
    state = apply(harness, chosen, seed, TRAINED, held_out=HELD_OUT)
    stored = HarnessState.model_validate_json(state.model_dump_json())
    assert stored.harness == state.harness
    assert original(stored) == harness
    assert harness_digest(original(stored)) == state.base_digest == harness_digest(harness)


@settings(max_examples=100, deadline=None)
@given(sessions(), operators(), seeds)
def test_a_trajectory_comes_back_whatever_went_wrong_in_it(session, chosen, seed):
    harness, messages = session
    state = apply(harness, chosen, seed, TRAINED, held_out=HELD_OUT)
    there = rewrite_trajectory(state, messages, system)
    assert parsed(restore_trajectory(state, there, system)) == parsed(messages)


@settings(max_examples=40, deadline=None)
@given(sessions(text=True), operators(tuple(f for f in STRUCTURAL if f != "parameter_type")), seeds)
def test_without_groups_even_the_text_of_arguments_comes_back(session, chosen, seed):
    harness, messages = session
    state = apply(harness, chosen, seed, TRAINED, held_out=HELD_OUT)
    assert restore_trajectory(state, rewrite_trajectory(state, messages, system), system) == messages


@settings(max_examples=40, deadline=None)
@given(sessions(), operators(), operators(), seeds)
def test_states_of_states_lead_back_step_by_step(session, first, second, seed):
    harness, messages = session
    one = apply(harness, first, seed, TRAINED, held_out=HELD_OUT)
    two = apply(one.harness, second, seed + 1, TRAINED, held_out=HELD_OUT)
    assert undone(HarnessState.model_validate_json(two.model_dump_json())) == one.harness
    there = rewrite_trajectory(two, rewrite_trajectory(one, messages, system), system)
    back = restore_trajectory(one, restore_trajectory(two, there, system), system)
    assert parsed(back) == parsed(messages)


@settings(max_examples=40, deadline=None)
@given(sessions(), operators(), seeds)
def test_events_and_chat_dicts_read_the_same(session, chosen, seed):
    harness, messages = session
    state = apply(harness, chosen, seed, TRAINED, held_out=HELD_OUT)
    there = rewrite_trajectory(state, [as_event(message) for message in messages], system)
    assert there == [as_event(message) for message in rewrite_trajectory(state, messages, system)]


def as_event(message: dict[str, Any]) -> Message:
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls", ())
    )
    return Message(
        message["role"],
        message["content"],
        message.get("reasoning_content", ""),
        calls,
        message.get("tool_call_id", ""),
        message.get("name", ""),
    )


@settings(max_examples=100, deadline=None)
@given(harnesses(), operators(CONTENT), seeds)
def test_content_rewrites_record_every_text_that_they_change(harness, chosen, seed):
    state = apply(harness, chosen, seed, TRAINED, held_out=HELD_OUT)
    before, after = texts(harness), texts(state.harness)
    recorded: dict[str, tuple[str, str]] = {}
    for rewrite in state.rewrites:
        for path, (old, new) in rewrite.texts.items():
            recorded[path] = (recorded.get(path, (old, new))[0], new)
    changed = {path: (before[path], after[path]) for path in before if before[path] != after[path]}
    assert changed == {path: pair for path, pair in recorded.items() if path in before and pair[0] != pair[1]}


def texts(harness: Harness) -> dict[str, str]:
    found = {f"skills/{skill.id}/body": skill.body for skill in harness.skills}
    found |= {f"skills/{skill.id}/description": skill.description for skill in harness.skills}
    found |= {f"tools/{tool.id}/description": tool.description for tool in harness.tools}
    return found | {f"prompts/{prompt.id}/text": prompt.text for prompt in harness.prompts}


def test_a_state_that_was_tampered_with_is_refused():
    from random import Random

    from tests.augmentation.strategies import make_harness

    state = apply(make_harness(Random(1)), [], 1, TRAINED)
    tampered = state.model_copy(update={"harness": state.harness.model_copy(update={"description": "other"})})
    with pytest.raises(AugmentError, match="do not lead back"):
        original(HarnessState.model_validate_json(tampered.model_dump_json()))


def test_a_system_prompt_is_never_left_in_the_old_words():
    from random import Random

    from tests.augmentation.strategies import make_harness, make_trajectory

    rng = Random(2)
    harness = make_harness(rng)
    with pytest.raises(AugmentError, match="system prompt"):
        rewrite_trajectory(apply(harness, [], 1, TRAINED), make_trajectory(rng, harness))


@settings(max_examples=30, deadline=None)
@given(harnesses(), st.sampled_from(STRUCTURAL + CONTENT + PERTURBATION), seeds)
def test_each_family_alone_leads_back(harness, family, seed):
    from random import Random

    from tests.augmentation.strategies import make_operator

    state = apply(harness, [make_operator(Random(seed), family)], seed, TRAINED, held_out=HELD_OUT)
    assert undone(state) == harness
