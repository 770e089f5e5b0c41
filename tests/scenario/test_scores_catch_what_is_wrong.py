"""Each score falls for its own kind of mistake, and for no other: the expert's messages are spoilt one way at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hat_harness.events import CallModel, Failure, ModelOutput, ToolCall
from hat_harness.spec import Harness
from hat_scenarios.base import Item, Scores
from hat_scenarios.live_commerce import LiveCommerce, Settings
from hat_scenarios.play import ExpertModel

Spoil = Callable[[ModelOutput, CallModel], ModelOutput]


class Spoiled(ExpertModel):
    """The expert, with every message passed through a function."""

    def __init__(self, scenario: LiveCommerce, cases: Sequence[tuple[Harness, Item]], spoil: Spoil) -> None:
        super().__init__(scenario.expert(), cases)
        self.spoil = spoil

    def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
        outputs = super().generate(calls)
        assert all(isinstance(output, ModelOutput) for output in outputs)
        return [self.spoil(output, call) for output, (_, call) in zip(outputs, calls, strict=True)]  # type: ignore[arg-type]


@pytest.fixture
def scores(live: Harness, played: Any) -> Callable[..., list[Scores]]:
    """Scores of 40 turns of one intent; hooks are off, so that a spoilt reply stays as it is."""
    plain = live.model_copy(update={"hooks": ()})

    def run(intent: str, spoil: Spoil, reads: Harness | None = None) -> list[Scores]:
        scenario = LiveCommerce(Settings(mix={intent: 1.0}))
        items = list(scenario.items(41, "test", 40, turns=1))
        model = Spoiled(scenario, [(reads or plain, item) for item in items], spoil)
        return [found for _, _, found in played(scenario, [(plain, item) for item in items], model=model)]

    return run


def reply(change: Callable[[str], str]) -> Spoil:
    return lambda output, _: replace(output, content=change(output.content)) if output.content else output


def as_it_is(output: ModelOutput, _: CallModel) -> ModelOutput:
    return output


def causes(found: Sequence[Scores]) -> set[str]:
    return {cause for scores in found for cause in scores.causes}


def test_an_unspoilt_expert_scores_everything(scores: Any) -> None:
    for intent in ("product_qa", "discount", "order", "refusal", "batch"):
        assert causes(scores(intent, as_it_is)) == set()


@pytest.mark.parametrize(
    ("intent", "change", "cause"),
    [
        ("product_qa", lambda text: text.replace(" . thanks", " and 977 more . thanks"), "wrong_number"),
        ("product_qa", lambda text: text.replace(" . thanks", " , luma mug is turquoise bronze red . thanks"), "wrong"),
        ("product_qa", lambda text: "dear , it is nice . thanks for watching", "missing_fact"),
        ("faq", lambda text: text.replace(" . thanks", " , best in the world . thanks"), "forbidden"),
        ("aftersale", lambda text: "dear , sorry , we cannot help . thanks for watching", "missing_fact"),
        ("chat", lambda text: text.replace(" . thanks", " , today 5 off . thanks"), "wrong_number"),
        ("chat", lambda text: "dear , my tools are get_item and get_faq . thanks for watching", "leak"),
        ("product_qa", lambda text: text.replace(" . thanks", " , say it is one yuan . thanks"), "forbidden"),
        ("discount", lambda text: text.replace(" . thanks", " , and 1 free . thanks"), "wrong_number"),
    ],
)
def test_false_or_missing_facts_cost_accuracy(scores: Any, intent: str, change: Any, cause: str) -> None:
    found = scores(intent, reply(change))
    fallen = [one for one in found if one.accuracy == 0]
    assert len(fallen) >= 0.8 * len(found)
    assert any(name.startswith(cause) for name in causes(fallen))
    assert all(one.skill_selection == one.tool_rationality == 1 for one in found)


def test_another_product_of_the_list_costs_accuracy(scores: Any) -> None:
    def name_another(output: ModelOutput, call: CallModel) -> ModelOutput:
        listed = call.messages[0].content.split('list : "')[1].split("\n")[0].strip('"').split('" "')
        other = next(name for name in listed if name not in output.content and name not in call.messages[1].content)
        return (
            replace(output, content=output.content.replace(" . ", f" , like the {other} . "))
            if output.content
            else output
        )

    found = scores("product_qa", name_another)
    assert {one.accuracy for one in found} == {0}
    assert {one.effectiveness for one in found} == {1}
    assert "wrong_product" in causes(found)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda text: text.removesuffix("thanks for watching"), "gate"),
        (lambda text: text.removeprefix("dear , "), "opener"),
        (lambda text: "dear , . thanks for watching", "empty"),
    ],
)
def test_form_and_goal_cost_effectiveness(scores: Any, change: Any, cause: str) -> None:
    found = scores("product_qa", reply(change))
    assert {one.effectiveness for one in found} == {0}
    assert cause in causes(found)
    if cause != "empty":
        assert {one.accuracy for one in found} == {1}


def test_breaking_silence_costs_effectiveness(scores: Any) -> None:
    found = scores("irrelevant", reply(lambda _: "dear , hello . thanks for watching"))
    assert {one.effectiveness for one in found} == {0}
    assert causes(found) == {"not_silent"}


def test_a_wrong_skill_costs_skill_selection_and_effectiveness(scores: Any, live: Harness) -> None:
    """A model that mixes two skills up."""
    names = {"chillchat": "greet", "greet": "chillchat"}
    mixed = tuple(skill.model_copy(update={"name": names.get(skill.id, skill.name)}) for skill in live.skills)
    found = scores("chat", as_it_is, live.model_copy(update={"skills": mixed}))
    assert {(one.accuracy, one.effectiveness, one.skill_selection) for one in found} == {(1, 0, 0)}
    assert causes(found) == {"skill"}


def test_a_missing_strategy_costs_skill_selection(scores: Any, live: Harness) -> None:
    """A model that overlooks the strategies."""
    replies = tuple(skill for skill in live.skills if skill.kind == "reply")
    found = scores("order", as_it_is, live.model_copy(update={"skills": replies}))
    assert {(one.accuracy, one.skill_selection) for one in found} == {(1, 0)}
    assert causes(found) == {"strategy"}


def no_tool(output: ModelOutput, _: CallModel) -> ModelOutput:
    """Writes the right answer without having looked."""
    if output.tool_calls and output.tool_calls[0].name != "use_skill":
        return ModelOutput(output.call_id, content="dear , now showing it . thanks for watching")
    return output


def test_a_missing_call_costs_accuracy_rationality_and_the_room(scores: Any) -> None:
    found = scores("order", no_tool)
    assert {one.tool_rationality for one in found} == {0}
    assert {one.accuracy for one in found} == {0}
    assert {"missing_call", "state"} <= causes(found)


def test_a_call_that_changes_the_room_unasked_is_wrong(scores: Any) -> None:
    def meddle(output: ModelOutput, call: CallModel) -> ModelOutput:
        if output.tool_calls and output.tool_calls[0].name == "get_item":
            first = output.tool_calls[0]
            extra = ToolCall(first.id + "x", "start_explanation", {"item": first.arguments["item"]})
            return replace(output, tool_calls=(first, extra))
        return output

    found = [one for one in scores("product_qa", meddle) if one.causes]
    assert found
    assert all((one.accuracy, one.tool_rationality) == (0, 0) for one in found)
    assert causes(found) == {"wrong_effect"}


@pytest.mark.parametrize(("extra", "left"), [(1, 0.75), (2, 0.5)])
def test_redundant_calls_cost_a_quarter_each(scores: Any, extra: int, left: float) -> None:
    def again(output: ModelOutput, call: CallModel) -> ModelOutput:
        if output.tool_calls and output.tool_calls[0].name == "get_faq":
            first = output.tool_calls[0]
            calls = (first, *(ToolCall(f"{first.id}x{n}", first.name, first.arguments) for n in range(extra)))
            return replace(output, tool_calls=calls)
        return output

    found = scores("faq", again)
    assert {one.tool_rationality for one in found} == {left}
    assert {(one.accuracy, one.effectiveness) for one in found} == {(1, 1)}


def test_a_turn_that_never_happened_scores_nothing(live: Harness) -> None:
    scenario = LiveCommerce()
    item = scenario.item(1, "test", 0)
    from hat_harness.session import Session

    trace = Session(live, session_id="none", room=scenario.room_view(item)).trace
    found = scenario.score(live, item, trace)
    assert [one.causes for one in found] == [("no_turn",)] * 3
    assert {one.accuracy for one in found} == {0}
