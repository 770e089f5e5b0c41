"""Releases: list and one with its evidence."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from hat_console.pages import CurrentActor, CurrentRegistry, Page
from hat_registry.api.routes import release as api

router = APIRouter()


@router.get("/releases")
async def listing(
    request: Request, view: Page, actor: CurrentActor, registry: CurrentRegistry, name: str | None = None
) -> Response:
    """Releases, newest first."""
    return view.page(request, "releases.html", await api.list_releases(actor, registry, name, 100))


@router.get("/releases/{digest}")
async def one(request: Request, digest: str, view: Page, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """One release: model, harness, profile, evidence."""
    return view.page(request, "release.html", await api.get_release(digest, actor, registry))
