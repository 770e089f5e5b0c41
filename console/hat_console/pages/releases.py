"""Releases: list and one with its evidence."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from hat_console.pages import CurrentActor, CurrentRegistry, Form, Page
from hat_registry import releases
from hat_registry.api.routes import release as api
from hat_registry.api.routes.harness import Rollback
from hat_registry.errors import NotFoundError

router = APIRouter()


@router.get("/releases")
async def listing(
    request: Request, view: Page, actor: CurrentActor, registry: CurrentRegistry, name: str | None = None
) -> Response:
    """Releases, newest first."""
    return view.page(request, "releases.html", await api.list_releases(actor, registry, name, 100))


@router.get("/releases/{digest}")
async def one(request: Request, digest: str, view: Page, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """One release: model, harness, profile, evidence, where it stands and the ways back."""
    return view.page(request, "release.html", await api.get_release(digest, actor, registry))


@router.post("/releases/{digest}/rollback")
def roll_back(digest: str, form: Form, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """Take a pointer of the release's name back; then the page of where it stands."""
    with registry.database.read() as tx:
        name = releases.get(tx, actor.workspace, digest).name
    if not actor.may("read", name):
        raise NotFoundError(f"no release {digest[:80]}", place=actor.workspace)
    body = Rollback(reason=form.get("reason", ""), to=form.get("to") or None)
    moved = api.roll_back(name, form.get("pointer", ""), body, actor, registry)
    return RedirectResponse(f"/releases/{moved['digest']}", 303)
