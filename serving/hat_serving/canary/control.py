"""What a person does with rollouts: start, look, pause, resume, promote, abort. Each verb is idempotent and says what changed.

The controller acts on what stands in the resource; these verbs only write it. Not here: the command line
(hatstack.cli), pages.
"""

from __future__ import annotations

import datetime
from typing import Any

from hat_serving.canary.errors import ClusterError, InvalidRolloutError
from hat_serving.canary.kube import Manifest, Objects
from hat_serving.canary.spec import API_VERSION, KIND, RESUME_ANNOTATION, RolloutSpec, read_spec
from hat_serving.canary.state import State, from_status, to_status


def render(name: str, namespace: str, spec: RolloutSpec) -> Manifest:
    """The manifest of a rollout."""
    body = spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    body["target"]["backend"] = spec.target.backend
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"hatstack.dev/workspace": spec.workspace},
        },
        "spec": body,
    }


def start(kube: Objects, manifest: Manifest, *, dry_run: bool = False) -> bool:
    """Creates the rollout. False when the same one exists already; another spec under its name is refused."""
    metadata = manifest["metadata"]
    wanted = read_spec(manifest["spec"])
    found = kube.get(API_VERSION, KIND, metadata["name"], metadata["namespace"])
    if found is not None:
        wishes = {"paused": wanted.paused, "promote": wanted.promote, "abort": wanted.abort}
        if read_spec(found["spec"]).model_copy(update=wishes) == wanted:
            return False
        raise InvalidRolloutError(
            f"rollout {metadata['name']} exists with another spec", place=metadata["name"], cure="choose another name"
        )
    kube.create(manifest, dry_run=dry_run)
    return True


def status(kube: Objects, namespace: str, name: str) -> tuple[RolloutSpec, State, dict[str, Any]]:
    """(spec, state, the raw status)."""
    found = _must(kube, namespace, name)
    raw = found.get("status") or {}
    return read_spec(found["spec"]), from_status(raw), raw


def evidence(spec: RolloutSpec, state: State) -> dict[str, Any]:
    """What the registry keeps of a rollout: content of a `hatstack.evidence/1` of type canary.

    The last measured value of each metric stands at the top, where gates look for it, beside `verdict`: `success` once
    promoted, `failure` once aborted by a metric, `inconclusive` for every other end or while it runs.
    """
    values: dict[str, Any] = {}
    for window in state.windows:
        values |= window.metrics
    failed = state.phase == "Degraded" and state.reason == "AnalysisFailed"
    verdict = "success" if state.phase == "Healthy" else "failure" if failed else "inconclusive"
    written = to_status(state)
    return {
        **values,
        "verdict": verdict,
        "release": spec.release,
        "baseline": spec.baseline,
        "backend": spec.target.backend,
        "seconds": round(sum(window.ended - window.started for window in state.windows), 3),
        "largest_weight": max((window.weight for window in state.windows), default=0),
        "phase": state.phase,
        "reason": state.reason,
        "message": state.message,
        "windows": written["windows"],
        "metrics": [*written["background"], *written["analysis"]],
    }


def listing(kube: Objects, namespace: str = "") -> list[tuple[str, str, State]]:
    """(namespace, name, state) of all rollouts, the newest first."""
    found = kube.list(API_VERSION, KIND, namespace)
    found.sort(key=lambda entry: str(entry["metadata"]["creationTimestamp"]), reverse=True)
    return [
        (entry["metadata"]["namespace"], entry["metadata"]["name"], from_status(entry.get("status"))) for entry in found
    ]


def pause(kube: Objects, namespace: str, name: str, wanted: bool = True) -> bool:
    """Holds the present split, or lets it go on. False when nothing changed."""
    return _set(kube, namespace, name, "paused", wanted)


def abort(kube: Objects, namespace: str, name: str) -> bool:
    """Takes all traffic back to the stable version and the canary away. False when it was asked for before."""
    return _set(kube, namespace, name, "abort", True)


def promote(kube: Objects, namespace: str, name: str) -> bool:
    """Lets it go on to the end without waiting: pauses are skipped, measurements are not. False when it was so before."""
    return _set(kube, namespace, name, "promote", True)


def events(kube: Objects, namespace: str, name: str) -> list[dict[str, str]]:
    """What was told of a rollout, the oldest first: at, reason, note, type."""
    found = [
        entry
        for entry in kube.list("events.k8s.io/v1", "Event", namespace)
        if (entry.get("regarding") or {}).get("name") == name and (entry.get("regarding") or {}).get("kind") == KIND
    ]
    told = [
        {
            "at": str(entry.get("eventTime") or ""),
            "reason": str(entry.get("reason", "")),
            "note": str(entry.get("note", "")),
            "type": str(entry.get("type", "")),
        }
        for entry in found
    ]
    return sorted(told, key=lambda entry: entry["at"])


def resume(kube: Objects, namespace: str, name: str) -> str:
    """Lets a paused rollout go on: a pause step ends, an inconclusive analysis is measured again. Returns the token."""
    _must(kube, namespace, name)
    token = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
    kube.patch(API_VERSION, KIND, name, namespace, {"metadata": {"annotations": {RESUME_ANNOTATION: token}}})
    return token


def wish(kube: Objects, namespace: str, name: str, verb: str) -> bool:
    """One of pause, resume, promote, abort; False when nothing changed.

    Resuming takes a wish to pause back, and ends any other pause.
    """
    if verb == "resume":
        if bool(_must(kube, namespace, name)["spec"].get("paused")):
            return pause(kube, namespace, name, wanted=False)
        resume(kube, namespace, name)
        return True
    if verb not in ("pause", "promote", "abort"):
        raise InvalidRolloutError(
            f"{verb[:40]!r} is nothing that a rollout does", place=name, cure="pause, resume, promote or abort"
        )
    if verb == "pause":
        return pause(kube, namespace, name)
    return promote(kube, namespace, name) if verb == "promote" else abort(kube, namespace, name)


def _set(kube: Objects, namespace: str, name: str, field: str, wanted: bool) -> bool:
    if bool(_must(kube, namespace, name)["spec"].get(field)) == wanted:
        return False
    kube.patch(API_VERSION, KIND, name, namespace, {"spec": {field: wanted}})
    return True


def _must(kube: Objects, namespace: str, name: str) -> Manifest:
    found = kube.get(API_VERSION, KIND, name, namespace)
    if found is None:
        raise ClusterError(404, f"there is no rollout {name} in namespace {namespace}", place=f"{namespace}/{name}")
    return found
