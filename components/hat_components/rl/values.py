"""Rewards of a played session, one number for each name in `config.NAMES`, and the lengths of its reasoning.

Always holds: scores are means over the session's turns, in [0, 1]; a session without a score has None, which takes no
part. Not here: how rewards become an advantage (reward).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from hat_components.rl.reward import length_penalty
from hat_components.sessions import Played
from hat_harness.codec import decode
from hat_harness.trace import Trace

CallKind = Literal["skill", "tool", "reply"]
Count = Callable[[str], int]
"""Tokens of a text."""


def values_of(played: Played, count: Count, free: float, full: float) -> dict[str, float | None]:
    """Reward name → value. `length` is q(L), the mean over the session's model calls (the term's weight signs it)."""
    names = ("accuracy", "effectiveness", "skill_selection", "tool_rationality")
    found: dict[str, float | None] = dict.fromkeys(names)
    if played.scores:
        found = {name: float(np.mean([getattr(score, name) for score in played.scores])) for name in names}
    lengths = [tokens for _, tokens in reasoning_lengths(played.trace, count)]
    return {**found, "length": float(length_penalty(lengths, free, full).mean()) if lengths else None}


def reasoning_lengths(trace: Trace, count: Count) -> list[tuple[CallKind, int]]:
    """For each model call: what it led to (a skill, another tool, a reply) and its reasoning in tokens."""
    kinds: dict[str, CallKind] = {}
    for entry in trace.entries:
        if entry.kind == "note" and entry.type == "skill":
            kinds[entry.data["call_id"]] = "skill"
    found: list[tuple[CallKind, int]] = []
    for entry in trace.entries:
        if entry.kind == "event" and entry.type == "ModelOutput":
            output = decode("ModelOutput", entry.data)
            made = {kinds.get(call.id, "tool") for call in output.tool_calls}
            kind: CallKind = "reply" if not made else "skill" if "skill" in made else "tool"
            found.append((kind, count(output.reasoning) if output.reasoning else 0))
    return found
