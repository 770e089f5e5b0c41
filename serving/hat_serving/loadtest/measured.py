"""What a load measured: turns read back, figures by arm, lost turns and moves between arms.

Always holds: percentiles are nearest-rank over successful turns; a failed turn counts against goodput; what cannot be
known from the answers (an arm that is not told) is "" and kept apart. Not here: measuring (ask), pages (report).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from hat_serving.loadtest.ask import TurnRecord
from hat_serving.loadtest.plan import LoadPlan


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest-rank percentile; 0 for no values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


@dataclass(frozen=True, slots=True)
class Figures:
    """One arm, or the whole load. Seconds but where the name says otherwise."""

    turns: int
    failed: int
    ttft_p50_s: float
    ttft_p95_s: float
    between_p50_s: float
    """Between pieces of shown text of a stream."""
    between_p95_s: float
    wall_p50_s: float
    wall_p95_s: float
    wall_p99_s: float
    turns_per_s: float
    tokens_per_s: float
    """Completion tokens over the load's time."""
    in_time: float
    """Share of all turns that were answered within the plan's limit."""
    goodput_per_s: float
    """Turns answered within the limit, over the load's time."""

    @classmethod
    def of(cls, turns: Sequence[TurnRecord], seconds: float, limit_s: float) -> Figures:
        """From the turns of one arm."""
        good = [turn for turn in turns if turn.ok]
        walls, firsts = [turn.wall for turn in good], [turn.ttft for turn in good if turn.ttft]
        gaps = [gap for turn in good for gap in turn.gaps]
        timely = sum(wall <= limit_s for wall in walls)
        span = max(seconds, 1e-9)
        return cls(
            turns=len(turns),
            failed=len(turns) - len(good),
            ttft_p50_s=percentile(firsts, 0.5),
            ttft_p95_s=percentile(firsts, 0.95),
            between_p50_s=percentile(gaps, 0.5),
            between_p95_s=percentile(gaps, 0.95),
            wall_p50_s=percentile(walls, 0.5),
            wall_p95_s=percentile(walls, 0.95),
            wall_p99_s=percentile(walls, 0.99),
            turns_per_s=len(good) / span,
            tokens_per_s=sum(turn.tokens_out for turn in good) / span,
            in_time=timely / len(turns) if turns else 0.0,
            goodput_per_s=timely / span,
        )


@dataclass(frozen=True, slots=True)
class Move:
    """A conversation that went on under another arm or harness. `at`: start of the first turn there, Unix time."""

    conversation: str
    turn: int
    before: str
    after: str
    at: float
    kind: str
    """`arm` or `harness`."""


@dataclass(frozen=True)
class LoadResult:
    """Everything that a load measured."""

    plan: LoadPlan
    turns: tuple[TurnRecord, ...]
    seconds: float
    """From the first turn's start to the last one's end."""
    whole: Figures
    arms: dict[str, Figures] = field(default_factory=dict)
    intents: dict[str, Figures] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """Turns without a reply, refusal or silence."""
        return self.whole.failed

    @property
    def errors(self) -> dict[str, int]:
        """What was said of the failed ones, and how often."""
        return dict(Counter(turn.error for turn in self.turns if turn.error))

    @property
    def lost_turns(self) -> int:
        """Acknowledged turns that a later answer of the same conversation does not build on.

        The gateway numbers a conversation's turns; a number that does not come after the one acknowledged before means
        that the turn before is gone. Silence on rooms and answers without a number are passed over.
        """
        lost = 0
        for turns in conversations(self.turns).values():
            numbers = [turn.turn for turn in turns if turn.ok and turn.turn >= 0]
            lost += sum(max(0, before + 1 - after) for before, after in pairwise(numbers))
        return lost

    @property
    def moved(self) -> tuple[Move, ...]:
        """Every move within a conversation, by arm and by harness."""
        return tuple(move for turns in conversations(self.turns).values() for move in moves(turns))

    @property
    def moves(self) -> dict[tuple[str, str], int]:
        """Moves between arms within conversations, by (from, to)."""
        return dict(Counter((move.before, move.after) for move in self.moved if move.kind == "arm"))

    def to_json(self) -> dict[str, Any]:
        """`loadtest.json` of `hat loadtest run`: figures; the turns lie beside it."""
        from dataclasses import asdict

        return {
            "format": "hatstack.loadtest/1",
            "kind": "load",
            "plan": self.plan.model_dump(mode="json"),
            "seconds": self.seconds,
            "whole": asdict(self.whole),
            "arms": {name: asdict(one) for name, one in self.arms.items()},
            "intents": {name: asdict(one) for name, one in self.intents.items()},
            "errors": self.errors,
            "lost_turns": self.lost_turns,
            "moves": [{"before": before, "after": after, "count": n} for (before, after), n in self.moves.items()],
        }


def conversations(turns: Iterable[TurnRecord]) -> dict[str, list[TurnRecord]]:
    """Turns by conversation, in the order in which they began."""
    found: dict[str, list[TurnRecord]] = {}
    for turn in sorted(turns, key=lambda one: one.at):
        found.setdefault(turn.conversation, []).append(turn)
    return found


def moves(turns: Sequence[TurnRecord]) -> list[Move]:
    """Moves within one conversation whose turns are in order; answers that do not tell are passed over."""
    found = []
    for kind in ("arm", "harness"):
        told = [(turn, str(getattr(turn, kind))) for turn in turns if turn.ok and getattr(turn, kind)]
        for (_, before), (turn, after) in pairwise(told):
            if before != after:
                found.append(Move(turn.conversation, turn.turn, before, after, turn.at, kind))
    return found


def summed(plan: LoadPlan, turns: Sequence[TurnRecord]) -> LoadResult:
    """The figures of a load."""
    seconds = max((turn.at + turn.wall for turn in turns), default=0.0) - min((turn.at for turn in turns), default=0.0)
    by_arm: dict[str, list[TurnRecord]] = {}
    by_intent: dict[str, list[TurnRecord]] = {}
    for turn in turns:
        by_arm.setdefault(turn.arm, []).append(turn)
        by_intent.setdefault(turn.intent, []).append(turn)
    figures = {name: Figures.of(one, seconds, plan.limit_s) for name, one in sorted(by_arm.items())}
    intents = {name: Figures.of(one, seconds, plan.limit_s) for name, one in sorted(by_intent.items())}
    return LoadResult(plan, tuple(turns), seconds, Figures.of(turns, seconds, plan.limit_s), figures, intents)


def read_turns(path: Path) -> list[TurnRecord]:
    """The turns of a load, as they were written; a last line that was cut off is left out."""
    turns = []
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                body = json.loads(line)
                turns.append(TurnRecord(**{**body, "gaps": tuple(body["gaps"])}))
    return turns
