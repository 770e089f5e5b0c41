"""How many viewers a load has at a moment: flat, ramp, spike and soak as functions of time.

Always holds: pure, never more than `plan.users`, and nobody after `plan.duration_s`. Not here: spawning (users).
"""

from __future__ import annotations

import math

from hat_serving.loadtest.plan import LoadPlan

STEPS = 10
"""A ramp has so many steps."""


def viewers_at(plan: LoadPlan, seconds: float) -> int | None:
    """Viewers wanted `seconds` after the start; None when the load is over."""
    if seconds >= plan.duration_s:
        return None
    part = seconds / plan.duration_s
    if plan.shape == "ramp":
        return _share(plan, min(1.0, (math.floor(part * 1.5 * STEPS) + 1) / STEPS))
    if plan.shape == "spike":
        return plan.users if 1 / 3 <= part < 2 / 3 else _share(plan, 0.2)
    if plan.shape == "soak":
        return _share(plan, min(1.0, (math.floor(part * 10 * STEPS) + 1) / STEPS))
    return plan.users


def _share(plan: LoadPlan, share: float) -> int:
    return max(1, min(plan.users, round(plan.users * share)))
