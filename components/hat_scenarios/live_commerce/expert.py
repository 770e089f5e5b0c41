"""The scripted expert: reads a harness as a model would and does what is right under it, one message at a time.

It quotes the catalogue line of what it calls, word for word, in its reasoning, after the aspect that it wants to
know: that is what a small model can learn to do by copying. Always holds: a pure function of harness, item, turn and
the conversation so far; a call that failed or was blocked is made again, at most `TRIES` times in all. Not here: what
is right (plan), what the harness asks of replies (reading).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hat_harness.canonical import surface_call
from hat_harness.events import CallModel, Message, ModelOutput, ToolCall
from hat_harness.render import skill_quote, tool_quote
from hat_harness.spec import Harness
from hat_scenarios.base import Item, Turn
from hat_scenarios.live_commerce import words
from hat_scenarios.live_commerce.plan import Plan, advance, make_plan
from hat_scenarios.live_commerce.reading import skill_by_id, stated
from hat_scenarios.live_commerce.room import Room
from hat_scenarios.live_commerce.truth import brings

TRIES: Final = 3
"""How often a failing call is made in all."""


class LiveCommerceExpert:
    """A `hat_scenarios.base.Expert`."""

    def respond(self, harness: Harness, item: Item, turn: int, call: CallModel) -> ModelOutput:
        """The next assistant message; `turn` counts from 0."""
        room = room_before(item, turn)
        plan = plan_of(room, item.turns[turn])
        done = list(_calls_made(call.messages[turn_start(call.messages, item.turns[turn]) :]))
        found = _next_activation(harness, plan, done) or _next_step(harness, room, plan, done)
        if found is None:
            return ModelOutput(call.call_id, content=_reply(harness, plan), reasoning=plan.note or plan.aspect)
        reasoning, name, arguments = found
        made = ToolCall(f"{call.call_id}.0", name, arguments)
        return ModelOutput(call.call_id, reasoning=reasoning, tool_calls=(made,), finish_reason="tool_calls")


def room_before(item: Item, turn: int) -> Room:
    """The room just before turn `turn` (from 0), its own change included, when everything so far was done right."""
    room = Room.model_validate(item.room)
    for index in range(turn + 1):
        now = item.turns[index]
        room = room.changed(now.notes["change"])
        if index < turn:
            room = advance(room, plan_of(room, now))
    return room


def plan_of(room: Room, turn: Turn) -> Plan:
    """The right turn in `room`, the turn's own change included."""
    return make_plan(room, turn.intent, turn.notes["aspect"], turn.notes["slots"])


def turn_start(messages: Sequence[Message], turn: Turn) -> int:
    """Index just after the last user message that brought the turn's texts or event."""
    needles = list(turn.texts) or [str(value) for value in turn.data.values()]
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role == "user" and all(needle in message.content for needle in needles):
            return index + 1
    return max((index + 1 for index, message in enumerate(messages) if message.role == "user"), default=0)


def _calls_made(messages: Sequence[Message]) -> Iterator[tuple[ToolCall, str]]:
    """(call, the text it was answered with; "" while it is open) in order."""
    answers = {message.tool_call_id: message.content for message in messages if message.role == "tool"}
    for message in messages:
        for call in message.tool_calls:
            yield call, answers.get(call.id, "")


_Made = Sequence[tuple[ToolCall, str]]
_Next = tuple[str, str, dict[str, object]]


def _next_activation(harness: Harness, plan: Plan, done: _Made) -> _Next | None:
    """The first skill that is still to be activated, strategies before the reply skill."""
    tool, parameter = harness.activation.tool, harness.activation.parameter
    for identifier in (*plan.strategies, plan.skill):
        skill = skill_by_id(harness, identifier)
        if skill is None:
            continue
        answers = [text for call, text in done if call.name == tool and call.arguments.get(parameter) == skill.name]
        if not any(skill.body in text for text in answers) and len(answers) < TRIES:
            return f"{plan.aspect} |{skill_quote(harness, skill)}", tool, {parameter: skill.name}
    return None


def _next_step(harness: Harness, room: Room, plan: Plan, done: _Made) -> _Next | None:
    """The first call of the plan that has not brought what the room holds."""
    for step in plan.steps:
        tool = next((tool for tool in harness.tools if tool.id == step.tool), None)
        if tool is None:
            continue
        name, arguments = surface_call(harness, step.tool, step.arguments)
        answers = [text for call, text in done if call.name == name and dict(call.arguments) == arguments]
        if not any(brings(room, step.tool, step.arguments, text) for text in answers) and len(answers) < TRIES:
            return f"{step.aspect} |{tool_quote(harness, tool)}", name, arguments
    return None


def _reply(harness: Harness, plan: Plan) -> str:
    if plan.outcome == "silence":
        return words.SILENT
    phrases = stated(harness, plan.skill)
    opener = f"{phrases.opener} , " if phrases.opener else ""
    gate = f" . {phrases.gate}" if phrases.gate else " ."
    return f"{opener}{plan.sentence}{gate}"
