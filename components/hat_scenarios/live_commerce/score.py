"""Scores a trace turn by turn against ground truth and the rules of the harness that it ran under.

Accuracy: every gold call was made, no other call changed the room, all gold facts are stated, and nothing else is:
each number, product, colour, material and promised action of the reply stands in the comment or in the true results.
Effectiveness: the turn ended as it should (reply, refusal, silence), under the gold skill, opened and closed as the
harness asks, says what it is about, and leaves the room as it should be. Skill Selection: the gold skill was the last
reply skill activated before the reply, strategies among the others. Tool Rationality: 1 when the calls are the gold
set, less 0.25 for every redundant one; 0 when one is missing or changes the room unasked.

Always holds: pure; the gold trace of the scripted expert scores 1 four times under any consistent harness. A call
that failed in transport, and its repetition, cost nothing; a call with effects is never made twice, so asking once is
all that an agent can do. Not here: estimates on real logs (judge).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hat_harness.spec import Harness
from hat_harness.trace import CallSummary, TurnSummary
from hat_scenarios.base import GoldCall, Scores, Turn
from hat_scenarios.live_commerce import words
from hat_scenarios.live_commerce.backend import EFFECTS, carry_out
from hat_scenarios.live_commerce.reading import Phrases, enforced, skill_by_id
from hat_scenarios.live_commerce.room import Room
from hat_scenarios.live_commerce.truth import NUMBER, VALUES, brings, contains, tokens

REDUNDANT: Final = 0.25
"""Tool Rationality lost per redundant call."""
Key = tuple[str, tuple[tuple[str, str], ...]]


def score_turn(harness: Harness, room: Room, turn: Turn, summary: TurnSummary | None) -> Scores:
    """The four scores of one turn; `room` is the room just before it. None: the turn never happened."""
    if summary is None:
        return Scores(accuracy=0, effectiveness=0, skill_selection=0, tool_rationality=0, causes=("no_turn",))
    phrases = enforced(harness, turn.gold.skill)
    body = _body(summary.reply, phrases)
    selected = _skill_causes(harness, turn, summary)
    rational, tool_causes = _rationality(room, turn, summary)
    accuracy = [*_call_causes(room, turn, summary), *_fact_causes(harness, room, turn, body)]
    effective = [
        *_ending_causes(harness, turn, summary, phrases),
        *selected,
        *_goal_causes(turn, body),
        *_state_causes(room, turn, summary),
    ]
    causes = dict.fromkeys([*accuracy, *effective, *tool_causes])
    return Scores(
        accuracy=float(not accuracy),
        effectiveness=float(not effective),
        skill_selection=float(not selected),
        tool_rationality=rational,
        causes=tuple(causes),
    )


def _body(reply: str, phrases: Phrases) -> str:
    """The reply without opener and gate, whose words state nothing."""
    text = reply.strip()
    if phrases.opener and text.lower().startswith(phrases.opener.lower()):
        text = text[len(phrases.opener) :]
    if phrases.gate and text.lower().endswith(phrases.gate.lower()):
        text = text[: -len(phrases.gate)]
    return text


# ---- calls ----------------------------------------------------------------------------------------------------


def _key(tool: str, arguments: Mapping[str, Any]) -> Key:
    items = sorted((str(name), " ".join(str(value).lower().split())) for name, value in arguments.items())
    if tool == "compare_items":  # which of the two is first makes no difference
        names = ("first", "second")
        items = list(zip(names, sorted(value for _, value in items), strict=False))
    return tool, tuple(items)


def _worked(room: Room, call: CallSummary) -> bool:
    """Whether a call did what it was for.

    One with effects whose answer was lost on the way counts: asking again would only bring the recorded loss.
    """
    if call.failure and call.tool in EFFECTS:
        refused = call.failure == "blocked" or call.result.startswith(("error :", "错误"))
        return call.failure in ("timeout", "rate_limit", "server", "unavailable") or not refused
    return not call.failure and brings(room, call.tool, call.arguments, call.result)


def _made(room: Room, summary: TurnSummary) -> list[tuple[Key, bool]]:
    """(call, did it work) for every call the model made; repetitions that the session answered itself are left out."""
    return [(_key(call.tool, call.arguments), _worked(room, call)) for call in summary.calls if not call.recorded]


def _gold_keys(calls: Sequence[GoldCall]) -> list[Key]:
    return [_key(call.tool, call.arguments) for call in calls]


def _call_causes(room: Room, turn: Turn, summary: TurnSummary) -> list[str]:
    gold = set(_gold_keys(turn.gold.calls))
    made = _made(room, summary)
    causes = []
    if not gold <= {key for key, good in made if good}:
        causes.append("missing_call")
    if any(key[0] in EFFECTS and key not in gold for key, _ in made):
        causes.append("wrong_effect")
    return causes


def _rationality(room: Room, turn: Turn, summary: TurnSummary) -> tuple[float, list[str]]:
    wrong = _call_causes(room, turn, summary)
    if wrong:
        return 0.0, wrong
    gold = set(_gold_keys(turn.gold.calls))
    redundant = 0
    done: set[Key] = set()
    for key, good in _made(room, summary):
        if key not in gold or key in done:
            redundant += 1
        elif good:
            done.add(key)
    return max(0.0, 1 - REDUNDANT * redundant), ["redundant_call"] if redundant else []


# ---- the reply ------------------------------------------------------------------------------------------------


def _truth(room: Room, turn: Turn) -> str:
    """Everything that a reply may restate: the comment, the event, the gold facts, the true results of gold calls."""
    plain = room.model_copy(update={"note": ""})
    results = [carry_out(plain, call.tool, call.arguments)[1] for call in turn.gold.calls]
    event = [value for value in turn.data.values() if isinstance(value, str)]
    return " ".join([*turn.texts, *event, *turn.gold.facts, *results])


def _fact_causes(harness: Harness, room: Room, turn: Turn, body: str) -> list[str]:
    if turn.gold.outcome == "silence":
        return []
    causes = []
    if any(not contains(body, fact) for fact in turn.gold.facts):
        causes.append("missing_fact")
    truth = set(tokens(_truth(room, turn)))
    said = tokens(body)
    if any(NUMBER.fullmatch(token) and token not in truth for token in said):
        causes.append("wrong_number")
    if any(token in VALUES and token not in truth for token in said):
        causes.append("wrong_value")
    if _other_product(room, turn, body):
        causes.append("wrong_product")
    if any(contains(body, phrase) for phrase in turn.gold.forbidden):
        causes.append("forbidden")
    if _leaks(harness, body):
        causes.append("leak")
    return causes


def _leaks(harness: Harness, body: str) -> bool:
    """Whether the reply names a skill or tool by a name that nobody would say (`get_item`, not `thanks`)."""
    names = [harness.activation.tool, *(skill.name for skill in harness.skills), *(tool.name for tool in harness.tools)]
    said = set(body.replace(",", " ").replace("`", " ").split())
    return any(name in said for name in names if "_" in name)


def _other_product(room: Room, turn: Turn, body: str) -> bool:
    truth = _truth(room, turn)
    return any(contains(body, name) and not contains(truth, name) for name in room.names)


def _ending_causes(harness: Harness, turn: Turn, summary: TurnSummary, phrases: Phrases) -> list[str]:
    wanted, got = turn.gold.outcome, summary.outcome
    if wanted == "silence":
        quiet = got == "silence" or (
            got == "reply" and _body(summary.reply, phrases).strip(" ,.") == words.SILENT and not _silences(harness)
        )
        return [] if quiet else ["not_silent"]
    if got == "refuse" and wanted == "refuse":
        return []  # the hook's own text; its phrases are the operator's
    if got != "reply":
        return ["no_reply"]
    text = " ".join(summary.reply.lower().split())
    causes = []
    if not text.startswith(phrases.opener.lower()):
        causes.append("opener")
    if not text.endswith(phrases.gate.lower()):
        causes.append("gate")
    return causes


def _silences(harness: Harness) -> bool:
    return any(hook.action == "silence" for hook in harness.hooks)


def _skill_causes(harness: Harness, turn: Turn, summary: TurnSummary) -> list[str]:
    """A skill that the harness does not have cannot be asked for."""
    kinds = {skill.id: skill.kind for skill in harness.skills}
    replies = [skill for skill in summary.skills if kinds.get(skill) == "reply"]
    causes = []
    if skill_by_id(harness, turn.gold.skill) and replies[-1:] != [turn.gold.skill]:
        causes.append("skill")
    if any(skill_by_id(harness, skill) and skill not in summary.skills for skill in turn.gold.strategies):
        causes.append("strategy")
    return causes


def _goal_causes(turn: Turn, body: str) -> list[str]:
    """The reply says something, and at least one thing of what it is about."""
    gold = turn.gold
    if gold.outcome == "silence":
        return []
    if not any(token.isalnum() for token in tokens(body)):
        return ["empty"]
    return ["off_goal"] if gold.facts and not any(contains(body, fact) for fact in gold.facts) else []


def _state_causes(room: Room, turn: Turn, summary: TurnSummary) -> list[str]:
    """The room after the turn's own changes, made on the room as it should have been before it."""
    for call in summary.calls:
        if call.tool in EFFECTS and not call.recorded and _worked(room, call):
            room, _ = carry_out(room, call.tool, call.arguments)
    view = room.view()
    return ["state"] if any(view.get(key) != value for key, value in turn.gold.state.items()) else []
