"""Conditions of a rollout in Kubernetes' own form, for `kubectl wait` and dashboards. Pure.

    Promoted      True once the canary is the stable version, False once it is taken back, else Unknown
    SplitInForce  whether the effective weight equals the desired one; Unknown when it cannot be told
    Held          whether someone or something has to act before it goes on: a pause, doubt, preflight

Always holds: `lastTransitionTime` changes with the status of a condition and with nothing else.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

from hat_serving.canary.state import State

Condition = dict[str, Any]
TYPES = ("Promoted", "SplitInForce", "Held")


def conditions(state: State, before: Iterable[Condition], generation: int, now: float) -> list[Condition]:
    """The conditions of `state`; `before` are those of the look before, `now` seconds since the epoch."""
    known = {entry["type"]: entry for entry in before}
    at = datetime.datetime.fromtimestamp(now, datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    made = []
    for kind, status, reason in _all(state):
        old = known.get(kind)
        same = old is not None and old["status"] == status
        made.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": state.message[:1000],
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"] if same and old else at,
            }
        )
    return made


def _all(state: State) -> Sequence[tuple[str, str, str]]:
    promoted = {"Healthy": "True", "Degraded": "False"}.get(state.phase, "Unknown")
    held = state.phase == "Paused" or state.reason in ("PreflightFailed", "Requested", "WaitingForAnalysis")
    if state.effective_weight is None:
        split, why = "Unknown", "CannotBeTold"
    elif state.effective_weight == state.desired_weight or state.phase == "Healthy":
        split, why = "True", "InForce"
    else:
        split, why = "False", "WaitingForSplit"
    return (
        ("Promoted", promoted, state.reason or state.phase),
        ("SplitInForce", split, why),
        ("Held", str(held), (state.pause_reason or state.reason or "Held") if held else "GoesOn"),
    )
