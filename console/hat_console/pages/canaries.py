"""Canary rollouts: all of them, one with its steps, weights, measurements and events, and what one can do about it.

Always holds: a page shows what the controller wrote down, never a wish of its own; an action is a wish in the resource
and a row of the ledger with the account's name; rollouts of another workspace do not exist here. Not here: decisions
(hat_serving.canary.machine), where rollouts lie (a cluster, or a folder).
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field

from hat_console.pages import CurrentActor, CurrentRegistry, Form, Page
from hat_registry import canaries
from hat_registry.accounts import Actor, Permission
from hat_registry.errors import ConflictError, NotFoundError
from hat_serving.canary import control
from hat_serving.canary.folder import Folder
from hat_serving.canary.kube import Kube, Objects
from hat_serving.canary.spec import API_VERSION, KIND, Metric, RolloutSpec, read_spec
from hat_serving.canary.state import TERMINAL, State, Tally, from_status

router = APIRouter()
api = APIRouter(prefix="/api/v1", tags=["canary"])
NEEDS: dict[str, Permission] = {"pause": "rollback", "abort": "rollback", "resume": "move", "promote": "move"}
"""What an account must be allowed: whoever may take a pointer back may hold and abort, whoever may move it may start one
and go on."""
MOST_EVENTS = 50


def rollouts_of(request: Request) -> Objects:
    """Where the console's rollouts are. NotFoundError when it was started without."""
    found: Objects | None = getattr(request.app.state, "rollouts", None)
    if found is None:
        raise NotFoundError("this console knows of no rollouts", cure="python -m hat_console --rollouts cluster|FOLDER")
    return found


def connect(where: str) -> Objects:
    """`cluster`: the pod's own, or the kubeconfig's; else a folder."""
    if where != "cluster":
        return Folder(Path(where))
    return Kube.in_cluster() if "KUBERNETES_SERVICE_HOST" in os.environ else Kube.from_kubeconfig()


Found = Annotated[Objects, Depends(rollouts_of)]


@api.get("/canaries")
def list_canaries(request: Request, actor: CurrentActor) -> dict[str, Any]:
    """Rollouts of the workspace, the newest first; `connected` is false where the console knows of none."""
    actor.require("read")
    found: Objects | None = getattr(request.app.state, "rollouts", None)
    items = [] if found is None else [_line(*one) for one in _all(found, actor)]
    return {"items": items, "connected": found is not None}


@api.get("/canaries/{namespace}/{name}")
def get_canary(namespace: str, name: str, actor: CurrentActor, found: Found) -> dict[str, Any]:
    """One rollout: steps, weights, measurements beside their thresholds, windows, conditions, events."""
    actor.require("read")
    manifest, spec, state = _one(found, actor, namespace, name)
    told = control.events(found, namespace, name)[-MOST_EVENTS:]
    return {
        **_line(manifest, spec, state),
        "baseline": spec.baseline,
        "backend": spec.target.backend,
        "started_at": _time(state.started_at),
        "clock_started": _time(state.clock_started),
        "finished_at": _time(state.finished_at),
        "paused": spec.paused,
        "promote": spec.promote,
        "abort": spec.abort,
        "timeline": _timeline(spec, state),
        "metrics": [
            *(_metric(spec, tally, watched=False) for tally in state.analysis),
            *(_metric(spec, tally, watched=True) for tally in state.background),
        ],
        "windows": [
            {
                **window.model_dump(mode="json"),
                "what": _step(spec, window.step),
                "seconds": round(window.ended - window.started, 3),
            }
            for window in state.windows
        ],
        "conditions": (manifest.get("status") or {}).get("conditions") or [],
        "events": told[::-1],
    }


class Wanted(BaseModel):
    """A rollout to start."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    namespace: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)
    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)
    spec: dict[str, Any]
    """A CanaryRollout's spec; its workspace is the account's."""


@api.post("/canaries")
def start(wanted: Wanted, actor: CurrentActor, found: Found, registry: CurrentRegistry) -> dict[str, Any]:
    """Start a rollout; `changed` is false when the same one exists, another one under its name is a conflict."""
    actor.require("move")
    spec = read_spec({**wanted.spec, "workspace": actor.workspace})
    with registry.database.write() as tx:
        changed = control.start(found, control.render(wanted.name, wanted.namespace, spec))
        if changed:
            canaries.asked(tx, actor, wanted.namespace, wanted.name, "start")
    return {"name": wanted.name, "namespace": wanted.namespace, "asked": "start", "changed": changed}


@api.post("/canaries/{namespace}/{name}/{verb}")
def act(
    namespace: str, name: str, verb: str, actor: CurrentActor, found: Found, registry: CurrentRegistry
) -> dict[str, Any]:
    """Pause, resume, promote or abort; `changed` is false when it was asked for before."""
    if verb not in NEEDS:
        raise NotFoundError(f"a rollout knows no {verb[:20]!r}", cure=f"one of: {', '.join(NEEDS)}")
    actor.require(NEEDS[verb])
    _, _, state = _one(found, actor, namespace, name)
    if state.phase in TERMINAL:
        raise ConflictError(f"{name} has ended: {state.phase}", place=f"{namespace}/{name}", cure="start another")
    with registry.database.write() as tx:
        changed = control.wish(found, namespace, name, verb)
        if changed:
            canaries.asked(tx, actor, namespace, name, verb)
    return {"name": name, "namespace": namespace, "asked": verb, "changed": changed}


@router.get("/canaries")
def listing(request: Request, view: Page, actor: CurrentActor) -> Response:
    """All rollouts."""
    return view.page(request, "canaries.html", list_canaries(request, actor))


@router.get("/canaries/{namespace}/{name}")
def one(request: Request, namespace: str, name: str, view: Page, actor: CurrentActor, found: Found) -> Response:
    """One rollout."""
    may = {verb: actor.may(needed) for verb, needed in NEEDS.items()}
    return view.page(request, "canary.html", get_canary(namespace, name, actor, found), allowed=may)


@router.post("/canaries/{namespace}/{name}/{verb}")
def acted(
    namespace: str, name: str, verb: str, form: Form, actor: CurrentActor, found: Found, registry: CurrentRegistry
) -> Response:
    """A button of the page."""
    act(namespace, name, verb, actor, found, registry)
    return RedirectResponse(f"/canaries/{namespace}/{name}", 303)


def _all(found: Objects, actor: Actor) -> list[tuple[dict[str, Any], RolloutSpec, State]]:
    entries = found.list(API_VERSION, KIND)
    entries.sort(key=lambda entry: str(entry["metadata"]["creationTimestamp"]), reverse=True)
    read = [(entry, read_spec(entry["spec"]), from_status(entry.get("status"))) for entry in entries]
    return [one for one in read if one[1].workspace == actor.workspace]


def _one(found: Objects, actor: Actor, namespace: str, name: str) -> tuple[dict[str, Any], RolloutSpec, State]:
    manifest = found.get(API_VERSION, KIND, name, namespace)
    spec = read_spec(manifest["spec"]) if manifest else None
    if manifest is None or spec is None or spec.workspace != actor.workspace:
        raise NotFoundError(f"there is no rollout {name[:80]}", place=namespace[:80], cure="/canaries lists them")
    return manifest, spec, from_status(manifest.get("status"))


def _line(manifest: dict[str, Any], spec: RolloutSpec, state: State) -> dict[str, Any]:
    metadata = manifest["metadata"]
    return {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "release": spec.release,
        "created_at": metadata["creationTimestamp"],
        "phase": state.phase,
        "step": state.step,
        "steps": len(spec.steps),
        "what": _step(spec, state.step),
        "desired_weight": state.desired_weight,
        "effective_weight": state.effective_weight,
        "reason": state.reason,
        "message": state.message,
        "clock_started": _time(state.clock_started),
    }


def _step(spec: RolloutSpec, step: int) -> str:
    return spec.steps[step].describe() if step < len(spec.steps) else "promotion"


def _timeline(spec: RolloutSpec, state: State) -> list[dict[str, Any]]:
    """Every step with the weight that holds in it and how far the rollout is; the last one is the promotion."""

    def how(number: int) -> str:
        if state.phase == "Healthy" or number < state.step:
            return "done"
        if number > state.step or state.phase == "Pending":
            return "ahead"
        return "stopped" if state.phase in ("Degraded", "Aborting") else "now"

    return [
        {"what": _step(spec, number), "weight": spec.weight_at(number), "state": how(number)}
        for number in range(len(spec.steps) + 1)
    ]


def _metric(spec: RolloutSpec, tally: Tally, *, watched: bool) -> dict[str, Any]:
    """`watched`: through all steps, not for the present one alone."""
    return {
        "name": tally.name,
        "watched": watched,
        "outcome": tally.outcome or "open",
        "value": tally.value,
        "threshold": _threshold(spec.metric(tally.name)),
        "successes": tally.successes,
        "failures": tally.failures,
        "inconclusives": tally.inconclusives,
        "errors": tally.errors,
        "message": tally.message,
    }


def _threshold(metric: Metric) -> str:
    """What the value is held against, in a few signs."""
    if metric.share is not None:
        return f"± {metric.share.margin:g}"
    if metric.sample_ratio is not None:
        return f"p ≥ {metric.sample_ratio.alpha:g}"
    kind = metric.threshold or metric.evidence
    assert kind is not None
    rule = kind.success
    parts = [f"≥ {rule.at_least:g}"] if rule.at_least is not None else []
    return ", ".join(parts + ([f"≤ {rule.at_most:g}"] if rule.at_most is not None else []))


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
