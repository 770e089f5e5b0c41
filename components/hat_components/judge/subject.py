"""What is judged: one turn of a trace, with what is known to be true of it where that is known.

Always holds: a member never sees turns after the judged one, nor `truth`. Not here: how it is shown (prompt, evidence).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field

from hat_components.evaluate.result import Evaluation, TraceRecord, TurnResult
from hat_components.judge.rubric import Rubric
from hat_components.step import InputError
from hat_harness.trace import Trace, turns


class Subject(BaseModel):
    """One turn to judge."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    """`<item>/<state>#<turn>`; the same in two evaluations of the same items."""
    item: str
    """Item, or session of a real log; the unit that intervals resample."""
    turn: int = Field(ge=1)
    """Turn of the trace, from 1."""
    trace: Trace
    intent: str = ""
    truth: dict[str, str] = Field(default_factory=dict)
    """Criterion → true label, in simulation; empty where only people can tell."""


def subjects_of_trace(trace: Trace, item: str, state: int = 0) -> Iterator[Subject]:
    """Every turn of a trace that came to an end."""
    for turn in turns(trace):
        if turn.outcome:
            yield Subject(id=f"{item}/{state}#{turn.index}", item=item, turn=turn.index, trace=trace)


def subjects_of_evaluation(
    evaluation: Evaluation, records: Iterable[TraceRecord], suite: str, rubric: Rubric
) -> Iterator[Subject]:
    """The turns of one suite's sessions; a criterion that the simulation computes has its truth from there."""
    found = evaluation.suite(suite)
    if found is None or found.kind != "rollout":
        known = ", ".join(one.id for one in evaluation.suites if one.kind == "rollout") or "none"
        raise InputError(
            f"there are no sessions of suite {suite!r}", place="suite", cure=f"suites of rollouts: {known}"
        )
    of_item: dict[str, list[TraceRecord]] = {}
    for record in records:
        if record.suite == suite:
            of_item.setdefault(record.item, []).append(record)
    scored = {item.item: item for item in found.items}
    for ident, sessions in of_item.items():
        if ident not in scored or len(scored[ident].turns) % len(sessions):
            raise InputError(
                f"the sessions of {ident!r} are not the scored ones", place="traces", cure="give one run's"
            )
        yield from _scored(sessions, scored[ident].turns, rubric)


def _scored(sessions: list[TraceRecord], scored: Sequence[TurnResult], rubric: Rubric) -> Iterator[Subject]:
    """The turns of an item's sessions, one session per state, with their computed truth."""
    each = len(scored) // len(sessions)
    for record in sessions:
        for subject in subjects_of_trace(record.trace, record.item, record.state):
            if subject.turn > each:
                raise InputError(f"turn {subject.turn} of {record.item!r} was not scored", place="traces")
            turn = scored[record.state * each + subject.turn - 1]
            yield subject.model_copy(update={"truth": known_truth(rubric, turn.values), "intent": turn.intent})


def known_truth(rubric: Rubric, values: Mapping[str, float]) -> dict[str, str]:
    """Computed scores as labels of the criteria that have the same name."""
    return {one.name: one.label_of(values[one.name]) for one in rubric.criteria if one.name in values}
