"""What a cluster brings for canary rollouts, and what is missing: `hat doctor cluster`. Only reads.

Preflight answers for one rollout; this answers before there is one. Each finding has a state: `ok`, `note` (works, with a
limit) or `bad` (no rollout can work). Not here: the rollout's own checks (preflight).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from hat_serving.canary import capacity, preflight
from hat_serving.canary.backends.routes import GATEWAY_API
from hat_serving.canary.errors import ClusterError
from hat_serving.canary.kube import Kube
from hat_serving.canary.spec import API_VERSION, GROUP
from hat_serving.canary.workload import KSERVE

OLDEST = (1, 29)
"""First Kubernetes release whose API server speaks all the CEL of our definition, and knows sidecars and preStop sleep."""
LEASES = "coordination.k8s.io/v1"
LEASE = "hatstack-canary-controller"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
RIGHTS = (
    ("create", GROUP, "canaryrollouts"),
    ("patch", GROUP, "canaryrollouts"),
    ("get", "serving.kserve.io", "inferenceservices"),
    ("get", "gateway.networking.k8s.io", "httproutes"),
)
"""What a person needs to run rollouts; the controller has rights of its own."""


@dataclass(frozen=True, slots=True)
class Found:
    """One line of the answer."""

    check: str
    state: Literal["ok", "note", "bad"]
    found: str
    cure: str = ""


def inspect(kube: Kube, namespace: str) -> list[Found]:
    """All checks; one that the API server refuses says so and stops none of the others."""
    lines: list[Found] = []
    for name, check in CHECKS.items():
        try:
            lines += check(kube, namespace)
        except ClusterError as error:
            if error.code == 0:
                raise
            state: Literal["note", "bad"] = "note" if error.code == 403 else "bad"
            lines.append(Found(name, state, error.message, "ask who runs the cluster" if error.code == 403 else ""))
    return lines


def _kubernetes(kube: Kube, _: str) -> Iterator[Found]:
    said = kube.request("GET", "/version")
    digits = [int("".join(c for c in str(said[key]) if c.isdigit()) or 0) for key in ("major", "minor")]
    good = (digits[0], digits[1]) >= OLDEST
    wanted = ".".join(map(str, OLDEST))
    yield Found("kubernetes", "ok" if good else "bad", str(said["gitVersion"]), "" if good else f"{wanted} or newer")


def _definitions(kube: Kube, _: str) -> Iterator[Found]:
    for check, api_version, kind, cure in (
        ("rollouts", API_VERSION, "CanaryRollout", "helm install hatstack charts/hatstack"),
        ("gateway api", GATEWAY_API, "HTTPRoute", "install the Gateway API's definitions"),
        ("kserve", KSERVE, "InferenceService", "install KServe"),
    ):
        try:
            kube.path(api_version, kind)
        except ClusterError as error:
            if error.code != 404:
                raise
            yield Found(check, "bad", f"no {kind} ({api_version})", cure)
        else:
            yield Found(check, "ok", api_version)


def _kserve(kube: Kube, _: str) -> Iterator[Found]:
    problems = list(preflight.gateway_api(kube))
    for one in problems:
        yield Found("kserve ingress", "bad", one.message, one.cure)
    if not problems:
        yield Found("kserve ingress", "ok", "Gateway API, its Gateway is accepted")
    version = preflight.kserve_version(kube)
    if version is None:
        yield Found("kserve version", "note", "cannot be told from its Deployment's image")
        return
    backend = "isvc-canary" if version >= preflight.WRITES_WEIGHTS else "httproute"
    yield Found("kserve version", "ok", f"{version[0]}.{version[1]}: backend {backend}")


def _controller(kube: Kube, _: str) -> Iterator[Found]:
    held = [entry for entry in kube.list(LEASES, "Lease") if entry["metadata"]["name"] == LEASE]
    if not held:
        yield Found("controller", "bad", "no canary controller has ever run", "helm install hatstack charts/hatstack")
        return
    for entry in held:
        spec = entry["spec"]
        renewed = datetime.datetime.fromisoformat(str(spec["renewTime"]).replace("Z", "+00:00"))
        age = (datetime.datetime.now(datetime.UTC) - renewed).total_seconds()
        alive = bool(spec.get("holderIdentity")) and age < 4 * float(spec["leaseDurationSeconds"])
        place = entry["metadata"]["namespace"]
        said = f"{spec.get('holderIdentity') or 'nobody'} in {place}, heard of {age:.0f} s ago"
        cure = "" if alive else f"kubectl -n {place} logs deploy/hatstack-canary"
        yield Found("controller", "ok" if alive else "bad", said, cure)


def _accelerators(kube: Kube, _: str) -> Iterator[Found]:
    nodes = capacity.free_nodes(kube.list("v1", "Node"), kube.list("v1", "Pod"))
    if not nodes:
        yield Found("gpus", "note", f"no node offers {capacity.GPU}", "engines on CPUs only")
    for node in nodes:
        state: Literal["ok", "note"] = "ok" if node.free > 0 else "note"
        cure = "" if node.free > 0 else "a canary's pods need a place of their own"
        product = node.product or "product unknown: label nvidia.com/gpu.product"
        yield Found(f"gpus {node.name}", state, f"{node.free} of {node.size} free, {product}", cure)


def _storage(kube: Kube, _: str) -> Iterator[Found]:
    classes = kube.list("storage.k8s.io/v1", "StorageClass")
    default = [
        entry["metadata"]["name"]
        for entry in classes
        if (entry["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
    ]
    if default:
        yield Found("storage class", "ok", ", ".join(default))
        return
    names = ", ".join(entry["metadata"]["name"] for entry in classes) or "none"
    yield Found("storage class", "note", f"no default; there are: {names}", "set console.volume.storageClass")


def _rights(kube: Kube, namespace: str) -> Iterator[Found]:
    missing = [
        f"{verb} {resource}" for verb, group, resource in RIGHTS if not may(kube, verb, group, resource, namespace)
    ]
    cure = f"a Role in {namespace} with these verbs" if missing else ""
    said = f"may not {', '.join(missing)}" if missing else f"may run rollouts in {namespace}"
    yield Found("your rights", "bad" if missing else "ok", said, cure)


def may(kube: Kube, verb: str, group: str, resource: str, namespace: str, name: str = "") -> bool:
    """Whether this connection's account may."""
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name}
    review: dict[str, Any] = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = kube.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


CHECKS: dict[str, Callable[[Kube, str], Iterator[Found]]] = {
    "kubernetes": _kubernetes,
    "definitions": _definitions,
    "kserve": _kserve,
    "controller": _controller,
    "gpus": _accelerators,
    "storage class": _storage,
    "your rights": _rights,
}
