"""The square commutes: a session rewritten to a state is the session that the expert plays under that state."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hat_harness.augment import apply, restore_trajectory, rewrite_trajectory, suite_plan, trained_plan
from hat_harness.augment.operators import (
    AnyOperator,
    HookMessage,
    Language,
    ParameterType,
    Register,
    ResultEnvelope,
    SkillName,
    ToolName,
)
from hat_harness.errors import AugmentError
from hat_harness.events import Message, ToolCall
from hat_harness.load import load_harness
from hat_harness.spec import Harness
from hat_harness.texts import message_in, result_in
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


def test_another_language_is_rewritten_and_played_alike() -> None:
    english, chinese = shipped("live-commerce"), shipped("live-commerce-zh")
    scenario = LiveCommerce(Settings(mix="balanced", difficulty=2))
    items = list(scenario.items(9, "test", 24))
    operators = [Language(), SkillName(), ToolName()]
    states = [apply(english, operators, n, scenario.vocabulary(), pair=chinese) for n in range(len(items))]
    before = play_expert(scenario, [(english, item) for item in items])
    after = play_expert(scenario, [(state.harness, item) for state, item in zip(states, items, strict=True)])
    events = 0
    for state, old, new in zip(states, before, after, strict=True):
        wanted, given_ = list(new.segments[0].messages), list(old.segments[0].messages)
        assert rewrite_trajectory(state, given_, wanted[0].content) == wanted
        assert restore_trajectory(state, wanted, given_[0].content) == given_
        events += sum("事件：" in message.content for message in wanted if message.role == "user")
    assert events


def test_replies_in_another_language_follow_the_recorded_map_and_come_back() -> None:
    english, chinese = shipped("live-commerce"), shipped("live-commerce-zh")
    state = apply(english, [Language()], 1, LiveCommerce(Settings()).vocabulary(), pair=chinese)
    said = [
        Message("user", 'event : item on sale item "mug"\nstage : none'),
        Message("assistant", "", tool_calls=(ToolCall("a", "get_itm", {}),)),
        Message("tool", 'error : no tool "get_itm" , tools are "get_item"', tool_call_id="a", name="get_itm"),
        Message("assistant", "dear , the mug is 39 . thanks for watching"),
        Message("user", "事件：已下单"),
        Message("assistant", "something that nobody recorded . thanks for watching"),
    ]
    replies = {said[3].content: "亲爱的，杯子三十九元。感谢观看"}
    told = rewrite_trajectory(state, said, replies=replies)
    assert [message.content for message in told] == [
        '事件：商品上架 item "mug"\nstage : 无',
        "",
        '错误：没有工具 “get_itm”，可用工具："get_item"',
        "亲爱的，杯子三十九元。感谢观看",
        "event : order placed",
        "something that nobody recorded . 感谢观看",
    ]
    assert restore_trajectory(state, told, replies=replies) == said
    with pytest.raises(AugmentError, match="two replies become one"):
        rewrite_trajectory(state, said, replies={"a": "c", "b": "c"})


LINES = ["event : item on sale", "event : order placed x", "事件：观众进场", "a : none", "a : 无", "none", "error : "]
HEADS = ["error : ", "错误：", 'error : no tool "', "错误：没有工具 “", 'skill "', ""]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(LINES), st.text(max_size=12)), max_size=4), st.sampled_from(HEADS))
def test_the_sessions_sentences_change_language_and_back(lines: list[str], head: str) -> None:
    text = "\n".join(lines)
    for change in (message_in, result_in):
        for whole in (text, head + text):
            assert change(change(whole, "en", "zh"), "zh", "en") == whole
            assert change(whole, "zh", "zh") == whole


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
