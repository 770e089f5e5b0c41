"""The contexts of a session: append-only segments within a token budget.

Always holds: messages are only ever added to the last segment; a new segment starts with the system prompt (room view
as it is then), goes on with as many earlier exchanges as fit, newest first, and ends with what the open turn has so
far. When the system prompt alone passes half of the budget, a segment opened at the budget keeps only its protected
prompts. Token counts are the model's own where it reports them, else `count`, else a quarter of the UTF-8 bytes. Not
here: when a segment is opened (session), rendering (render).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from hat_harness.digest import harness_digest
from hat_harness.events import Message
from hat_harness.render import few_shot_messages, render_system, tool_definitions
from hat_harness.spec import Harness
from hat_harness.trace import Sample, Segment, built

Reason = Literal["start", "budget", "restart", "harness"]
_OVERHEAD = 4
"""Tokens that a chat template adds to a message, about."""
_SHORTEST = 64
"""Tokens that are left of a tool result that is cut to fit a segment."""


def estimate(text: str) -> int:
    """A quarter of the UTF-8 bytes, rounded up: about right for English and Chinese under a large vocabulary."""
    size = len(text) if text.isascii() else len(text.encode(errors="replace"))
    return (size + 3) // 4


class OpenSegment:
    """A segment that may still grow."""

    __slots__ = ("harness", "index", "messages", "reason", "sampled", "sent", "tokens", "tools")

    def __init__(self, index: int, reason: Reason, harness: Harness, tools: tuple[dict[str, Any], ...]) -> None:
        self.index = index
        self.reason = reason
        self.harness = harness
        self.tools = tools
        self.messages: list[Message] = []
        self.sampled: list[tuple[int, str]] = []
        self.sent = 0
        self.tokens = 0


class Segments:
    """All segments of a session and the exchanges that a new one may carry over."""

    __slots__ = ("_carried", "_count", "_reduced", "exchanges", "found")

    def __init__(self, count: Callable[[str], int] | None) -> None:
        self._count = count or estimate
        self._carried = 0
        self._reduced = False
        self.found: list[OpenSegment] = []
        self.exchanges: list[tuple[Message, ...]] = []

    @property
    def last(self) -> OpenSegment:
        """The segment that grows."""
        return self.found[-1]

    def size(self, message: Message) -> int:
        """Tokens of a message, about."""
        total = self._count(message.content) + _OVERHEAD
        if message.reasoning:
            total += self._count(message.reasoning)
        for call in message.tool_calls:
            total += self._count(call.name) + sum(self._count(f"{k}{v}") for k, v in call.arguments.items()) + _OVERHEAD
        return total

    def open(
        self,
        harness: Harness,
        room: Mapping[str, Any],
        reason: Reason,
        turn: Sequence[Message] = (),
    ) -> OpenSegment:
        """Starts a segment; `turn` is what the open turn has so far."""
        segment = OpenSegment(len(self.found), reason, harness, tool_definitions(harness))
        budget = max(0, harness.limits.segment_tokens - harness.limits.output_tokens)
        system = render_system(harness, room)
        self._reduced = reason == "budget" and self._count(system) > budget // 2
        if self._reduced:
            system = render_system(harness, room, protected_only=True)
        head = Message("system", system)
        shots = () if self._reduced else few_shot_messages(harness)
        turn = self._shrink(turn, budget - self.size(head)) if reason == "budget" else list(turn)
        carried: list[Message] = []
        self._carried = 0
        spare = budget // 2 - sum([self.size(m) for m in (head, *shots, *turn)]) if self.exchanges else 0
        for exchange in reversed(self.exchanges):
            spare -= sum(self.size(message) for message in exchange)
            if spare < 0:
                break
            carried[:0] = exchange
            self._carried += 1
        self.found.append(segment)
        for message in (head, *shots, *carried, *turn):
            self.add(message)
        return segment

    def add(self, message: Message) -> None:
        """Appends a message to the last segment."""
        segment = self.found[-1]
        segment.messages.append(message)
        segment.tokens += self.size(message)

    def add_sampled(self, message: Message, call_id: str, tokens: int) -> None:
        """Appends a sampled message; `tokens` is the size of the whole context with it, or 0 when it is not known."""
        segment = self.found[-1]
        segment.sampled.append((len(segment.messages), call_id))
        self.add(message)
        if tokens:
            segment.tokens = tokens

    def full(self, harness: Harness, turn: Sequence[Message]) -> bool:
        """Whether the next output might pass the budget and a new segment could be smaller."""
        limits = harness.limits
        segment = self.found[-1]
        if segment.tokens + limits.output_tokens <= limits.segment_tokens:
            return False
        return self._carried > 0 or segment.reason != "budget" or any(self._long(message) for message in turn)

    def _long(self, message: Message) -> bool:
        return message.role == "tool" and self.size(message) > _SHORTEST + 2 * _OVERHEAD

    def _shrink(self, turn: Sequence[Message], spare: int) -> list[Message]:
        """The open turn with its oldest tool results cut short until it fits, as far as that goes."""
        found = list(turn)
        over = sum(self.size(message) for message in found) - spare
        for index, message in enumerate(found):
            if over <= 0:
                break
            if self._long(message):
                found[index] = replace(message, content=self.cut(message.content, _SHORTEST))
                over -= self.size(message) - self.size(found[index])
        return found

    def end_turn(self, messages: tuple[Message, ...]) -> None:
        """Keeps what a later segment may carry over of a finished turn: the question and what was shown."""
        self.exchanges.append(messages)
        self._carried += 1

    def cut(self, text: str, limit: int) -> str:
        """The text, shortened to about `limit` tokens with a mark when it is longer."""
        size = self._count(text)
        if size <= limit:
            return text
        keep = max(1, len(text) * limit // size)
        while keep > 1 and self._count(text[:keep]) > limit:
            keep = keep * 9 // 10
        return text[:keep] + " …"

    def records(self) -> tuple[Segment, ...]:
        """All segments as they stand in a trace."""
        return tuple(
            built(
                Segment,
                {
                    "index": item.index,
                    "reason": item.reason,
                    "harness": harness_digest(item.harness),
                    "messages": tuple(item.messages),
                    "tools": item.tools,
                    "sampled": tuple(
                        built(Sample, {"message": index, "call_id": call}) for index, call in item.sampled
                    ),
                },
            )
            for item in self.found
        )
