"""What is right in a world: its tools, its scripted host, and four scores for every turn.

Accuracy: every gold call was made and worked, no other call changed the world, all gold facts are stated and no number
or custom that the results do not hold. Effectiveness: a reply under the gold skill that opens and closes as the harness
asks. Skill Selection and Tool Rationality as in live_commerce. Always holds: pure; the scripted host scores 1 four
times. Not here: drawing (draw).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from hat_harness.canonical import surface_call
from hat_harness.events import CallModel, ModelOutput, ToolCall, ToolRequest, ToolResult
from hat_harness.render import skill_quote, tool_quote
from hat_harness.spec import Harness
from hat_harness.trace import TurnSummary
from hat_scenarios.avatar.worlds import CUSTOMS
from hat_scenarios.base import Item, Scores, Turn
from hat_scenarios.live_commerce.reading import enforced, skill_by_id, stated
from hat_scenarios.live_commerce.truth import contains, tokens

REDUNDANT: Final = 0.25
_NUMBER: Final = re.compile(r"\d+")


def answer(room: Mapping[str, Any], tool: str, arguments: Mapping[str, Any]) -> str:
    """What a tool returns; a text that starts with `error` where it cannot."""
    thing = str(arguments.get("thing", ""))
    if tool == "custom":
        topic = str(arguments.get("topic", ""))
        known = room["customs"].get(topic)
        return f"{topic} : {known}" if known else f"error : nothing about {topic}"
    if thing not in room["records"]:
        return f"error : no {thing} here"
    if tool == "detail":
        return f"{thing} : " + " , ".join(f"{aspect} {value}" for aspect, value in room["records"][thing].items())
    if tool == "places":
        return f"{thing} : {room['places'][thing]} left"
    count = str(arguments.get("count", ""))
    if tool != "booking" or not _NUMBER.fullmatch(count):
        return f"error : {tool} cannot do that"
    return f"{thing} : {count} noted"


class WorldTools:
    """A `hat_scenarios.base.RoomTools` over one world; `booked` is what was put down so far."""

    def __init__(self, room: Mapping[str, Any]) -> None:
        self._room = room
        self.booked: dict[str, str] = {}

    def call(self, session_id: str, request: ToolRequest) -> ToolResult:
        """Carry out one call."""
        text = answer(self._room, request.name, request.arguments)
        if request.name == "booking" and not text.startswith("error"):
            self.booked[str(request.arguments["thing"])] = str(request.arguments["count"])
        return ToolResult(request.call_id, text)

    def observe(self, turn: Turn) -> None:
        """Nothing changes in a world but by its host."""


class Host:
    """The scripted expert: skill, call, reply, quoting the catalogue line of what it takes."""

    def respond(self, harness: Harness, item: Item, turn: int, call: CallModel) -> ModelOutput:
        """The next assistant message; `turn` counts from 0."""
        now = item.turns[turn]
        last = max(index for index, message in enumerate(call.messages) if message.role == "user")
        done = [made.name for message in call.messages[last:] for made in message.tool_calls]
        aspect = str(now.notes["aspect"])
        skill = skill_by_id(harness, now.gold.skill)
        assert skill is not None, "the harness of a world has all of its skills"
        if harness.activation.tool not in done:
            reasoning = f"{aspect} |{skill_quote(harness, skill)}"
            return _calling(
                call.call_id, reasoning, harness.activation.tool, {harness.activation.parameter: skill.name}
            )
        for gold in now.gold.calls:
            name, arguments = surface_call(harness, gold.tool, gold.arguments)
            if name not in done:
                tool = next(tool for tool in harness.tools if tool.id == gold.tool)
                return _calling(call.call_id, f"{aspect} |{tool_quote(harness, tool)}", name, arguments)
        phrases = stated(harness, now.gold.skill)
        said = " ".join(("so", str(now.notes["subject"]), *now.gold.facts)) if now.gold.facts else "glad to have you"
        return ModelOutput(call.call_id, content=f"{phrases.opener} , {said} . {phrases.gate}", reasoning=aspect)


def _calling(call_id: str, reasoning: str, name: str, arguments: Mapping[str, Any]) -> ModelOutput:
    made = ToolCall(f"{call_id}.0", name, dict(arguments))
    return ModelOutput(call_id, reasoning=reasoning, tool_calls=(made,), finish_reason="tool_calls")


def score_turn(harness: Harness, item: Item, turn: Turn, summary: TurnSummary | None) -> Scores:
    """The four scores of one turn. None: the turn never happened."""
    if summary is None:
        return Scores(accuracy=0, effectiveness=0, skill_selection=0, tool_rationality=0, causes=("no_turn",))
    calls, redundant = _call_causes(item.room, turn, summary)
    facts = _fact_causes(item.room, turn, summary.reply) if summary.outcome == "reply" else ["no_reply"]
    skill = [] if summary.skills[-1:] == (turn.gold.skill,) else ["skill"]
    ending = _ending_causes(harness, turn, summary)
    causes = tuple(dict.fromkeys([*calls, *facts, *skill, *ending, *(["redundant_call"] if redundant else [])]))
    return Scores(
        accuracy=float(not calls and not facts),
        effectiveness=float(not skill and not ending),
        skill_selection=float(not skill),
        tool_rationality=0.0 if calls else max(0.0, 1 - REDUNDANT * redundant),
        causes=causes,
    )


def _call_causes(room: Mapping[str, Any], turn: Turn, summary: TurnSummary) -> tuple[list[str], int]:
    """(what is wrong with the calls, how many were not needed)."""
    gold = {(call.tool, tuple(sorted(call.arguments.items()))) for call in turn.gold.calls}
    made = [
        (call.tool, tuple(sorted((name, str(value)) for name, value in call.arguments.items())))
        for call in summary.calls
        if not call.recorded
    ]
    worked = {
        key for key, call in zip(made, [c for c in summary.calls if not c.recorded], strict=True) if not call.failure
    }
    causes = []
    if not gold <= worked:
        causes.append("missing_call")
    if any(key[0] == "booking" and key not in gold for key in worked):
        causes.append("wrong_effect")
    return causes, len(made) - len(gold & worked)


def _fact_causes(room: Mapping[str, Any], turn: Turn, reply: str) -> list[str]:
    results = [answer(room, call.tool, call.arguments) for call in turn.gold.calls]
    truth = " ".join((*turn.texts, *turn.gold.facts, *results))
    known = set(tokens(truth))
    causes = []
    if any(not contains(reply, fact) for fact in turn.gold.facts):
        causes.append("missing_fact")
    if any(_NUMBER.fullmatch(token) and token not in known for token in tokens(reply)):
        causes.append("wrong_number")
    if any(contains(reply, custom) and not contains(truth, custom) for custom in CUSTOMS):
        causes.append("wrong_value")
    return causes


def _ending_causes(harness: Harness, turn: Turn, summary: TurnSummary) -> list[str]:
    if summary.outcome != "reply":
        return ["no_reply"]
    phrases = enforced(harness, turn.gold.skill)
    text = " ".join(summary.reply.lower().split())
    causes = []
    if not text.startswith(phrases.opener.lower()):
        causes.append("opener")
    if not text.endswith(phrases.gate.lower()):
        causes.append("gate")
    body = text[len(phrases.opener) : len(text) - len(phrases.gate)]
    return causes if causes or any(token.isalnum() for token in tokens(body)) else ["empty"]
