"""How many accelerators a rollout needs beside what runs already, and whether they are free. Pure.

A canary of a large model is a whole new set of pods before the first request reaches it, and a one-replica service
doubles. So the question is asked pod by pod: a pod's accelerators must be free on one node. Not here: reading nodes
and pods (preflight).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hat_serving.canary.kube import Manifest

GPU = "nvidia.com/gpu"
PRODUCT = f"{GPU}.product"


@dataclass(frozen=True, slots=True)
class Node:
    """Free accelerators of one node."""

    name: str
    product: str
    free: int
    size: int


@dataclass(frozen=True, slots=True)
class Need:
    """Pods that a moment of the rollout adds to what runs before it."""

    moment: str
    pods: int
    each: int
    """Accelerators of one pod."""
    product: str = ""
    """Node label value the pods ask for; empty: any."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Whether a need can be met now."""

    need: Need
    missing_pods: int
    missing_nodes: int
    """Further nodes of the largest known size that would do; 0 when all pods fit."""

    @property
    def fits(self) -> bool:
        """Whether all pods have a place."""
        return self.missing_pods == 0

    def advice(self) -> str:
        """What to do, in one sentence."""
        if self.fits:
            return f"{self.need.moment}: {self.need.pods} × {self.need.each} {GPU} are free"
        kind = self.need.product or "GPU"
        nodes = f"add {self.missing_nodes} {kind} node{'s' if self.missing_nodes > 1 else ''}"
        return (
            f"{self.need.moment}: {self.missing_pods} of {self.need.pods} pods "
            f"with {self.need.each} {GPU} find no place; {nodes}"
        )


def place(need: Need, nodes: Sequence[Node]) -> Placement:
    """First fit: all pods are alike, so this is optimal."""
    if need.each <= 0:
        return Placement(need, 0, 0)
    fitting = [node for node in nodes if not need.product or node.product == need.product]
    room = sum(max(node.free, 0) // need.each for node in fitting)
    missing = max(need.pods - room, 0)
    per_node = max((node.size // need.each for node in fitting), default=1) or 1
    return Placement(need, missing, -(-missing // per_node))


def needs_of_service(stable: int, canary: int, each: int, product: str = "") -> tuple[Need, ...]:
    """What KServe's Standard mode adds, from its replica rules.

    The canary's pods start beside all stable ones; then stable shrinks by the ready canary replicas, but not below
    one. At promotion the canary's Deployment grows to the stable count while the shrunk old one still runs.
    """
    shrunk = max(stable - canary, 1)
    begin = Need("canary starts", canary, each, product)
    grown = stable + shrunk - (stable + canary)
    return (begin, Need("promotion", max(canary + grown, 0), each, product)) if grown > 0 else (begin,)


def free_nodes(nodes: Sequence[Manifest], pods: Sequence[Manifest]) -> list[Node]:
    """Free accelerators per node that is ready and may be scheduled on; pods that have ended hold none."""
    used: dict[str, int] = {}
    for pod in pods:
        name = pod["spec"].get("nodeName")
        if name and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            used[name] = used.get(name, 0) + accelerators(pod["spec"])
    found = []
    for node in nodes:
        name, size = node["metadata"]["name"], int(node.get("status", {}).get("allocatable", {}).get(GPU, 0))
        if size and not node["spec"].get("unschedulable") and _ready(node):
            product = (node["metadata"].get("labels") or {}).get(PRODUCT, "")
            found.append(Node(name, product, size - used.get(name, 0), size))
    return found


def accelerators(spec: Mapping[str, object]) -> int:
    """What one pod claims: its containers together, or its largest init container."""

    def claim(container: Manifest) -> int:
        resources = container.get("resources") or {}
        return int((resources.get("limits") or {}).get(GPU) or (resources.get("requests") or {}).get(GPU) or 0)

    def claims(key: str) -> list[int]:
        containers = spec.get(key)
        return [claim(entry) for entry in containers] if isinstance(containers, list) else []

    return max(sum(claims("containers")), max(claims("initContainers"), default=0))


def _ready(node: Manifest) -> bool:
    conditions = node.get("status", {}).get("conditions") or []
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
