"""Whether the moves that a load saw are those that the contract allows: promotion, urgent promotion, abort, ramp.

A running conversation keeps its arm and its harness, but for: an abort (everyone on the arm, at the next message), an urgent
promotion (the next message), and the promoted arm's new name (same release). Units change arms between conversations only,
onto a growing arm, and away from it only by an abort or a promotion. Always holds: what cannot be told apart by time (a turn
that was begun while an operation was under way) is allowed either way. Not here: making the operations (the admin API).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from hat_serving.loadtest.ask import TurnRecord
from hat_serving.loadtest.measured import LoadResult, conversations

Kind = Literal["weights", "promote", "urgent", "abort"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of what is served. Unix times: when it was asked for, and when every replica obeyed it."""

    kind: Kind
    arm: str
    asked: float
    obeyed: float
    stable: str = "stable"
    """Name that a promoted arm serves under afterwards."""


@dataclass(frozen=True)
class Verdict:
    """What the load saw. `violations` are turns that the contract does not allow, in words."""

    turns: int
    failed: int
    lost: int
    moves: dict[str, int] = field(default_factory=dict)
    """Moves within conversations by the operation that allows them."""
    violations: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Nothing failed, nothing was lost, nothing moved that may not."""
        return not (self.failed or self.lost or self.violations)


def judged(result: LoadResult, operations: list[Operation]) -> Verdict:
    """The verdict on a load during which the operations were made, in order."""
    moves: Counter[str] = Counter()
    violations: list[str] = []
    for name, turns in conversations(result.turns).items():
        told = [turn for turn in turns if turn.ok and turn.arm]
        for before, after in pairwise(told):
            if (before.arm, before.harness) == (after.arm, after.harness):
                continue
            reason = _allowed(before, after, operations)
            if reason:
                moves[reason] += 1
            else:
                violations.append(
                    f"{name}, turn {after.turn}: {before.arm} {before.harness[7:19]} → {after.arm} {after.harness[7:19]}"
                )
    violations += _late(result.turns, operations)
    if result.plan.route == "chat":  # over the room's route each conversation is a viewer of its own to the gateway
        violations += _back_and_forth(result.turns, operations)
    return Verdict(len(result.turns), result.failed, result.lost_turns, dict(moves), tuple(violations))


def _allowed(before: TurnRecord, after: TurnRecord, operations: list[Operation]) -> str:
    """Kind of the operation that explains a move within a conversation; "" for none."""
    ended = after.at + after.wall
    for one in operations:
        if not before.at < one.obeyed or not ended > one.asked:
            continue
        if one.kind == "abort" and before.arm == one.arm:
            return "abort"
        if one.kind == "urgent" and after.arm == one.stable:
            return "urgent"
        if (
            one.kind == "promote"
            and (before.arm, after.arm) == (one.arm, one.stable)
            and before.harness == after.harness
        ):
            return "promote"
    return ""


def _late(turns: tuple[TurnRecord, ...], operations: list[Operation]) -> list[str]:
    """Turns on an aborted arm that began after everybody obeyed."""
    found = []
    for index, one in enumerate(operations):
        if one.kind != "abort":
            continue
        again = min((later.asked for later in operations[index + 1 :] if later.arm == one.arm), default=float("inf"))
        found += [
            f"{turn.conversation}, turn {turn.turn}: on {turn.arm} after its abort"
            for turn in turns
            if turn.ok and turn.arm == one.arm and one.obeyed < turn.at < again
        ]
    return found


def _back_and_forth(turns: tuple[TurnRecord, ...], operations: list[Operation]) -> list[str]:
    """Viewers whose new conversations left a growing arm without an abort or a promotion."""
    firsts: dict[int, list[tuple[float, TurnRecord]]] = {}
    for named in conversations(turns).values():
        told = [turn for turn in named if turn.ok and turn.arm]
        if told:  # its arm was drawn when it began, which may be before the first turn that says so
            firsts.setdefault(told[0].viewer, []).append((min(turn.at for turn in named), told[0]))
    found = []
    for viewer, begun in firsts.items():
        for (began, before), (_, after) in pairwise(sorted(begun, key=lambda one: one[0])):
            between = [one for one in operations if began < one.obeyed and after.at + after.wall > one.asked]
            grew = any(one.kind == "weights" and one.arm == after.arm for one in between)
            ended = any(one.kind != "weights" and one.arm == before.arm for one in between)
            renamed = any(one.kind in ("promote", "urgent") for one in between)
            if before.arm != after.arm and not (grew or ended or renamed):
                found.append(f"viewer {viewer}: {before.arm} → {after.arm} with nothing that allows it")
    return found
