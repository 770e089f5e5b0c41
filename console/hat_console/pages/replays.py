"""A trace played again through the gateway, against the version it ran under or another one, old beside new.

Always holds: the gateway's own session code plays it; nothing of the replay is kept, and the ledger says that it was made,
by whom and with what, and never whose words were played. Not here: playing (hat_serving.gateway.replays), telling
(hat_console.replayed).
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from hat_console import replayed
from hat_console.pages import CurrentActor, CurrentRegistry, Form, Page
from hat_console.pages.experiments import Known
from hat_console.pages.traces import Open, Where
from hat_harness.trace import Trace
from hat_registry import ledger
from hat_registry.errors import NotFoundError

router = APIRouter()
api = APIRouter(prefix="/api/v1", tags=["trace"])


class Replay(BaseModel):
    """What a trace is played with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    harness: str = Field(default="", max_length=128, pattern=r"^(|sha256:[0-9a-f]{64}|[a-z0-9][a-z0-9_.-]*)$")
    """Digest of a version of the trace's harness, or a pointer of it; "" is the version that it ran under."""
    deployment: str = Field(default="", max_length=128)
    arm: str = Field(default="", max_length=64)
    """Arm of that deployment whose engine answers; without a deployment the gateway's primary engine."""
    upto: int = Field(default=0, ge=0, le=1_000_000)
    """The last turn that is played; 0: the newest. At most ten turns are."""


@api.post("/traces/{ident:path}/replay")
def replay(held: Open, body: Replay, actor: CurrentActor, gateway: Known, registry: CurrentRegistry) -> dict[str, Any]:
    """The trace's turns played again: `turns` with `before` and `after`, `under` the digest they were played under."""
    trace, where = held.trace, held.where
    if gateway is None:
        raise NotFoundError(
            "a replay needs a gateway, and this console knows of none",
            place="traces",
            cure="hat up starts one; or python -m hat_console --gateway URL --gateway-token FILE",
        )
    chosen = f"{trace.harness_name}@{body.harness}" if body.harness else ""
    asked = {"trace": trace.model_dump(mode="json"), "harness": chosen, **body.model_dump(exclude={"harness"})}
    told = gateway.post("/replays", asked)
    new = Trace.model_validate(told["trace"])
    _write_down(
        registry, actor, trace, where, {"source": held.known["source"], "under": told["harness"], "arm": body.arm}
    )
    return {
        "id": held.ident,
        "run": where.run,
        "step": where.step,
        "harness_name": trace.harness_name,
        "harness": _under(trace, told["first"]),
        "under": told["harness"],
        "deployment": body.deployment,
        "arm": body.arm,
        "whole": told["whole"],
        "seconds": told["seconds"],
        "turns": replayed.beside(trace, new, told["first"], body.upto),
    }


@router.post("/traces/{ident:path}/replay")
def page(
    request: Request, form: Form, held: Open, view: Page, actor: CurrentActor, gateway: Known, registry: CurrentRegistry
) -> Response:
    """The replay that the trace's page asks for."""
    deployment, _, arm = form.get("answers", "").partition("/")
    asked = Replay.model_validate(
        {"harness": form.get("harness", ""), "deployment": deployment, "arm": arm, "upto": form.get("upto") or 0}
    )
    return view.page(request, "replay.html", replay(held, asked, actor, gateway, registry), here=held.page)


def _under(trace: Trace, turn: int) -> str:
    """Digest of the harness that turn `turn` ran under."""
    changes = [entry for entry in trace.entries if entry.kind == "note" and entry.type == "harness"]
    return next((str(one.data["digest"]) for one in reversed(changes) if one.turn < turn), trace.harness)


def _write_down(
    registry: CurrentRegistry, actor: CurrentActor, trace: Trace, where: Where, data: dict[str, Any]
) -> None:
    """A row of the ledger. A conversation's id stays out of it: it is a pseudonym, and rows are for ever."""
    placed = {"run": where.run, "step": where.step, "suite": where.suite} if where.run else {}
    told = {"asked": "replay", "harness": trace.harness, **placed, **data}
    with registry.database.write() as tx:
        ledger.append(tx, actor.workspace, actor.account, "trace", f"harness:{trace.harness_name}", told)
