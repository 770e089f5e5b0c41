"""Proposals: list, one with its gate table, and what one can do about it."""

from __future__ import annotations

from typing import Literal, cast

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from hat_console.pages import CurrentActor, CurrentRegistry, Form, Page
from hat_registry.api.routes import harness as harness_api
from hat_registry.api.routes import proposal as api
from hat_registry.proposals import State

router = APIRouter()


@router.get("/proposals")
async def listing(
    request: Request, view: Page, actor: CurrentActor, registry: CurrentRegistry, state: State | None = None
) -> Response:
    """Proposals, newest first."""
    return view.page(request, "proposals.html", await api.list_proposals(actor, registry, state, 100), state=state)


@router.post("/proposals")
def propose(form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Open a proposal from a version's page."""
    body = api.NewProposal(
        name=form.get("name", ""),
        pointer=form.get("pointer", "production"),
        digest=form.get("digest", ""),
        reason=form.get("reason", ""),
        urgent=form.get("urgent") == "on",
    )
    made = api.open_proposal(body, actor, registry)
    return RedirectResponse(f"/proposals/{made['id']}", 303)


@router.get("/proposals/{identity}")
async def one(request: Request, identity: str, view: Page, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """What changes, gates beside thresholds, approvals, and the consequence of a click."""
    body = await api.get_proposal(identity, actor, registry)
    changes = []
    if body["from_digest"] and body["kind"] == "harness":
        changes = harness_api.get_diff(body["name"], actor, registry, body["from_digest"], body["to_digest"])["changes"]
    return view.page(request, "proposal.html", body, changes=changes)


@router.post("/proposals/{identity}/gates")
def gates(identity: str, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Run the gates."""
    api.run_gates(identity, actor, registry)
    return RedirectResponse(f"/proposals/{identity}", 303)


@router.post("/proposals/{identity}/decision")
def decide(identity: str, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Approve or reject."""
    verdict = cast(Literal["approve", "reject"], form.get("verdict", ""))
    api.decide(identity, api.Decision(verdict=verdict, comment=form.get("comment", "")), actor, registry)
    return RedirectResponse(f"/proposals/{identity}", 303)


@router.post("/proposals/{identity}/promote")
def promote(identity: str, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Move the pointer."""
    api.promote(identity, actor, registry)
    return RedirectResponse(f"/proposals/{identity}", 303)


@router.post("/harnesses/{name}/pointers/{pointer}/rollback")
def roll_back(name: str, pointer: str, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Put a pointer back."""
    body = harness_api.Rollback(reason=form.get("reason", ""), to=form.get("to") or None)
    harness_api.roll_back(name, pointer, body, actor, registry)
    return RedirectResponse(f"/harnesses/{name}", 303)
