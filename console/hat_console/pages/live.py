"""What is live and how it is doing: arms with weights, latency, goodput, cost per reply; rollouts that are on their way.

Always holds: a source that is not there is told as such, and one that fails hides nothing of the others. Not here: how
numbers come about (pulse), pointers and proposals (the overview's own resource).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from hat_console.pages import CurrentActor, Page
from hat_console.pages.canaries import list_canaries
from hat_console.pages.experiments import Known
from hat_console.pulse import Pulse
from hat_harness.digest import short
from hat_harness.errors import PlatformError
from hat_serving.canary.state import TERMINAL
from hat_serving.gateway.client import GatewayClient

router = APIRouter()
api = APIRouter(prefix="/api/v1", tags=["overview"])
MOST = 20
"""Deployments that are looked at."""
WIDE, HIGH = 120, 24
"""Of a sparkline, in its own units."""
UNKNOWN: dict[str, Any] = {
    "turns": 0, "safe": 0, "p50_s": None, "p95_s": None, "goodput_per_s": None, "tokens_per_reply": None,
    "cost_per_reply": None, "p95_line": [],
}  # fmt: skip


@api.get("/live")
def get_live(request: Request, actor: CurrentActor, gateway: Known) -> dict[str, Any]:
    """Arms of every deployment with what their last minutes were like, and the rollouts that have not ended."""
    actor.require("read")
    pulse: Pulse | None = getattr(request.app.state, "pulse", None) if gateway is not None else None
    numbers: dict[str, Any] = pulse.told() if pulse is not None else {"arms": [], "window_s": 0, "priced": False}
    trouble = numbers.pop("trouble", "")
    known = {(one["release"], one["arm"], one["harness"]): one for one in numbers.pop("arms")}
    deployments: list[dict[str, Any]] = []
    if gateway is not None:
        try:
            deployments = [_deployment(gateway, name, known) for name in gateway.get("/deployments")["items"][:MOST]]
        except PlatformError as error:
            trouble = error.message
    rollouts = []
    try:
        rollouts = [one for one in list_canaries(request, actor)["items"] if one["phase"] not in TERMINAL]
    except PlatformError as error:
        trouble = trouble or error.message
    return {
        "connected": gateway is not None,
        "trouble": trouble,
        **numbers,
        "deployments": deployments,
        "before": [one for one in known.values() if not one.get("listed")],
        "canaries": rollouts,
    }


@router.get("/live")
def page(request: Request, view: Page, actor: CurrentActor, gateway: Known) -> Response:
    """The part of the overview that changes by itself; a page of its own without htmx."""
    template = "live_arms.html" if request.headers.get("hx-request") else "live.html"
    return view.page(request, template, get_live(request, actor, gateway), spark=spark)


def _deployment(gateway: GatewayClient, name: str, known: dict[tuple[str, str, str], dict[str, Any]]) -> dict[str, Any]:
    told = gateway.get(f"/deployments/{quote(name, safe='')}")
    effective = told.get("effective")
    arms = []
    for arm in told["arms"]:
        numbers = known.get((short(arm["release"]), arm["name"], short(arm["harness"])))
        if numbers is not None:
            numbers["listed"] = True
        part = {key: value for key, value in (numbers or UNKNOWN).items() if key in UNKNOWN}
        own = {key: arm[key] for key in ("name", "weight", "release", "harness", "aborted", "engine_up")}
        arms.append({**own, "effective": None if effective is None else effective.get(arm["name"], 0), **part})
    return {"name": name, "arms": arms, "waits_for": told["waits_for"], "trouble": told["trouble"]}


def spark(line: list[float | None]) -> str:
    """The points of a sparkline; "" where there are fewer than two."""
    there = [(index, value) for index, value in enumerate(line) if value is not None]
    if len(there) < 2:
        return ""
    top = max(value for _, value in there) or 1.0
    span = max(1, len(line) - 1)
    return " ".join(f"{WIDE * index / span:.1f},{HIGH - (HIGH - 2) * value / top:.1f}" for index, value in there)
