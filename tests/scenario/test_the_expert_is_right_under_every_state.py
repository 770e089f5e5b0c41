"""The scripted expert scores 100 on every turn, under the original harness and under every rewrite of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hat_harness.augment import HOLDOUTS, AugmentPlan, FaultPlan, FaultyBackend, apply, suite_plan, trained_plan
from hat_harness.augment.operators import (
    HookMessage,
    Language,
    Markup,
    ParameterName,
    ParameterType,
    Register,
    RuleEdit,
    SkillDescription,
    SkillName,
    SkillText,
    ToolName,
)
from hat_harness.ports import ToolBackend
from hat_harness.spec import Harness
from hat_harness.trace import turns as turns_of
from hat_scenarios.base import Item, Scores
from hat_scenarios.live_commerce import INTENTS, LiveCommerce, Settings
from hat_scenarios.live_commerce.reading import enforced, stated
from hat_scenarios.live_commerce.words import INJECTIONS, PUSHES
from hat_scenarios.play import play_expert

ALL_FOUR = Scores(accuracy=1, effectiveness=1, skill_selection=1, tool_rationality=1)


def always(*operators: Any) -> AugmentPlan:
    return AugmentPlan(operators=operators, p=1.0, original=0.0)


PLANS = {name: suite_plan(name) for name in HOLDOUTS} | {
    "types": always(ParameterType(), ParameterName(modes={"random": 1}), ToolName(modes={"swap": 1})),
    "misleading names": always(SkillName(modes={"misleading": 1}), ToolName(modes={"char_noise": 1})),
    "texts": always(Register(), HookMessage(), SkillText(), SkillDescription(), Markup(modes={"grammar": 1})),
    "a rule removed": always(RuleEdit(edits=("remove",))),
}


@pytest.fixture(scope="module")
def hard() -> LiveCommerce:
    return LiveCommerce(Settings(mix="balanced", difficulty=2))


def wrong(results: Sequence[tuple[Item, int, Scores]]) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [
        (item.turns[turn].intent, item.turns[turn].texts, scores.causes)
        for item, turn, scores in results
        if scores != ALL_FOUR
    ]


@pytest.mark.parametrize("difficulty", [1, 2, 3])
def test_under_the_original_harness(live: Harness, played: Any, difficulty: Any) -> None:
    scenario = LiveCommerce(Settings(mix="balanced", difficulty=difficulty))
    items = list(scenario.items(31, "test", 120))
    assert {turn.intent for item in items for turn in item.turns} == set(INTENTS)
    assert wrong(played(scenario, [(live, item) for item in items])) == []


def test_under_one_prompt_without_skills_and_hooks(baseline: Harness, played: Any, hard: LiveCommerce) -> None:
    assert wrong(played(hard, [(baseline, item) for item in hard.items(32, "test", 80)])) == []


def test_under_the_chinese_harness(chinese: Harness, played: Any, hard: LiveCommerce) -> None:
    assert wrong(played(hard, [(chinese, item) for item in hard.items(38, "test", 40)])) == []


def test_under_texts_in_the_other_language(live: Harness, chinese: Harness, played: Any, hard: LiveCommerce) -> None:
    plan = AugmentPlan(operators=(*trained_plan().operators, Language(p=1.0)), original=0.0)
    words, held_out = hard.vocabulary(), hard.vocabulary(held_out=True)
    cases = [
        (apply(live, plan, index, words, held_out=held_out, pair=chinese).harness, item)
        for index, item in enumerate(hard.items(39, "test", 30))
    ]
    assert {harness.language for harness, _ in cases} == {"zh"}
    assert wrong(played(hard, cases)) == []


@pytest.mark.parametrize("name", list(PLANS))
def test_under_every_family_of_rewrites(live: Harness, played: Any, hard: LiveCommerce, name: str) -> None:
    words, held_out = hard.vocabulary(), hard.vocabulary(held_out=True)
    cases = [
        (apply(live, PLANS[name], 1000 + index, words, held_out=held_out).harness, item)
        for index, item in enumerate(hard.items(33, "test", 30))
    ]
    assert any(harness != live for harness, _ in cases)
    assert wrong(played(hard, cases)) == []
    for harness, _ in cases:
        replies = [skill.id for skill in harness.skills if skill.kind == "reply" and skill.id in names_of(live)]
        assert all(stated(harness, skill) == enforced(harness, skill) for skill in replies)


def names_of(harness: Harness) -> set[str]:
    return {skill.id for skill in harness.skills}


def test_under_faults_of_the_tools(live: Harness, played: Any, hard: LiveCommerce) -> None:
    rates = dict.fromkeys(("timeout", "rate_limit", "server", "malformed", "schema_drift"), 0.12)
    plan = FaultPlan.model_validate({"seed": 9, "rates": rates, "most_in_a_row": 2})
    seen: list[str] = []

    class Seen(FaultyBackend):
        def call(self, session_id: str, request: Any) -> Any:
            result = super().call(session_id, request)
            seen.append(result.failure)
            return result

    def faulty(session: str, tools: ToolBackend) -> ToolBackend:
        return Seen(tools, plan)

    cases = [(live, item) for item in hard.items(34, "test", 60)]
    assert wrong(played(hard, cases, faulty)) == []
    assert sum(bool(failure) for failure in seen) > 20


def test_under_viewers_and_records_that_push(live: Harness, played: Any) -> None:
    scenario = LiveCommerce(Settings(mix="balanced", difficulty=2, adversarial=0.8))
    items = list(scenario.items(41, "test", 60))
    pushed = [
        turn for item in items for turn in item.turns if any(push in text for push in PUSHES for text in turn.texts)
    ]
    assert len(pushed) > 20
    assert sum(item.room["note"] in INJECTIONS for item in items) > 30
    assert wrong(played(scenario, [(live, item) for item in items])) == []


def test_a_changed_rule_makes_the_old_behaviour_wrong(live: Harness, hard: LiveCommerce) -> None:
    """T2e: what was right under the original harness fails under the edited one, and only by the edited rule."""
    cases = [(live, item) for item in hard.items(35, "test", 20)]
    plan = always(RuleEdit())
    missed: set[str] = set()
    for index, ((_, item), trace) in enumerate(zip(cases, play_expert(hard, cases), strict=True)):
        edited = apply(live, plan, index, hard.vocabulary(), held_out=hard.vocabulary(held_out=True)).harness
        for turn, scores in zip(item.turns, hard.score(edited, item, trace), strict=True):
            if turn.gold.outcome != "silence":
                assert scores.accuracy == 1
                assert scores.effectiveness == 0
                missed |= set(scores.causes)
    assert missed == {"gate", "opener"}


def test_reasoning_quotes_the_catalogue_word_for_word(live: Harness, hard: LiveCommerce) -> None:
    cases = [(live, item) for item in hard.items(36, "train", 30)]
    for trace in play_expert(hard, cases):
        for segment in trace.segments:
            prompt = segment.messages[0].content
            for message in segment.messages:
                if message.tool_calls:
                    aspect, _, line = message.reasoning.partition(" |")
                    assert aspect
                    assert line in prompt
                    assert message.tool_calls[0].name in line or live.activation.tool == message.tool_calls[0].name


def test_sessions_are_bounded_and_end_as_they_should(live: Harness, hard: LiveCommerce) -> None:
    cases = [(live, item) for item in hard.items(37, "test", 60)]
    for (_, item), trace in zip(cases, play_expert(hard, cases), strict=True):
        for turn, summary in zip(item.turns, turns_of(trace), strict=True):
            assert summary.model_calls <= 6
            assert summary.rounds == summary.restarts == 0
            assert summary.outcome == ("silence" if turn.gold.outcome == "silence" else "reply")
