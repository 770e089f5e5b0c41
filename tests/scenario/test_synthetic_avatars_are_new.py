"""Synthetic avatars: every item has a valid harness of its own, the host is right under it, and nothing is from training."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

import hat_scenarios.live_commerce.vocabulary as live_words
from hat_harness.events import CallModel, Failure, ModelOutput
from hat_harness.render import render_system
from hat_harness.spec import Harness
from hat_harness.validate import validate
from hat_scenarios.avatar import Avatar, Settings, worlds
from hat_scenarios.base import Item, Scores
from hat_scenarios.general import instructions, layouts, sessions, texts
from hat_scenarios.play import play, play_expert

from .conftest import HARNESSES

SCENARIOS = (Avatar(Settings(kind="tool")), Avatar(Settings(kind="prompt", wording="free")))


def drawn(scenario: Avatar, count: int) -> list[tuple[Harness, Item]]:
    return [(scenario.harness_of(item), item) for item in scenario.items(3, "test", count, 2)]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=("tool", "prompt"))
def test_every_harness_is_valid_and_the_host_is_right_under_it(scenario: Avatar) -> None:
    cases = drawn(scenario, 150)
    assert [problem for harness, _ in cases for problem in validate(harness)] == []
    scores = [
        scenario.score(harness, item, trace)
        for (harness, item), trace in zip(cases, play_expert(scenario, cases), strict=True)
    ]
    right = Scores(accuracy=1, effectiveness=1, skill_selection=1, tool_rationality=1)
    assert {score for one in scores for score in one} == {right}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=("tool", "prompt"))
def test_items_and_harnesses_are_the_same_to_the_byte_and_differ_from_each_other(scenario: Avatar) -> None:
    first, second = drawn(scenario, 60), drawn(scenario, 60)
    assert first == second
    assert json.dumps([item.room for _, item in first]) == json.dumps([item.room for _, item in second])
    prompts = [render_system(harness, scenario.room_view(item)) for harness, item in first]
    assert len(set(prompts)) == len(prompts)


class Wrong:
    """The host with one fault."""

    def __init__(self, cases: Sequence[tuple[Harness, Item]], fault: str) -> None:
        self._cases, self._fault, self._turn = cases, fault, 0

    def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
        outputs: list[ModelOutput | Failure] = []
        for session, call in calls:
            harness, item = self._cases[int(session.split("-", 1)[0])]
            turn = sum(message.role == "user" for message in call.messages) - 1
            outputs.append(self._spoil(Avatar().expert().respond(harness, item, turn, call)))
        return outputs

    def _spoil(self, output: ModelOutput) -> ModelOutput:
        if self._fault == "number":
            return replace(output, content=output.content and output.content.replace(" . ", " 777 . "))
        if self._fault == "opener":
            return replace(output, content=output.content and "hm , " + output.content)
        if self._fault == "gate":
            return replace(output, content=output.content and output.content + " bye")
        return replace(output, content=output.content and "777")


@pytest.mark.parametrize(
    ("fault", "cause", "metric"),
    [
        ("number", "wrong_number", "accuracy"),
        ("opener", "opener", "effectiveness"),
        ("gate", "gate", "effectiveness"),
        ("fact", "wrong_number", "accuracy"),
    ],
)
def test_a_fault_is_named_and_costs_the_score_it_belongs_to(fault: str, cause: str, metric: str) -> None:
    scenario = SCENARIOS[0]
    cases = drawn(scenario, 20)
    traces = play(scenario, cases, Wrong(cases, fault))
    for (harness, item), trace in zip(cases, traces, strict=True):
        for score in scenario.score(harness, item, trace):
            assert cause in score.causes
            assert getattr(score, metric) == 0


def test_no_text_of_the_worlds_stands_in_training_data() -> None:
    sources = " ".join(inspect.getsource(module) for module in (sessions, texts, layouts, instructions, live_words))
    folders = " ".join(
        path.read_text(encoding="utf-8")
        for path in sorted(HARNESSES.rglob("*"))
        if path.suffix in (".md", ".yaml", ".json")
    )
    ours = [
        *(text for world in worlds.WORLDS for text in (*world.skills, *world.tools)),
        *(text for asks in (worlds.ASKS, worlds.NAMED) for kind in asks.values() for text in kind),
        *worlds.CLOSING,
        *worlds.OPENING,
        *worlds.GUIDANCE,
    ]
    assert [text for text in ours if text in sources or text in folders] == []


def test_no_two_descriptions_of_a_world_begin_with_the_same_word() -> None:
    for world in worlds.WORLDS:
        for texts_of in (world.skills, world.tools):
            assert len({text.split()[0] for text in texts_of}) == len(texts_of), world.name
