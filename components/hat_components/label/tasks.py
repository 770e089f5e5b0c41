"""Tasks from sessions: one turn to be rated by a rubric, or two replies to the same turn to be compared.

Always holds: what is shown names neither arm, model nor harness; pairs are the same turn of the same item, and equal
replies are tasks too, since a tie is an answer. Not here: keeping tasks (store), judging by models (judge).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hat_components.evaluate.result import Evaluation, TraceRecord, TurnResult
from hat_components.judge.rubric import Rubric
from hat_components.judge.subject import Subject
from hat_components.label.model import CAUSES, PAIR, Project, Task
from hat_components.step import InputError
from hat_harness.trace import Trace, TurnSummary, turns

LONGEST = 4000
"""Characters of one text that a rater is shown."""

OF_CAUSE: Mapping[str, str] = {
    "skill": "input_understanding",
    "strategy": "input_understanding",
    "off_goal": "input_understanding",
    "not_silent": "input_understanding",
    "wrong_number": "reliability",
    "wrong_value": "reliability",
    "wrong_product": "reliability",
    "missing_fact": "reliability",
    "forbidden": "reliability",
    "leak": "reliability",
    "yielded": "reliability",
    "opener": "scenario_behaviour",
    "gate": "scenario_behaviour",
    "no_reply": "reply_quality",
    "no_turn": "reply_quality",
    "empty": "reply_quality",
    "missing_call": "tool_use",
    "wrong_effect": "tool_use",
    "redundant_call": "tool_use",
    "state": "tool_use",
}
"""Cause of a computed score → cause code of a preference."""


def single_project(name: str, rubric: Rubric, *, seed: int = 1, ratings_per_item: int = 2) -> Project:
    """A project that asks a rubric's criteria."""
    return Project(
        name=name,
        kind="single",
        criteria=rubric.criteria,
        seed=seed,
        ratings_per_item=ratings_per_item,
        rubric=rubric.digest,
        note=rubric.scene,
    )


def pair_project(name: str, arms: tuple[str, str], *, seed: int = 1, ratings_per_item: int = 3) -> Project:
    """A project of blind pairs with causes."""
    return Project(
        name=name,
        kind="pair",
        criteria=(PAIR,),
        causes=CAUSES,
        arms=arms,
        seed=seed,
        ratings_per_item=ratings_per_item,
    )


def single_tasks(subjects: Iterable[Subject]) -> Iterator[Task]:
    """One task per subject of the judge, under the subject's id."""
    for one in subjects:
        summaries = turns(one.trace)
        summary = summaries[one.turn - 1]
        yield Task(
            id=one.id,
            intent=one.intent,
            shown={**_situation(summaries, one.turn), **_answer(summary, "reply"), "calls": _calls(summary)},
            hidden={"truth": one.truth},
        )


def pair_tasks(
    a: tuple[Evaluation, Iterable[TraceRecord]],
    b: tuple[Evaluation, Iterable[TraceRecord]],
    suite: str,
    *,
    count: int,
    seed: int,
) -> list[Task]:
    """`count` turns, drawn from those that both evaluations have in `suite`; InputError when they share no item."""
    sides = [_sessions(*side, suite) for side in (a, b)]
    if a[0].dataset != b[0].dataset:
        raise InputError("the evaluations are of different items", place=suite, cure="evaluate the same items")
    shared = sorted(sides[0].keys() & sides[1].keys())
    places = [(item, index) for item in shared for index in range(_common(sides[0][item], sides[1][item]))]
    if not places:
        raise InputError("the evaluations share no session", place=suite, cure="evaluate both with traces")
    chosen = sorted(random.Random(f"pairs/{seed}").sample(places, min(count, len(places))))
    return [_pair(item, index, sides[0][item], sides[1][item]) for item, index in chosen]


_Session = tuple[Trace, Sequence[TurnResult]]


def _sessions(evaluation: Evaluation, records: Iterable[TraceRecord], suite: str) -> dict[str, _Session]:
    """Item → its first session with the computed scores of its turns."""
    found = evaluation.suite(suite)
    if found is None:
        known = ", ".join(one.id for one in evaluation.suites)
        raise InputError(f"there is no suite {suite!r}", place=evaluation.arm, cure=f"suites: {known}")
    scored = {one.item: one.turns for one in found.items}
    first = {one.item: one.trace for one in records if one.suite == suite and one.state == 0}
    return {item: (trace, scored[item]) for item, trace in first.items() if item in scored}


def _common(one: _Session, other: _Session) -> int:
    return min(len(turns(one[0])), len(turns(other[0])), len(one[1]), len(other[1]))


def _pair(item: str, index: int, a: _Session, b: _Session) -> Task:
    summaries = [turns(side[0]) for side in (a, b)]
    scores = [side[1][index] for side in (a, b)]
    values = [one.values["average"] for one in scores]
    better = "tie" if values[0] == values[1] else ("a" if values[0] > values[1] else "b")
    loser = scores[1] if better == "a" else scores[0]
    return Task(
        id=f"{item}#{index + 1}",
        intent=scores[0].intent,
        shown={
            **_situation(summaries[0], index + 1, replies=False),
            **_answer(summaries[0][index], "a"),
            **_answer(summaries[1][index], "b"),
        },
        hidden={"winner": better, "cause": cause_of(loser.causes) if better != "tie" else ""},
    )


def cause_of(causes: Sequence[str]) -> str:
    """The cause code that most of a turn's causes stand for; the first in order of codes on a tie."""
    codes = [OF_CAUSE.get(cause, "reply_quality") for cause in causes] or ["reply_quality"]
    return max(CAUSES, key=lambda code: (codes.count(code), -CAUSES.index(code)))


def _situation(summaries: Sequence[TurnSummary], turn: int, *, replies: bool = True) -> dict[str, Any]:
    """The conversation before the turn, and what the turn answers."""
    before = []
    for one in summaries[: turn - 1]:
        before.append({"who": "viewer", "text": _event(one)})
        if replies:
            before.append({"who": "host", "text": one.reply[:LONGEST]})
    return {"before": before, "event": _event(summaries[turn - 1])}


def _event(one: TurnSummary) -> str:
    return (" / ".join(one.texts) or f"({one.event})")[:LONGEST]


def _answer(one: TurnSummary, key: str) -> dict[str, Any]:
    return {key: one.reply[:LONGEST], f"{key}_outcome": one.outcome or "none"}


def _calls(one: TurnSummary) -> list[dict[str, str]]:
    """Calls with results: the evidence that a rater checks facts against."""
    return [
        {
            "call": f"{call.name or call.tool}({', '.join(f'{k}={v}' for k, v in call.arguments.items())})"[:500],
            "result": call.result[:1000],
        }
        for call in one.calls
    ]
