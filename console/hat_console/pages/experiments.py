"""Experiments of the gateway: all of them, one with arms, intervals over time, sample ratio, guardrails and what to do.

Always holds: a page shows the gateway's own analysis; starting and stopping need the right to move pointers or to take them
back, and stand in the ledger with the account's name. Not here: assignment, statistics (hat_serving.experiment).
"""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from hat_console.pages import CurrentActor, CurrentRegistry, Form, Page
from hat_console.pages.desk import DEFAULT
from hat_registry import ledger
from hat_registry.accounts import Permission
from hat_registry.errors import NotFoundError
from hat_serving.experiment.model import SHOWN
from hat_serving.gateway.client import GatewayClient

router = APIRouter()
api = APIRouter(prefix="/api/v1", tags=["experiment"])
NEEDS: dict[str, Permission] = {"start": "move", "stop": "rollback"}
WIDE, HIGH, LEFT = 900, 220, 64
"""Of the plot, in its own units."""


def known_gateway(request: Request, actor: CurrentActor) -> GatewayClient | None:
    """The gateway that the console looks at; None when it was started without, and for other workspaces than its own."""
    found: GatewayClient | None = getattr(request.app.state, "gateway", None)
    return found if actor.workspace == getattr(request.app.state, "gateway_workspace", DEFAULT) else None


Known = Annotated[GatewayClient | None, Depends(known_gateway)]


def gateway_of(found: Known) -> GatewayClient:
    """The gateway. NotFoundError where there is none."""
    if found is None:
        raise NotFoundError("this console knows of no gateway", cure="python -m hat_console --gateway URL")
    return found


Found = Annotated[GatewayClient, Depends(gateway_of)]


@api.get("/experiments")
def list_experiments(actor: CurrentActor, found: Known) -> dict[str, Any]:
    """Experiments, the newest first; `connected` is false where the console knows of no gateway."""
    actor.require("read")
    items = found.get("/experiments")["items"] if found is not None else []
    return {"items": items, "connected": found is not None}


@api.get("/experiments/{name}")
def get_experiment(name: str, actor: CurrentActor, found: Found) -> dict[str, Any]:
    """One experiment with its results (docs/experiments.md)."""
    actor.require("read")
    told: dict[str, Any] = found.get(f"/experiments/{quote(name, safe='')}")
    return told


@api.post("/experiments/{name}/{verb}")
def act(
    name: str, verb: str, actor: CurrentActor, found: Found, registry: CurrentRegistry, reason: str = "", keep: str = ""
) -> dict[str, Any]:
    """Start or stop."""
    if verb not in NEEDS:
        raise NotFoundError(f"an experiment knows no {verb[:20]!r}", cure=f"one of: {', '.join(NEEDS)}")
    actor.require(NEEDS[verb])
    body = {"reason": reason or f"by {actor.account}", "keep": keep} if verb == "stop" else {}
    told: dict[str, Any] = found.post(f"/experiments/{quote(name, safe='')}/{verb}", body)
    with registry.database.write() as tx:
        data = {"experiment": name, "asked": verb, **body}
        ledger.append(tx, actor.workspace, actor.account, "experiment", f"experiment:{name}", data)
    return told


@router.get("/experiments")
def listing(request: Request, view: Page, actor: CurrentActor, found: Known) -> Response:
    """All experiments."""
    return view.page(request, "experiments.html", list_experiments(actor, found))


@router.get("/experiments/{name}")
def one(request: Request, name: str, view: Page, actor: CurrentActor, found: Found) -> Response:
    """One experiment."""
    body = get_experiment(name, actor, found)
    may = {verb: actor.may(needed) for verb, needed in NEEDS.items()}
    shown = {metric: {"scale": scale, "digits": digits} for metric, (scale, _, _, digits) in SHOWN.items()}
    return view.page(request, "experiment.html", body, allowed=may, shown=shown, plots=_plots(body))


@router.post("/experiments/{name}/{verb}")
def acted(name: str, verb: str, form: Form, actor: CurrentActor, found: Found, registry: CurrentRegistry) -> Response:
    """A button of the page."""
    act(name, verb, actor, found, registry, form.get("reason", ""), form.get("keep", ""))
    return RedirectResponse(f"/experiments/{name}", 303)


def _plots(body: dict[str, Any]) -> list[dict[str, Any]]:
    """For each arm its difference to the control over the looks: a band between the ends, a line, and the zero."""
    looks = body.get("looks") or []
    scale = SHOWN[body["spec"]["metric"]][0]
    made = []
    for arm in [contrast["arm"] for contrast in (body.get("result") or {}).get("contrasts", ())]:
        rows = [(look["at"], *(_scaled(value, scale) for value in look["arms"][arm][:3])) for look in looks]
        known = [row for row in rows if None not in row]
        if not known:
            continue
        low, high = min(0.0, *(row[2] for row in known)), max(0.0, *(row[3] for row in known))
        first, last = known[0][0], known[-1][0]

        def x(at: float, first: float = first, last: float = last) -> float:
            return LEFT + (WIDE - LEFT) * ((at - first) / (last - first) if last > first else 1.0)

        def y(value: float, low: float = low, high: float = high) -> float:
            return HIGH - (HIGH - 16) * ((value - low) / (high - low) if high > low else 0.5)

        upper = [f"{x(row[0]):.1f},{y(row[3]):.1f}" for row in known]
        lower = [f"{x(row[0]):.1f},{y(row[2]):.1f}" for row in reversed(known)]
        made.append(
            {
                "arm": arm,
                "band": " ".join(upper + lower),
                "line": " ".join(f"{x(row[0]):.1f},{y(row[1]):.1f}" for row in known),
                "last": {"x": f"{x(last):.1f}", "low": f"{y(known[-1][2]):.1f}", "high": f"{y(known[-1][3]):.1f}"},
                "zero": f"{y(0.0):.1f}",
                "ticks": [(f"{y(value):.1f}", f"{value:+.3g}") for value in sorted({low, 0.0, high})],
                "rows": known,
            }
        )
    return made


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale
