"""Plays items: sessions of many items through the batch driver, turn by turn, with a model or with the scripted expert.

Always holds: a room change that a turn brings reaches the tools before the session has the turn; all sessions
are in the same turn at a time, so their model calls are sampled together; traces come in the order of the cases.
Not here: which harness states and items (pipelines), scores (the scenario).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hat_harness.drive import run_batch
from hat_harness.events import CallModel, Failure, ModelOutput
from hat_harness.ports import BatchModel, ToolBackend
from hat_harness.session import Session
from hat_harness.spec import Harness
from hat_harness.trace import Trace
from hat_scenarios.base import Expert, Item, Scenario, events_of

Case = tuple[Harness, Item]
WrapTools = Callable[[str, ToolBackend], ToolBackend]
"""(session id, the room's tools) → what the session calls; puts faults or recordings in between."""


class ExpertModel:
    """The scripted expert as a model for `play`; session ids are those of `session_ids`."""

    def __init__(self, expert: Expert, cases: Sequence[Case]) -> None:
        self._expert = expert
        self._cases = dict(zip(session_ids(cases), cases, strict=True))
        self._turn = 0

    def at(self, turn: int) -> None:
        """Turn `turn` begins."""
        self._turn = turn

    def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
        """The expert's next message for every call."""
        outputs: list[ModelOutput | Failure] = []
        for session, call in calls:
            harness, item = self._cases[session]
            outputs.append(self._expert.respond(harness, item, self._turn, call))
        return outputs


def session_ids(cases: Sequence[Case]) -> list[str]:
    """One id per case: its place and its item."""
    return [f"{index}-{item.id}" for index, (_, item) in enumerate(cases)]


def play(
    scenario: Scenario,
    cases: Sequence[Case],
    model: BatchModel,
    *,
    wrap: WrapTools | None = None,
    count: Callable[[str], int] | None = None,
) -> list[Trace]:
    """The trace of every case. `count` gives the tokens of a text (default: an estimate)."""
    ids = session_ids(cases)
    rooms = {session: scenario.backend(item) for session, (_, item) in zip(ids, cases, strict=True)}
    tools: dict[str, ToolBackend] = {key: wrap(key, room) if wrap else room for key, room in rooms.items()}
    sessions = [
        Session(harness, session_id=session, room=scenario.room_view(item), count=count)
        for session, (harness, item) in zip(ids, cases, strict=True)
    ]
    longest = max((len(item.turns) for _, item in cases), default=0)
    for turn in range(longest):
        batch = []
        for name, session, (_, item) in zip(ids, sessions, cases, strict=True):
            if turn < len(item.turns):
                rooms[name].observe(item.turns[turn])
                batch.append((session, events_of(item.turns[turn])))
        if isinstance(model, ExpertModel):
            model.at(turn)
        run_batch(batch, model, tools.__getitem__)
    return [session.trace for session in sessions]


def play_expert(scenario: Scenario, cases: Sequence[Case], *, wrap: WrapTools | None = None) -> list[Trace]:
    """The traces of the scenario's scripted expert: right turns under every harness state."""
    return play(scenario, cases, ExpertModel(scenario.expert(), cases), wrap=wrap)
