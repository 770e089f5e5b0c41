"""Helpers for tests of rollouts on the real cluster: objects, waits, and a load that counts every answer."""

from __future__ import annotations

import collections
import threading
from types import TracebackType
from typing import Any

from hat_serving.canary.kube import Kube, Manifest
from hat_serving.canary.spec import API_VERSION, KIND
from tests.cluster.helpers import answers, until


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


def until_phase(kube: Kube, namespace: str, *phases: str, name: str = "chat-v2", seconds: float = 60) -> dict[str, Any]:
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
