"""What it costs to go back, by how far a rollout is: said before it starts, not when it is needed.

Follows from the backend and from what promotion does there (workload, backends). Not here: going back (machine).
"""

from __future__ import annotations

from dataclasses import dataclass

from hat_serving.canary.spec import (
    GatewayTarget,
    HttpRouteTarget,
    KnativeTarget,
    LlmGroupTarget,
    RolloutSpec,
)


@dataclass(frozen=True, slots=True)
class Way:
    """One way back."""

    when: str
    how: str
    cost: str


def ways_back(spec: RolloutSpec) -> list[Way]:
    """Before the promotion, in the soak where there is one, and afterwards."""
    target = spec.target
    settled = "seconds: the stable version keeps its pods, only weights move"
    if isinstance(target, LlmGroupTarget):
        settled = "up to 15 seconds: the stable member keeps its pods, the group's routes settle"
    ways = [Way("until it is promoted", "abort", settled)]
    if spec.soak:
        ways.append(Way(f"in the soak, {spec.soak:g} s at 100 %", "abort", "the same: the old version is still warm"))
    return [*ways, Way("once it is promoted", "a rollout of the old version", _after(spec))]


def _after(spec: RolloutSpec) -> str:
    target = spec.target
    if isinstance(target, GatewayTarget):
        return "seconds: conversations change over at their next message, while the old engine and harness are there"
    if isinstance(target, LlmGroupTarget):
        return f"a cold start: member {target.stable} is stopped, keeps its object, and loads its weights again"
    if isinstance(target, KnativeTarget):
        return "a cold start: the old revision has no pods and loads its weights again"
    if isinstance(target, HttpRouteTarget) and target.inference_service is None:
        return f"seconds, while {target.stable_service} and its pods are left in place: nobody else takes them away"
    return "a cold start: the old version's pods are gone and load their weights again, minutes for a large model"
