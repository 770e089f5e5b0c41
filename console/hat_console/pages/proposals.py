"""Proposals: list, one with its gate table, and what one can do about it."""

from __future__ import annotations

from typing import Literal, cast

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from hat_console.pages import Body, CurrentActor, CurrentRegistry, Form, Page
from hat_registry import comments, harnesses, pointers, releases
from hat_registry.accounts import Actor
from hat_registry.api.routes import harness as harness_api
from hat_registry.api.routes import proposal as api
from hat_registry.errors import InvalidError, RegistryError
from hat_registry.pointers import Kind
from hat_registry.proposals import State
from hat_registry.registry import Registry
from hat_registry.ways_back import PARTS

router = APIRouter()
SIDES = ("from_digest", "to_digest")


@router.get("/proposals")
async def listing(
    request: Request, view: Page, actor: CurrentActor, registry: CurrentRegistry, state: State | None = None
) -> Response:
    """Proposals, newest first."""
    return view.page(request, "proposals.html", await api.list_proposals(actor, registry, state, 100), state=state)


@router.post("/proposals")
def propose(form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Open a proposal from the page of a version or a release."""
    body = api.NewProposal(
        kind=cast(Kind, form.get("kind", "harness")),
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
    changes: list[Body] | None = []
    if body["from_digest"]:
        changes = await run_in_threadpool(_changes, body, actor, registry)
    with registry.database.read() as tx:
        found = {side: harnesses.find(tx, actor.workspace, body["name"], body[side] or "") for side in SIDES}
        stands = pointers.of_name(tx, actor.workspace, body["kind"], body["name"])
    numbers = {side: version.number for side, version in found.items() if version and body["kind"] == "harness"}
    since = next((one.moved_at for one in stands if one.pointer == body["pointer"]), None)
    since = since if body["state"] in ("open", "approved") else None
    return view.page(request, "proposal.html", body, changes=changes, numbers=numbers, since=since)


def _changes(body: Body, actor: Actor, registry: Registry) -> list[Body] | None:
    """What the move would change; None while the contents are out of reach."""
    old, new = body["from_digest"], body["to_digest"]
    try:
        if body["kind"] == "harness":
            told: list[Body] = harness_api.get_diff(body["name"], actor, registry, old, new)["changes"]
            return told
        if body["kind"] == "release":
            with registry.database.read() as tx:
                before, after = (releases.get(tx, actor.workspace, digest).model_dump() for digest in (old, new))
            parts = [part for part in PARTS if before[part] != after[part]]
            return [{"kind": "changed", "path": part, "before": before[part], "after": after[part]} for part in parts]
    except RegistryError:
        return None
    return []


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


@router.post("/proposals/{identity}/comments")
def comment(identity: str, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Say something in the discussion."""
    text = form.get("text", "").strip()
    if not 0 < len(text) <= comments.LONGEST:
        raise InvalidError(f"a comment has 1 to {comments.LONGEST} characters", cure="write it again, shorter")
    api.add_comment(identity, api.NewComment(text=text), actor, registry)
    return RedirectResponse(f"/proposals/{identity}#discussion", 303)


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
