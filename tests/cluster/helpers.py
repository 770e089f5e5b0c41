"""Helpers of the cluster tests: waiting for a fact, counting answers through the gateway, objects to apply."""

from __future__ import annotations

import collections
import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

import urllib3

from hat_serving.canary.kube import Kube, Manifest

T = TypeVar("T")
KSERVE = "serving.kserve.io/v1beta1"
GATEWAY_API = "gateway.networking.k8s.io/v1"


def until(fact: Callable[[], T | None], what: str, seconds: float = 120.0) -> T:
    """Asks until the answer is true and returns it. The limit only ends a wait that is lost."""
    deadline = time.monotonic() + seconds
    while not (answer := fact()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for: {what}"
        time.sleep(0.1)
    return answer


def pod(name: str, namespace: str, command: list[str], **spec: Any) -> Manifest:
    """A pod with one container `main`; keywords of the container first, then of the pod's spec."""
    keys = (
        "env",
        "envFrom",
        "volumeMounts",
        "readinessProbe",
        "livenessProbe",
        "startupProbe",
        "securityContext",
        "lifecycle",
    )
    container = {"name": "main", "image": "none", "command": command} | {k: spec.pop(k) for k in keys if k in spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5, **spec},
    }


def state(kube: Kube, namespace: str, name: str) -> dict[str, Any]:
    """The pod's status; its container's status under `main`."""
    found = kube.get("v1", "Pod", name, namespace)
    assert found is not None
    status: dict[str, Any] = found.get("status", {})
    statuses = status.get("containerStatuses") or [{}]
    return status | {"main": statuses[0]}


def answers(
    gateway: str, host: str, count: int, **headers: str
) -> tuple[collections.Counter[str], collections.Counter[int]]:
    """Sends `count` chat requests to a route: how often each model answered, and how often which error came."""
    good: collections.Counter[str] = collections.Counter()
    bad: collections.Counter[int] = collections.Counter()
    with urllib3.PoolManager(num_pools=1) as pool:
        for _ in range(count):
            answer = pool.request(
                "POST",
                f"{gateway}/v1/chat/completions",
                body=b"{}",
                headers={"Host": host, **headers},
                timeout=10,
                retries=False,
            )
            if answer.status == 200:
                good[json.loads(answer.data)["source"]] += 1
            else:
                bad[answer.status] += 1
    return good, bad


def exact(gateway: str, host: str, wanted: dict[str, int]) -> bool:
    """Whether as many requests are split exactly so.

    Three tries: the gateway counts anew when an endpoint comes or goes while they are sent.
    """
    for _ in range(3):
        good, bad = answers(gateway, host, sum(wanted.values()))
        assert not bad, bad
        if good == wanted:
            return True
    return False


def runtime(name: str = "test-sglang", gpus: int = 1) -> Manifest:
    """A ClusterServingRuntime with the real command line of SGLang; the stand-in answers."""
    container = {
        "name": "kserve-container",
        "image": "lmsysorg/sglang:v0.5.19",
        "command": ["python3", "-m", "sglang.launch_server"],
        "args": [
            "--model-path",
            "/mnt/models",
            "--host",
            "0.0.0.0",
            "--port",
            "8080",
            "--served-model-name",
            "{{.Name}}",
        ],
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8080}},
        # The gateway hears of a leaving pod a moment later than the pod itself.
        "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
        "resources": {
            "requests": {"cpu": "1", "memory": "2Gi", "nvidia.com/gpu": str(gpus)},
            "limits": {"nvidia.com/gpu": str(gpus)},
        },
    }
    spec = {
        # KServe refuses two runtimes with the same priority for a format; the others are named by their services.
        "supportedModelFormats": [
            {"name": "sglang", "version": "1"} | ({"autoSelect": True, "priority": 1} if name == "test-sglang" else {})
        ],
        "protocolVersions": ["v1", "v2"],
        "containers": [container],
    }
    return {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "ClusterServingRuntime",
        "metadata": {"name": name},
        "spec": spec,
    }


def service(
    namespace: str,
    *,
    name: str = "chat",
    stable: str = "v1",
    uri: str = "s3://models/v1",
    replicas: int = 2,
    serving: str = "test-sglang",
    canaries: tuple[tuple[str, str, int, int], ...] = (),
) -> Manifest:
    """An InferenceService; a canary is (name, model URI, percent, replicas)."""

    def model(source: str) -> dict[str, Any]:
        return {"name": "", "modelFormat": {"name": "sglang"}, "runtime": serving, "storageUri": source}

    spec: dict[str, Any] = {
        "predictor": {"name": stable, "minReplicas": replicas, "maxReplicas": replicas, "model": model(uri)}
    }
    if canaries:
        spec["canary"] = [
            {"trafficPercent": percent, "predictor": {"name": label, "minReplicas": count, "model": model(source)}}
            for label, source, percent, count in canaries
        ]
    return {
        "apiVersion": KSERVE,
        "kind": "InferenceService",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"serving.kserve.io/deploymentMode": "Standard"},
        },
        "spec": spec,
    }


def condition(found: Manifest | None, kind: str) -> bool:
    """Whether an object's condition is True."""
    conditions = (found or {}).get("status", {}).get("conditions") or []
    return any(entry["type"] == kind and entry["status"] == "True" for entry in conditions)


def until_serving(kube: Kube, namespace: str, *, name: str = "chat", predictor: str = "v1", replicas: int = 2) -> None:
    """Waits until an InferenceService is ready with all its replicas;

    Its autoscaler adds the second one a second later.
    """

    def serving() -> bool:
        deployment = kube.get("apps/v1", "Deployment", f"{name}-{predictor}-predictor", namespace) or {}
        ready = condition(kube.get(KSERVE, "InferenceService", name, namespace), "Ready")
        return ready and int(deployment.get("status", {}).get("availableReplicas", 0)) == replicas

    until(serving, f"{name} serves with {replicas} replicas")
