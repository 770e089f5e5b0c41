"""Helpers for tests of rollouts on the real cluster: objects, waits, and a load that counts every answer."""

from __future__ import annotations

import collections
import shutil
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from hat_serving.canary.errors import BackendError, ClusterError
from hat_serving.canary.kube import Kube, Manifest
from hat_serving.canary.spec import API_VERSION, KIND
from tests.cluster.helpers import answers, pod, state, until


def rollout(namespace: str, *, steps: list[dict[str, Any]], name: str = "chat-v2", **spec: Any) -> Manifest:
    """A rollout of v2 beside v1 of the InferenceService `chat`, by route weights unless `target` says otherwise."""
    canary = {"name": "v2", "storageUri": "s3://models/v2"}
    target = spec.pop("target", {"backend": "httproute", "inferenceService": "chat", "canary": canary})
    body = {"release": "chat-v2", "target": target, "steps": steps, "progressDeadline": "60s", **spec}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": body,
    }


def status(kube: Kube, namespace: str, name: str = "chat-v2") -> dict[str, Any]:
    """Status of a rollout, empty before the first look."""
    found = kube.get(API_VERSION, KIND, name, namespace)
    return (found or {}).get("status") or {}


def until_phase(
    kube: Kube, namespace: str, *phases: str, name: str = "chat-v2", seconds: float = 120
) -> dict[str, Any]:
    """Waits for a phase; when it never comes the assertion shows the last status."""
    last: dict[str, Any] = {}

    def there() -> bool:
        last.clear()
        last.update(status(kube, namespace, name))
        return last.get("phase") in phases

    try:
        until(there, f"phase {' or '.join(phases)}", seconds)
    except AssertionError as error:
        raise AssertionError(f"{error}; the status is {last}") from None
    return last


def written(verb: Callable[[], None]) -> bool:
    """Whether the write went through; else the driver tries again: KServe may have changed the object meanwhile."""
    try:
        verb()
    except BackendError:
        return False
    except ClusterError as error:
        if error.code != 409:
            raise
        return False
    return True


class Load:
    """Sends requests to a route without a pause, in a thread, and counts who answered. Use as `with`."""

    def __init__(self, gateway: str, host: str) -> None:
        self.good: collections.Counter[str] = collections.Counter()
        self.bad: collections.Counter[int] = collections.Counter()
        self._gateway, self._host = gateway, host
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            good, bad = answers(self._gateway, self._host, 10)
            self.good += good
            self.bad += bad
            self._stop.wait(0.05)


def start_prometheus(kube: Kube, namespace: str, config: str) -> str:
    """Debian's Prometheus as a pod with a Service; returns once it is ready."""
    program = shutil.which("prometheus")
    assert program, "prometheus is missing: install Debian's package prometheus"
    where = {"name": "prometheus", "namespace": namespace}
    kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": where, "data": {"prometheus.yml": config}})
    made = pod(
        "prometheus",
        namespace,
        [program, "--config.file=/config/prometheus.yml", "--storage.tsdb.path=/data", "--web.listen-address=:9090"],
        readinessProbe={"httpGet": {"path": "/-/ready", "port": 9090}},
        volumeMounts=[{"name": "config", "mountPath": "/config"}, {"name": "data", "mountPath": "/data"}],
        volumes=[{"name": "config", "configMap": {"name": "prometheus"}}, {"name": "data", "emptyDir": {}}],
    )
    made["metadata"]["labels"] = {"app": "prometheus"}
    kube.create(made)
    spec = {"selector": {"app": "prometheus"}, "ports": [{"port": 9090}]}
    kube.apply({"apiVersion": "v1", "kind": "Service", "metadata": where, "spec": spec})
    until(lambda: state(kube, namespace, "prometheus")["main"].get("ready"), "Prometheus is ready")
    return f"http://prometheus.{namespace}.svc:9090"
