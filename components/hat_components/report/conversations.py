"""Picks conversations for a report and marks the harness lines that the model cites in them.

Always holds: the choice depends on scores and ids alone; failures and successes are both shown when there are both.
A line counts as cited when the model's reasoning quotes it, whole or in its telling part. Not here: the page.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from hat_components.evaluate.result import Evaluation, ItemResult, TraceRecord
from hat_harness.events import Message

MIN_QUOTE = 8
"""A shared text shorter than this is a word, not a quotation."""
LONGEST = 600
"""Characters of one message that the page shows; traces.jsonl has the rest."""


@dataclass(frozen=True)
class Line:
    """One line of a system prompt; `cited` when the model quotes it anywhere in the conversation."""

    text: str
    cited: bool


@dataclass(frozen=True)
class Spoken:
    """One message after the system prompt; `role` is viewer, hook, host or tool."""

    role: str
    text: str
    reasoning: str = ""
    calls: tuple[str, ...] = ()
    cites: tuple[str, ...] = ()
    """Lines of the harness that its reasoning quotes."""


@dataclass(frozen=True)
class Shown:
    """One conversation as the page shows it."""

    arm: str
    suite: str
    item: str
    score: float
    values: dict[str, float]
    causes: tuple[str, ...]
    families: tuple[str, ...]
    harness: str
    prompt: tuple[Line, ...]
    messages: tuple[Spoken, ...]


def choose(evaluations: dict[str, Evaluation], count: int) -> dict[str, dict[tuple[str, str], ItemResult]]:
    """Arm → (suite, item) → result: up to `count` in all, spread over arms and suites, worst and best in turn."""
    lanes: list[tuple[str, str, list[ItemResult]]] = []
    for arm, evaluation in evaluations.items():
        for suite in evaluation.suites:
            if suite.kind == "rollout":
                ordered = sorted(suite.items, key=lambda item: (item.values["average"], item.item))
                mixed = [item for pair in zip(ordered, reversed(ordered), strict=True) for item in pair]
                lanes.append((arm, suite.id, mixed[: len(ordered)]))
    chosen: dict[str, dict[tuple[str, str], ItemResult]] = {arm: {} for arm in evaluations}
    left, depth = count, 0
    while left > 0 and any(depth < len(items) for _, _, items in lanes):
        for arm, suite_id, items in lanes:
            if left > 0 and depth < len(items) and (suite_id, items[depth].item) not in chosen[arm]:
                chosen[arm][suite_id, items[depth].item] = items[depth]
                left -= 1
        depth += 1
    return chosen


def read(path: Path, arm: str, wanted: dict[tuple[str, str], ItemResult]) -> list[Shown]:
    """The wanted conversations of one traces.jsonl, read line by line; a broken line is passed over."""
    left = dict(wanted)
    shown: list[Shown] = []
    if not path.is_file():
        return shown
    with path.open("rb") as lines:
        for line in lines:
            if not left:
                break
            try:
                record = TraceRecord.model_validate_json(line)
            except ValidationError:
                continue
            result = left.pop((record.suite, record.item), None)
            if result is not None:
                shown.append(_show(arm, record, result))
    return shown


def _show(arm: str, record: TraceRecord, result: ItemResult) -> Shown:
    messages = [message for segment in record.trace.segments for message in segment.messages]
    system = [message for message in messages if message.role == "system"][:1]
    lines = [line.strip() for message in system for line in message.content.splitlines() if line.strip()]
    rounds = {entry.data.get("message") for entry in record.trace.entries if entry.type == "round"}
    spoken = tuple(_speak(message, lines, rounds) for message in messages if message.role != "system")
    cited = {line for message in spoken for line in message.cites}
    return Shown(
        arm=arm,
        suite=record.suite,
        item=record.item,
        score=result.values["average"],
        values=result.values,
        causes=tuple(dict.fromkeys(cause for turn in result.turns for cause in turn.causes)),
        families=record.families,
        harness=record.harness,
        prompt=tuple(Line(line, line in cited) for line in lines),
        messages=spoken,
    )


def _speak(message: Message, lines: Sequence[str], rounds: Collection[str | None]) -> Spoken:
    role = {"assistant": "host", "tool": "tool"}.get(message.role, "hook" if message.content in rounds else "viewer")
    calls = tuple(
        f"{call.name}({', '.join(f'{k}={v!r}' for k, v in call.arguments.items())})" for call in message.tool_calls
    )
    cites = cited_lines(message.reasoning, lines)
    return Spoken(role, _clip(message.content), _clip(message.reasoning), tuple(_clip(call) for call in calls), cites)


def _clip(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text):,} characters)"


def cited_lines(reasoning: str, lines: Sequence[str]) -> tuple[str, ...]:
    """The lines that `reasoning` quotes: they hold a line of it, or what stands after a bar in it, or lie in it."""
    parts = [part.strip() for line in reasoning.splitlines() for part in (line, *line.split(" |"))]
    quotes = [part for part in parts if len(part) >= MIN_QUOTE]
    return tuple(
        line for line in lines if any(quote in line or (len(line) >= MIN_QUOTE and line in quote) for quote in quotes)
    )
