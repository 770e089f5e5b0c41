"""Who splits traffic between the stable version and the canary, and holds the canary's workload.

    httproute     weights of an HTTPRoute, written by hatstack; plain Services, or an InferenceService's
    isvc_canary   KServe's own spec.canary (its controller writes the weights)
    knative       KServe on Knative, two revisions
    llmisvc       a route group of two LLMInferenceServices
    gateway       hatstack's gateway, which keeps a unit on its arm

Always holds, for all: `read` tells what is in force, from routes and status and never from a wish; every verb is
idempotent; taking the canary away is refused while it gets traffic. Not here: when to do what (machine).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from hat_serving.canary.errors import BackendError
from hat_serving.canary.spec import (
    GatewayTarget,
    HttpRouteTarget,
    IsvcCanaryTarget,
    KnativeTarget,
    LlmGroupTarget,
    RolloutSpec,
)

if TYPE_CHECKING:
    from hat_serving.canary.kube import Objects


@dataclass(frozen=True, slots=True)
class Reading:
    """What is in force."""

    effective: int | None
    """Percent of traffic that gets the canary's version; None when it cannot be told."""
    ready: bool = False
    """The canary can take traffic."""
    promoted: bool = False
    """The canary's version is the stable one, alone, and nothing is left of the old one."""
    retired: bool = False
    """Nothing of the canary is left."""
    note: str = ""
    """Why `effective` is None or the canary is not ready."""


class TrafficBackend(Protocol):
    """One way to split traffic. Verbs may raise RolloutError; they are tried again at the next look."""

    settle: float
    """Seconds that a split must be seen to hold before it counts."""

    def read(self) -> Reading:
        """What is in force now."""

    def prepare(self) -> None:
        """Makes the canary's workload, without traffic."""

    def set_weight(self, percent: int) -> None:
        """Gives the canary this percent."""

    def promote(self) -> None:
        """Makes the canary's version the stable one. Called only while it has all traffic; repeated until seen."""

    def retire(self) -> None:
        """Takes the canary's workload away. Called only while it has no traffic; repeated until seen."""


def backend_for(spec: RolloutSpec, kube: Objects | None, namespace: str) -> TrafficBackend:
    """The backend of a rollout's target; only `gateway` does without `kube`."""
    from hat_serving.canary.backends import gateway, httproute, isvc_canary, knative, llmisvc

    target = spec.target
    if isinstance(target, GatewayTarget):
        return gateway.connect(
            target.url,
            target.deployment,
            arm=spec.arms.canary,
            release=spec.release,
            harness=target.harness,
            engine=target.engine,
            urgent=target.urgent,
        )
    if kube is None:
        raise BackendError(f"backend {target.backend} needs a cluster", cure="use backend gateway without one")
    match target:
        case HttpRouteTarget():
            return httproute.HttpRoute(kube, namespace, target)
        case IsvcCanaryTarget():
            return isvc_canary.IsvcCanary(kube, namespace, target)
        case KnativeTarget():
            return knative.Knative(kube, namespace, target)
        case LlmGroupTarget():
            return llmisvc.LlmGroup(kube, namespace, target)
