"""The hooks of the live room: each holds back its own kind of bad reply, none holds back a right one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hat_harness.events import CallModel, Failure, ModelOutput, ToolRequest, ToolResult
from hat_harness.ports import ToolBackend
from hat_harness.spec import Harness
from hat_harness.trace import TurnSummary
from hat_harness.trace import turns as turns_of
from hat_scenarios.base import Item
from hat_scenarios.live_commerce import LiveCommerce, Settings
from hat_scenarios.play import ExpertModel, WrapTools, play


class Once(ExpertModel):
    """The expert, whose first reply of every session is spoilt."""

    def __init__(
        self, scenario: LiveCommerce, cases: Sequence[tuple[Harness, Item]], spoil: Callable[[str], str]
    ) -> None:
        super().__init__(scenario.expert(), cases)
        self.spoil = spoil
        self.spoilt: set[str] = set()

    def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
        outputs = []
        for output, (session, _) in zip(super().generate(calls), calls, strict=True):
            if isinstance(output, ModelOutput) and output.content and session not in self.spoilt:
                self.spoilt.add(session)
                output = replace(output, content=self.spoil(output.content))
            outputs.append(output)
        return outputs


def played(
    harness: Harness, intent: str, spoil: Callable[[str], str], wrap: WrapTools | None = None
) -> list[TurnSummary]:
    scenario = LiveCommerce(Settings(mix={intent: 1.0}))
    cases = [(harness, item) for item in scenario.items(61, "test", 12, turns=1)]
    return [turns_of(trace)[0] for trace in play(scenario, cases, Once(scenario, cases, spoil), wrap=wrap)]


@pytest.mark.parametrize(
    ("hook", "intent", "spoil"),
    [
        ("opening", "chat", lambda text: text.removeprefix("dear , ")),
        ("closing", "chat", lambda text: text.removesuffix("thanks for watching")),
        ("grounded_numbers", "product_qa", lambda text: text.replace(" . thanks", " , or 977 . thanks")),
        ("advertising", "faq", lambda text: text.replace(" . thanks", " , number one . thanks")),
    ],
)
def test_a_bad_reply_goes_back_with_the_reason_and_the_next_is_shown(
    live: Harness, hook: str, intent: str, spoil: Any
) -> None:
    for summary in played(live, intent, spoil):
        fired = [verdict for verdict in summary.hooks if verdict.fired]
        assert [verdict.hook for verdict in fired] == [hook]
        assert fired[0].error == ""
        assert "{" not in fired[0].message
        assert (summary.rounds, summary.outcome) == (1, "reply")
        assert summary.reply.startswith("dear , ")
        assert summary.reply.endswith(" . thanks for watching")


def test_spam_ends_in_silence(live: Harness) -> None:
    for summary in played(live, "irrelevant", lambda text: text):
        assert (summary.outcome, summary.reply) == ("silence", "")
        assert [verdict.hook for verdict in summary.hooks if verdict.fired] == ["silence_for_spam"]


@pytest.mark.parametrize(
    ("hook", "intent", "trimmed"),
    [
        ("skill_first", "chat", {"skills": ()}),
        ("record_first", "product_qa", {"tools": ()}),
        ("discount_first", "discount", {"tools": ()}),
    ],
)
def test_a_reply_without_looking_is_sent_back_until_it_is_given_up(
    live: Harness, hook: str, intent: str, trimmed: Any
) -> None:
    """A policy that never loads a skill, or never calls a tool."""
    scenario = LiveCommerce(Settings(mix={intent: 1.0}))
    items = list(scenario.items(62, "test", 8, turns=1))
    model = ExpertModel(scenario.expert(), [(live.model_copy(update=trimmed), item) for item in items])
    for trace in play(scenario, [(live, item) for item in items], model):
        summary = turns_of(trace)[0]
        assert hook in {verdict.hook for verdict in summary.hooks if verdict.fired}
        assert summary.outcome == "safe"
        assert summary.reply == live.recovery.safe_reply


class Down:
    """Tools that fail in transport, whatever is asked."""

    def __init__(self, failure: Any) -> None:
        self.failure = failure

    def call(self, session_id: str, request: ToolRequest) -> ToolResult:
        return ToolResult(request.call_id, "", failure=self.failure)


def test_numbers_are_not_given_while_the_tools_are_down(live: Harness) -> None:
    def down(_: str, __: ToolBackend) -> ToolBackend:
        return Down("server")

    for summary in played(live, "discount", lambda text: text, down):
        assert "after_tool_error" in {verdict.hook for verdict in summary.hooks if verdict.fired}
        assert summary.outcome == "safe"


def test_a_wrong_product_name_is_answered_with_the_cure(live: Harness) -> None:
    class Misspelling(ExpertModel):
        def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
            outputs = []
            for output, (_, call) in zip(super().generate(calls), calls, strict=True):
                tried = any(made.name == "get_item" for message in call.messages for made in message.tool_calls)
                if isinstance(output, ModelOutput) and output.tool_calls and output.tool_calls[0].name == "get_item":
                    made = output.tool_calls[0]
                    wrong = made if tried else replace(made, arguments={"item": f"{made.arguments['item']}s"})
                    output = replace(output, tool_calls=(wrong,))
                outputs.append(output)
            return outputs

    scenario = LiveCommerce(Settings(mix={"faq": 0.0, "product_qa": 1.0}))
    items = [item for item in scenario.items(63, "test", 20, turns=1) if item.turns[0].notes["aspect"] == "price"]
    cases = [(live, item) for item in items]
    assert items
    for trace in play(scenario, cases, Misspelling(scenario.expert(), cases)):
        read = [message.content for message in trace.segments[0].messages if message.role == "tool"]
        assert any("no product called" in text and text.endswith("take the name from the list") for text in read)
        assert turns_of(trace)[0].outcome == "reply"
