"""A load follows its plan, and every turn of it is counted: by arm, with failures, lost turns and moves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hat_serving.loadtest.ask import TurnRecord
from hat_serving.loadtest.measured import moves, percentile, read_turns, summed
from hat_serving.loadtest.plan import LoadPlan
from hat_serving.loadtest.run import LoadError, RunningLoad, run_load
from hat_serving.loadtest.shapes import viewers_at
from hat_serving.loadtest.viewers import asked_of, conversation, on_sale, room_of
from hatstack.cli.loadtest_page import page
from tests.serving.conftest import World, deploy, shop

PLAN = LoadPlan(url="http://127.0.0.1:1", model="shop")


def test_locust_users_talk_and_every_turn_is_read_back(world: World, tmp_path: Path) -> None:
    world.source.set(deploy(shop("bye"), shop("canary bye", "shop"), weights=(50, 50)))
    plan = LoadPlan(url=world.url, model="shop", users=8, duration_s=3, think_s=0.05, burst_every_s=1, turns=3)
    result = run_load(plan, tmp_path / "load")
    assert result.failed == 0, result.errors
    assert result.lost_turns == 0
    assert set(result.arms) == {"stable", "canary"}
    assert all(turn.turn >= 1 for turn in result.turns if turn.ok and turn.status == 200)
    assert result.whole.turns > 40
    assert result.whole.tokens_per_s > 0
    assert 0 < result.whole.ttft_p50_s <= result.whole.wall_p50_s
    assert {turn.viewer for turn in result.turns} >= set(range(8))
    assert "on_sale" in result.intents
    assert "item_on_sale" in result.intents
    again = summed(plan, read_turns(tmp_path / "load" / "turns.jsonl"))
    assert again.to_json() == result.to_json()
    with pytest.raises(LoadError, match="holds a load"):
        RunningLoad(plan, tmp_path / "load")


def test_what_fails_is_counted_with_the_gateways_words(world: World, tmp_path: Path) -> None:
    plan = LoadPlan(url=world.url, model="nobody", users=2, duration_s=1, think_s=0.05, stream=False)
    result = run_load(plan, tmp_path / "load")
    assert result.failed == len(result.turns) > 0
    assert all("no harness or release called 'nobody'" in error for error in result.errors)
    assert result.whole.goodput_per_s == result.whole.in_time == 0


def test_a_gateway_that_is_not_there_fails_every_turn(tmp_path: Path) -> None:
    result = run_load(PLAN.model_copy(update={"users": 2, "duration_s": 1.0, "think_s": 0.05}), tmp_path / "load")
    assert result.failed == len(result.turns) > 0
    assert all(turn.status == 0 for turn in result.turns)


@given(st.sampled_from(["flat", "ramp", "spike", "soak"]), st.integers(1, 500), st.floats(0, 1), st.floats(0, 1))
def test_shapes_never_exceed_the_plan_and_end(shape: Any, users: int, early: float, late: float) -> None:
    plan = PLAN.model_copy(update={"shape": shape, "users": users, "duration_s": 100.0})
    first, second = sorted((early, late))
    for part in (first, second):
        wanted = viewers_at(plan, part * 100)
        assert wanted is None if part >= 1 else wanted is not None and 1 <= wanted <= users
    if shape in ("ramp", "soak") and second < 1:
        assert (viewers_at(plan, first * 100) or 0) <= (viewers_at(plan, second * 100) or 0)
    assert viewers_at(plan, 100) is None


def test_shapes_reach_the_height_when_they_say() -> None:
    plan = PLAN.model_copy(update={"users": 100, "duration_s": 90.0})
    ramp, spike, soak = (plan.model_copy(update={"shape": shape}) for shape in ("ramp", "spike", "soak"))
    assert [viewers_at(ramp, at) for at in (0, 30, 61, 89)] == [10, 60, 100, 100]
    assert [viewers_at(spike, at) for at in (0, 31, 59, 61)] == [20, 100, 100, 20]
    assert [viewers_at(soak, at) for at in (0, 9, 89)] == [10, 100, 100]


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(1, 50))
def test_conversations_are_drawn_alike_and_name_products_of_the_room(viewer: int, number: int) -> None:
    plan = PLAN.model_copy(update={"mix": {"product_qa": 1.0}})
    turns = list(conversation(plan, viewer, number))
    assert turns == list(conversation(plan, viewer, number))
    assert len(turns) == plan.turns
    names = room_of(plan.room_seed, plan.difficulty).names
    assert all(any(name in text for name in names) for turn in turns for text in turn.texts)
    assert on_sale(plan, number) in asked_of(plan, viewer, number)


def record(at: float, **more: Any) -> TurnRecord:
    """A turn of conversation c."""
    return replace(TurnRecord(0, "c", 1, "chat", at, wall=1.0, status=200, arm="stable", harness="h"), **more)


def test_a_turn_that_the_next_one_does_not_build_on_is_lost() -> None:
    kept = [record(1, turn=0), record(3, turn=1), record(5, turn=2, error="x"), record(7, turn=2)]
    assert summed(PLAN, kept).lost_turns == 0
    assert summed(PLAN, [record(1, turn=0), record(3, turn=1), record(5, turn=1)]).lost_turns == 1
    assert summed(PLAN, [record(1, turn=4), record(3, turn=0)]).lost_turns == 5


def test_moves_are_found_by_arm_and_by_harness() -> None:
    turns = [
        record(1),
        record(2, arm="canary", harness="g"),
        record(3, arm=""),
        record(4),
        record(5, arm="x", error="e"),
    ]
    found = [(move.kind, move.before, move.after) for move in moves(turns)]
    assert found == [
        ("arm", "stable", "canary"),
        ("arm", "canary", "stable"),
        ("harness", "h", "g"),
        ("harness", "g", "h"),
    ]
    assert summed(PLAN, turns).moves == {("stable", "canary"): 1, ("canary", "stable"): 1}


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50), st.floats(0, 1))
def test_percentiles_are_values_that_were_measured(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9


def test_the_page_of_a_load_shows_arms_moves_failures_and_escapes(tmp_path: Path) -> None:
    turns = [record(1), record(2, arm="canary"), record(3, error="429 <b>full</b>")]
    (tmp_path / "turns.jsonl").write_text("".join(turn.line() + "\n" for turn in turns))
    body = summed(PLAN, turns).to_json()
    text = page(tmp_path, body)
    for words in (
        "canary",
        "By the arm that served",
        "429 &lt;b&gt;full",
        "Moves within conversations",
        "66.7%",
        "<svg",
    ):
        assert words in text, words
    assert "<b>full" not in text
