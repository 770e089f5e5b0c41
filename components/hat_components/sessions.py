"""Items under harness states through real sessions: draws the states, plays in batches, scores, writes conversations.

Always holds: a state follows from harness, plan, seed and item alone, so that two arms meet the same states; playing in
other batches changes nothing, since sampling and faults are keyed by the session's own name. Not here: what the scores
are used for (augment, evaluate).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hat_components.step import InputError
from hat_harness.augment import AugmentPlan, FaultPlan, FaultyBackend, apply
from hat_harness.augment.engine import base_digest
from hat_harness.events import CallModel, Failure, Message, ModelOutput
from hat_harness.load import load_harness
from hat_harness.ports import BatchModel, ToolBackend
from hat_harness.spec import Harness
from hat_harness.trace import Segment, Trace
from hat_scenarios.base import Item, Scenario, Scores
from hat_scenarios.play import ExpertModel, play, session_ids


@dataclass(frozen=True)
class State:
    """A harness as one item meets it."""

    harness: Harness
    digest: str
    families: tuple[str, ...] = ()
    faults: FaultPlan | None = None


@dataclass(frozen=True)
class Played:
    """One finished session."""

    item: Item
    state: State
    trace: Trace
    scores: tuple[Scores, ...]

    @property
    def perfect(self) -> bool:
        """Every score of every turn is 1."""
        return all(
            min(score.accuracy, score.effectiveness, score.skill_selection, score.tool_rationality) >= 1.0
            for score in self.scores
        )


def read_harness(path: Path) -> Harness:
    """Load a harness folder; a LoadError becomes an `InputError` that lists the same problems."""
    from hat_harness.errors import LoadError

    try:
        return load_harness(path)
    except LoadError as error:
        raise InputError(str(error), place=str(path), cure="correct the harness, see `hat harness validate`") from error


def draw_seed(seed: int, name: str, number: int = 0) -> int:
    """63 bits that depend on the suite's or step's seed, the item and the number of the draw."""
    digest = hashlib.sha256(f"{seed}\x1f{name}\x1f{number}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


class States:
    """Draws harness states for items of a scenario. `plan` None: the original harness for all."""

    def __init__(self, scenario: Scenario, harness: Harness, plan: AugmentPlan | None, seed: int) -> None:
        self._original = State(harness, base_digest(harness))
        self._plan = plan
        self._seed = seed
        self._words = (scenario.vocabulary(), scenario.vocabulary(held_out=True))

    def of(self, item: Item, number: int = 0) -> State:
        """The state in which `item` is played the `number`-th time."""
        if self._plan is None:
            return self._original
        seed = draw_seed(self._seed, item.id, number)
        state = apply(self._original.harness, self._plan, seed, self._words[0], held_out=self._words[1])
        if not state.rewrites:
            return self._original
        return State(state.harness, base_digest(state.harness), state.families, state.faults)


class _Named:
    """A model that knows sessions by names of their own rather than by their place in a batch."""

    def __init__(self, model: BatchModel, names: dict[str, str]) -> None:
        self._model = model
        self._names = names

    def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
        return self._model.generate([(self._names[session], call) for session, call in calls])


def play_scored(
    scenario: Scenario,
    cases: Sequence[tuple[Item, State]],
    model: BatchModel | None,
    *,
    label: str = "",
    batch: int = 64,
    count: Callable[[str], int] | None = None,
) -> Iterator[Played]:
    """Play and score the cases in order, `batch` at a time. `model` None: the scripted expert; `label` names it."""
    for start in range(0, len(cases), batch):
        part = cases[start : start + batch]
        played = [(state.harness, item) for item, state in part]
        names = {ident: f"{label}{start + i}-{part[i][0].id}" for i, ident in enumerate(session_ids(played))}
        faults = {ident: part[i][1].faults for i, ident in enumerate(session_ids(played))}

        def wrap(
            session: str,
            tools: ToolBackend,
            names: dict[str, str] = names,
            faults: dict[str, FaultPlan | None] = faults,
        ) -> ToolBackend:
            plan = faults[session]
            return tools if plan is None else _Renamed(FaultyBackend(tools, plan), names[session])

        actor = ExpertModel(scenario.expert(), played) if model is None else _Named(model, names)
        traces = play(scenario, played, actor, wrap=wrap, count=count)
        for (item, state), trace in zip(part, traces, strict=True):
            yield Played(item, state, trace, tuple(scenario.score(state.harness, item, trace)))
        if (forget := getattr(model, "forget", None)) is not None:
            forget()  # a local model's caches of sessions that are over


class _Renamed:
    """A tool backend that draws its faults by the session's own name."""

    def __init__(self, tools: ToolBackend, name: str) -> None:
        self._tools = tools
        self._name = name

    def call(self, session_id: str, request: Any) -> Any:
        return self._tools.call(self._name, request)


def openai_message(message: Message) -> dict[str, Any]:
    """A session's message in OpenAI chat format; reasoning is `reasoning_content`."""
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        found["reasoning_content"] = message.reasoning
    if message.tool_calls:
        found["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)},
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        found["tool_call_id"] = message.tool_call_id
    if message.name:
        found["name"] = message.name
    return found


def training_messages(segment: Segment) -> tuple[dict[str, Any], ...]:
    """A segment as a training conversation: what was sampled elsewhere is marked `"train": false`."""
    sampled = {sample.message for sample in segment.sampled}
    messages = []
    for index, message in enumerate(segment.messages):
        row = openai_message(message)
        if message.role == "assistant" and index not in sampled:
            row["train"] = False
        messages.append(row)
    return tuple(messages)
