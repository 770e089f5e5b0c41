"""A pod's status from the states of its containers. Pure: no clock, no network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tests.cluster.controlplane.api import Manifest


class Shown(Protocol):
    """What of a container the status shows."""

    spec: Manifest
    state: Manifest
    last_state: Manifest
    restarts: int
    started: bool
    ready: bool


def container_status(container: Shown, *, init: bool) -> Manifest:
    """One entry of `containerStatuses`. A finished init container counts as ready, as it does on a node."""
    ended = container.state.get("terminated")
    done = init and ended is not None and ended["exitCode"] == 0
    return {
        "name": container.spec["name"],
        "image": container.spec["image"],
        "imageID": container.spec["image"],
        "ready": container.ready or done,
        "started": container.started,
        "restartCount": container.restarts,
        "state": container.state,
        "lastState": container.last_state,
    }


def pod_status(
    address: str,
    host: str,
    begun: str,
    inits: Sequence[Shown],
    mains: Sequence[Shown],
    *,
    phase: str,
    initialized: bool,
) -> Manifest:
    """Everything but `lastTransitionTime`, which `with_times` adds."""
    ready = phase == "Running" and all(entry.ready for entry in mains)
    finished = phase == "Succeeded"
    reason = "PodCompleted" if finished else "ContainersNotReady"
    conditions = [
        _condition("PodReadyToStartContainers", phase not in ("Succeeded", "Failed"), ""),
        _condition("Initialized", initialized, "" if initialized else "ContainersNotInitialized"),
        _condition("ContainersReady", ready, "" if ready else reason),
        _condition("Ready", ready, "" if ready else reason),
    ]
    return {
        "phase": phase,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "startTime": begun,
        "initContainerStatuses": [container_status(entry, init=True) for entry in inits],
        "containerStatuses": [container_status(entry, init=False) for entry in mains],
        "conditions": conditions,
    }


def with_times(status: Manifest, before: Manifest, moment: str) -> Manifest:
    """Gives each condition the time of its last change: the earlier one's when its status is still the same."""
    earlier = {entry["type"]: entry for entry in before.get("conditions") or []}
    for entry in status["conditions"]:
        old = earlier.get(entry["type"])
        same = old is not None and old["status"] == entry["status"]
        entry["lastTransitionTime"] = old["lastTransitionTime"] if same and old else moment
    return status


def final_phase(codes: Sequence[int]) -> str:
    """The phase of a pod whose containers have all ended for good."""
    return "Succeeded" if all(code == 0 for code in codes) else "Failed"


def _condition(kind: str, met: bool, reason: str) -> dict[str, Any]:
    return {"type": kind, "status": "True" if met else "False", **({"reason": reason} if reason else {})}
