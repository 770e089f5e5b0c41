"""`/releases`: model + harness + serving profile."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from starlette.concurrency import run_in_threadpool

from hat_registry import evidence, mlflow_link, pages, releases
from hat_registry.api.access import CurrentActor, CurrentRegistry
from hat_registry.errors import NotFoundError

router = APIRouter(tags=["release"])


@router.get("/releases")
async def list_releases(
    actor: CurrentActor,
    registry: CurrentRegistry,
    name: str | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    after: str = "",
) -> dict[str, Any]:
    """Releases, newest first; `next` continues the listing as `after`."""
    actor.require_some("read")
    only = actor.names("read")
    with registry.database.read() as tx:
        found = releases.listing(tx, actor.workspace, name=name, after=after, limit=limit, only=only)
    return {"items": found, "next": pages.cursor(found, "digest", limit)}


@router.post("/releases", status_code=201)
def add_release(
    body: releases.Release, actor: CurrentActor, registry: CurrentRegistry, response: Response
) -> dict[str, Any]:
    """Register a release; 200 with `changed: false` when it is known."""
    with registry.database.write() as tx:
        digest, changed = releases.add(tx, actor, body)
    response.status_code = 201 if changed else 200
    return {"digest": digest, "changed": changed}


@router.get("/releases/{digest}")
async def get_release(digest: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """One release with the evidence about it, and with where MLflow's aliases of its model stand beside the ledger."""
    actor.require_some("read")
    return await run_in_threadpool(_release, digest, actor, registry)


def _release(digest: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    with registry.database.read() as tx:
        found = releases.get(tx, actor.workspace, digest)
        if not actor.may("read", found.name):
            raise NotFoundError(f"no release {digest[:80]}", place=actor.workspace)
        pieces = evidence.of_subject(tx, actor.workspace, digest)
        wanted = mlflow_link.projection(tx, actor.workspace)
    beside = mlflow_link.beside(wanted, registry.mlflow, found.model)
    told = [{"digest": identity, **piece.model_dump(mode="json")} for identity, piece in pieces]
    return {"digest": digest, **found.model_dump(mode="json"), "evidence": told, "mlflow": beside}
