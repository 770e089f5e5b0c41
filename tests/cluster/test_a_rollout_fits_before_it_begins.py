"""Accelerators are counted pod by pod before a canary starts, and one controller at a time holds the Lease."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hat_serving.canary.capacity import Need, Node, accelerators, free_nodes, needs_of_service, place
from hat_serving.canary.errors import ClusterError
from hat_serving.canary.inspect import CHECKS, DEFAULT_CLASS
from hat_serving.canary.lease import Seen, decide
from hat_serving.canary.preflight import preflight
from hat_serving.canary.spec import read_spec
from hat_serving.canary.ways import ways_back
from hat_serving.canary.workload import trouble

H20 = "NVIDIA-H20"


def nodes(*free: int) -> list[Node]:
    return [Node(f"n{i}", H20, count, 8) for i, count in enumerate(free)]


def test_pods_must_fit_whole_on_a_node() -> None:
    assert place(Need("canary starts", 2, 4), nodes(4, 4)).fits
    placement = place(Need("canary starts", 2, 4), nodes(3, 3, 2))
    assert placement.missing_pods == 2
    assert placement.missing_nodes == 1
    assert "add 1" in placement.advice()


def test_only_nodes_of_the_asked_product_count() -> None:
    mixed = [Node("a", "NVIDIA-L4", 8, 8), Node("b", H20, 0, 8)]
    placement = place(Need("canary starts", 1, 8, H20), mixed)
    assert (placement.missing_pods, placement.missing_nodes) == (1, 1)
    assert H20 in placement.advice()


@given(free=st.lists(st.integers(0, 8), max_size=6), pods=st.integers(1, 20), each=st.integers(1, 8))
def test_first_fit_places_as_many_as_can_be(free: list[int], pods: int, each: int) -> None:
    placement = place(Need("m", pods, each), nodes(*free))
    assert placement.missing_pods == max(pods - sum(count // each for count in free), 0)
    assert placement.missing_nodes * (8 // each) >= placement.missing_pods


def test_a_service_with_one_replica_doubles() -> None:
    assert [need.pods for need in needs_of_service(1, 1, 8)] == [1]
    begin, promotion = needs_of_service(4, 1, 8)
    assert (begin.pods, promotion.pods) == (1, 3)


def test_what_runs_and_what_is_away_is_not_free() -> None:
    def node(name: str, **spec: Any) -> dict[str, Any]:
        ready = [{"type": "Ready", "status": "True"}]
        status = {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": ready}
        return {"metadata": {"name": name, "labels": {"nvidia.com/gpu.product": H20}}, "spec": spec, "status": status}

    def pod(node_name: str, gpus: int, phase: str = "Running") -> dict[str, Any]:
        container = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
        return {"spec": {"nodeName": node_name, "containers": [container]}, "status": {"phase": phase}}

    found = free_nodes([node("a"), node("b", unschedulable=True)], [pod("a", 3), pod("a", 4, "Succeeded")])
    assert found == [Node("a", H20, 5, 8)]


def test_init_containers_claim_what_the_largest_of_them_needs() -> None:
    one = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    assert accelerators({"containers": [one, one], "initContainers": [one]}) == 4
    assert accelerators({"containers": [{}], "initContainers": [one]}) == 2


def lease(holder: str, version: str) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 10}}


@pytest.mark.parametrize(
    ("found", "seen", "now", "action"),
    [
        (None, Seen(), 0.0, "take"),
        (lease("", "1"), Seen(), 0.0, "take"),
        (lease("me", "1"), Seen(), 0.0, "renew"),
        (lease("other", "2"), Seen("1", 0.0), 100.0, "wait"),
        (lease("other", "2"), Seen("2", 0.0), 9.0, "wait"),
        (lease("other", "2"), Seen("2", 0.0), 11.0, "take"),
    ],
)
def test_a_lease_is_taken_only_when_its_holder_has_been_silent(
    found: dict[str, Any] | None, seen: Seen, now: float, action: str
) -> None:
    assert decide(found, "me", seen, now)[0] == action


@given(beats=st.lists(st.floats(0.1, 9.9), min_size=1, max_size=30))
def test_a_holder_that_renews_in_time_is_never_replaced(beats: list[float]) -> None:
    now, seen = 0.0, Seen()
    for number, beat in enumerate(beats):
        now += beat
        action, seen = decide(lease("other", str(number)), "me", seen, now)
        assert action == "wait"


CANARY = {"name": "v2", "storageUri": "s3://m/v2"}


@pytest.mark.parametrize(
    ("target", "before", "after"),
    [
        ({"backend": "httproute", "inferenceService": "chat", "canary": CANARY}, "seconds", "a cold start"),
        ({"backend": "httproute", "route": "r", "stableService": "a", "canaryService": "b"}, "seconds", "while a and"),
        ({"backend": "isvc-canary", "inferenceService": "chat", "canary": CANARY}, "seconds", "a cold start"),
        ({"backend": "knative", "inferenceService": "chat", "canary": CANARY}, "seconds", "the old revision"),
        ({"backend": "llmisvc", "stable": "a", "canaryMember": "b"}, "up to 15 seconds", "member a is stopped"),
        ({"backend": "gateway", "url": "http://g", "deployment": "live"}, "seconds", "at their next message"),
    ],
)
def test_each_way_back_has_its_price(target: dict[str, Any], before: str, after: str) -> None:
    spec = read_spec({"release": "r", "target": target, "steps": [{"setWeight": 5}], "soak": "60s"})
    early, soak, late = ways_back(spec)
    assert early.cost.startswith(before)
    assert "60 s at 100 %" in soak.when
    assert after in late.cost


class Store:
    """An API server that holds just these objects, by kind and name."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.objects = objects

    def get(self, _api: str, kind: str, name: str, _namespace: str = "") -> dict[str, Any] | None:
        found = (one for one in self.objects if (one["kind"], one["metadata"]["name"]) == (kind, name))
        return next(found, None)

    def list(self, _api: str, kind: str, _namespace: str = "", **_query: str) -> list[dict[str, Any]]:
        return [one for one in self.objects if one["kind"] == kind]


def member(name: str, *, group: str = "chat", gpus: int = 1, stop: str = "false") -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    spec = {"model": {"name": "chat"}, "replicas": 2, "router": {"route": {"group": group, "weight": 1}}}
    metadata = {"name": name, "annotations": {"serving.kserve.io/stop": stop}}
    return {
        "kind": "LLMInferenceService",
        "metadata": metadata,
        "spec": {**spec, "template": {"containers": [container]}},
    }


def ground() -> tuple[dict[str, Any], ...]:
    """A node with 8 GPUs, and KServe on a Gateway that was accepted."""
    ready = [{"type": "Ready", "status": "True"}]
    node = {"kind": "Node", "metadata": {"name": "n", "labels": {}}, "spec": {},
            "status": {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": ready}}  # fmt: skip
    settings = {"ingress": json.dumps({"enableGatewayApi": True, "kserveIngressGateway": "kserve/g"})}
    config = {"kind": "ConfigMap", "metadata": {"name": "inferenceservice-config"}, "data": settings}
    accepted = {"conditions": [{"type": "Accepted", "status": "True"}]}
    return node, config, {"kind": "Gateway", "metadata": {"name": "g"}, "status": accepted}


@pytest.mark.parametrize(
    ("members", "codes"),
    [
        ([member("a"), member("b")], set()),
        ([member("a")], {"NoMember"}),
        ([member("a"), member("b", group="other")], {"NotOneGroup"}),
        ([member("a"), member("b", gpus=4, stop="true")], set()),
        ([member("a"), member("b", gpus=5, stop="true")], {"NoCapacity"}),
        ([member("a"), member("b", gpus=5)], set()),
    ],
)
def test_a_route_group_is_looked_at_before_it_is_split(members: list[dict[str, Any]], codes: set[str]) -> None:
    target = {"backend": "llmisvc", "stable": "a", "canaryMember": "b"}
    spec = read_spec({"release": "sha256:" + "1" * 64, "target": target, "steps": [{"setWeight": 5}]})
    found = preflight(spec, Store(*ground(), *members), "live", "r", None)  # type: ignore[arg-type]  # it only reads
    assert {finding.code for finding in found} == codes


def serving(*, ready: bool = True, mode: str = "Standard", **predictor: Any) -> tuple[dict[str, Any], ...]:
    """InferenceService `chat` with two replicas of one GPU each, and KServe's own Deployment."""
    condition = {"type": "Ready", "status": str(ready)}
    spec = {"predictor": {"name": "v1", "minReplicas": 2, "model": {"storageUri": "s3://m/v1"}, **predictor}}
    annotations = {"serving.kserve.io/deploymentMode": mode} if mode else {}
    service = {"kind": "InferenceService", "metadata": {"name": "chat", "annotations": annotations}, "spec": spec,
               "status": {"conditions": [condition], "deploymentMode": mode or "Standard"}}  # fmt: skip
    container = {"name": "kserve-container", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    template = {"template": {"spec": {"containers": [container]}}}
    return service, {"kind": "Deployment", "metadata": {"name": "chat-v1-predictor"}, "spec": template}


def kserve(tag: str) -> dict[str, Any]:
    template = {"template": {"spec": {"containers": [{"image": f"kserve/kserve-controller:{tag}"}]}}}
    return {"kind": "Deployment", "metadata": {"name": "kserve-controller-manager"}, "spec": template}


def config(**ingress: Any) -> dict[str, Any]:
    return {
        "kind": "ConfigMap",
        "metadata": {"name": "inferenceservice-config"},
        "data": {"ingress": json.dumps(ingress)},
    }


NODE, CONFIG, GATEWAY = ground()
WHOLE = (*serving(), NODE, CONFIG, GATEWAY, kserve("v0.20.0"))
UNTAKEN = {**GATEWAY, "status": {}}
FULL = {"kind": "Pod", "metadata": {}, "spec": {**member("x", gpus=8)["spec"]["template"], "nodeName": "n"}}


@pytest.mark.parametrize(
    ("backend", "objects", "codes"),
    [
        ("httproute", WHOLE, set()),
        ("httproute", WHOLE[1:], {"NoService"}),
        ("httproute", (*serving(ready=False), *WHOLE[2:]), {"StableNotReady"}),
        ("httproute", (*serving(mode=""), *WHOLE[2:]), {"ModeNotExplicit"}),
        ("httproute", (*serving(mode="Knative"), *WHOLE[2:]), {"WrongMode"}),
        ("knative", WHOLE, {"WrongMode"}),
        ("knative", serving(mode="Knative"), set()),
        ("httproute", (*serving(model={}), *WHOLE[2:]), {"NoStorageUri"}),
        ("httproute", (*serving(model={"storageUri": "s3://m/v2"}), *WHOLE[2:]), {"ConfigurationOnly"}),
        ("httproute", (*serving(minReplicas=1), *WHOLE[2:]), {"TooManyReplicas"}),
        ("httproute", (*WHOLE[:3], GATEWAY, WHOLE[5]), {"NoKServe"}),
        ("httproute", (*WHOLE[:3], config(enableGatewayApi=False), GATEWAY, WHOLE[5]), {"GatewayApiOff"}),
        ("httproute", (*WHOLE[:4], WHOLE[5]), {"NoGateway"}),
        ("httproute", (*WHOLE[:4], UNTAKEN, WHOLE[5]), {"GatewayNotAccepted"}),
        ("httproute", WHOLE[:5], {"KServeVersionUnknown"}),
        ("httproute", (*WHOLE[:5], kserve("v0.21.0")), {"TwoWriters"}),
        ("isvc-canary", (*WHOLE[:5], kserve("v0.21.0")), set()),
        ("isvc-canary", WHOLE, {"NoWeights"}),
        ("httproute", (*WHOLE, FULL), {"NoCapacity"}),
    ],
)
def test_every_lack_of_a_service_or_its_cluster_is_named(
    backend: str, objects: tuple[dict[str, Any], ...], codes: set[str]
) -> None:
    release = "sha256:" + "1" * 64
    canary = {**CANARY, "replicas": 2, "digest": release}
    target = {"backend": backend, "inferenceService": "chat", "canary": canary}
    spec = read_spec({"release": release, "target": target, "steps": [{"setWeight": 5}]})
    found = preflight(spec, Store(*objects), "live", "r", None)  # type: ignore[arg-type]  # it only reads
    assert {finding.code for finding in found} == codes, found
    assert all(finding.cure or finding.code == "KServeVersionUnknown" for finding in found)


def test_what_the_api_server_refuses_is_a_finding_about_rights() -> None:
    class Closed(Store):
        def list(self, _api: str, kind: str, _namespace: str = "", **_query: str) -> list[dict[str, Any]]:
            raise ClusterError(403, f"may not list {kind}")

    target = {"backend": "httproute", "route": "r", "stableService": "a", "canaryService": "b"}
    spec = read_spec({"release": "sha256:" + "1" * 64, "target": target, "steps": [{"setWeight": 5}]})
    ours = [{"kind": kind, "metadata": {"name": name}} for kind, name in (("HTTPRoute", "r"), ("Service", "a"))]
    found = preflight(spec, Closed(*ours), "live", "r", None)  # type: ignore[arg-type]  # it only reads
    assert {finding.code for finding in found} == {"ClusterRefuses", "NoService"}
    assert any("may not list CanaryRollout" in finding.message for finding in found)


@pytest.mark.parametrize(
    ("classes", "state", "said"),
    [
        ({"fast": "true", "slow": "false"}, "ok", "fast"),
        ({"slow": ""}, "note", "no default; there are: slow"),
        ({}, "note", "no default; there are: none"),
    ],
)
def test_a_storage_class_by_default_is_asked_for(classes: dict[str, str], state: str, said: str) -> None:
    objects = [
        {"kind": "StorageClass", "metadata": {"name": name, "annotations": {DEFAULT_CLASS: default}}}
        for name, default in classes.items()
    ]
    (line,) = CHECKS["storage class"](Store(*objects), "live")  # type: ignore[arg-type]  # it only reads
    assert (line.state, line.found) == (state, said)
    assert bool(line.cure) == (state != "ok")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes\nfit"}]}, "0/2 nodes fit"),
        ({"containerStatuses": [{"name": "m", "state": {"running": {}}}]}, ""),
        (
            {"containerStatuses": [{"name": "m", "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                                    "lastState": {"terminated": {"exitCode": 1, "message": "digest\n differs"}}}]},
            "container m ended with 1: digest differs",
        ),
        ({"initContainerStatuses": [{"name": "f", "state": {"terminated": {"exitCode": 2}}}]}, "container f ended with 2"),
        (
            {"containerStatuses": [{"name": "m", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
            "container m: ImagePullBackOff",
        ),
        ({}, ""),
    ],
)  # fmt: skip
def test_a_pod_that_does_not_start_is_quoted(status: dict[str, Any], said: str) -> None:
    assert trouble({"status": status}) == said
