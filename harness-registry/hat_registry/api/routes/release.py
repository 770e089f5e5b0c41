"""`/releases`: model + harness + serving profile."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from starlette.concurrency import run_in_threadpool

from hat_registry import evidence, mlflow_link, pages, pointers, releases, ways_back
from hat_registry.api.access import CurrentActor, CurrentRegistry
from hat_registry.api.routes.harness import Rollback
from hat_registry.errors import NotFoundError
from hat_registry.registry import plain

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


@router.get("/releases/{name}/pointers/{pointer}")
async def get_pointer(name: str, pointer: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Where a pointer of releases stands, with the release's parts and a name of its harness: what serving it needs."""
    actor.require("read", name)
    with registry.database.read() as tx:
        position = pointers.resolve(tx, actor.workspace, "release", name, pointer)
        found = releases.get(tx, actor.workspace, position.digest)
        harness = releases.harness_name(tx, actor.workspace, found.harness)
    parts = {"model": found.model, "harness": found.harness, "harness_name": harness, "profile": found.profile}
    return {**plain(position), **parts}


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
        stands = pointers.of_name(tx, actor.workspace, "release", found.name)
        places = [
            {**plain(one), "ways": [plain(way) for way in ways_back.of(tx, actor.workspace, one)]} for one in stands
        ]
    beside = mlflow_link.beside(wanted, registry.mlflow, found.model)
    told = [{"digest": identity, **piece.model_dump(mode="json")} for identity, piece in pieces]
    own = found.model_dump(mode="json")
    return {"digest": digest, **own, "evidence": told, "mlflow": beside, "pointers": places}


@router.post("/releases/{name}/pointers/{pointer}/rollback")
def roll_back(
    name: str,
    pointer: str,
    body: Rollback,
    actor: CurrentActor,
    registry: CurrentRegistry,
    idempotency_key: Annotated[str | None, Header(max_length=128)] = None,
) -> dict[str, Any]:
    """Back to the previous or a named past position: one action, a new ledger row."""

    def run(tx: Any) -> tuple[int, Any]:
        return 200, plain(pointers.rollback(tx, actor, "release", name, pointer, to=body.to, reason=body.reason))

    request = ["rollback", "release", name, pointer, body.model_dump()]
    moved: dict[str, Any] = registry.once(actor, idempotency_key, request, run)[1]
    return moved
