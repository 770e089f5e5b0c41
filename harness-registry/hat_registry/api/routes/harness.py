"""`/harnesses`: push, list, get, download, diff, lineage, pointers."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from hat_harness.diff import diff as semantic_diff
from hat_harness.render import parts_cost
from hat_harness.segments import estimate
from hat_harness.spec import Harness
from hat_registry import archive, harnesses, pointers, releases, ways_back
from hat_registry.accounts import Actor
from hat_registry.api.access import CurrentActor, CurrentRegistry
from hat_registry.api.routes.overview import SAMPLE_ROOM
from hat_registry.errors import NotFoundError
from hat_registry.registry import Registry, plain

router = APIRouter(tags=["harness"])
Limit = Annotated[int, Query(ge=1, le=500)]
IMMUTABLE = "private, max-age=31536000, immutable"


class Move(BaseModel):
    """Body of a direct move of a free pointer."""

    model_config = ConfigDict(extra="forbid")
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")


class Rollback(BaseModel):
    """Body of a rollback; `to` defaults to the previous position."""

    model_config = ConfigDict(extra="forbid")
    reason: str
    to: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")


@router.get("/harnesses")
async def list_harnesses(
    actor: CurrentActor, registry: CurrentRegistry, search: str = "", after: str = "", limit: Limit = 50
) -> dict[str, Any]:
    """Names that one may read, with the number of their versions; `search` looks into names, messages and digests."""
    actor.require_some("read")
    with registry.database.read() as tx:
        found = harnesses.names(tx, actor.workspace, search=search, after=after, limit=limit, only=actor.names("read"))
    items = [{"name": name, "versions": count, "updated_at": at} for name, count, at in found]
    return {"items": items, "next": items[-1]["name"] if len(items) == limit else None}


@router.post("/harnesses", status_code=201)
def push_harness(
    actor: CurrentActor,
    registry: CurrentRegistry,
    response: Response,
    content: Annotated[bytes, Body(media_type="application/x-tar")],
    message: Annotated[str, Query(min_length=1, max_length=2000)],
    parent: str | None = None,
) -> dict[str, Any]:
    """Push a tar or tar.gz of a harness folder; 200 with `changed: false` when the content is known."""
    version, changed = registry.push(actor, archive.read_tar(content), message=message, parent=parent)
    response.status_code = 201 if changed else 200
    response.headers["Location"] = f"/api/v1/harnesses/{version.name}/versions/{version.digest}"
    return {**plain(version), "changed": changed}


@router.get("/harnesses/{name}")
async def get_harness(
    name: str, actor: CurrentActor, registry: CurrentRegistry, before: int | None = None, limit: Limit = 50
) -> dict[str, Any]:
    """Versions of a name, newest first, and its pointers."""
    actor.require("read", name)
    with registry.database.read() as tx:
        versions = harnesses.log(tx, actor.workspace, name, before=before, limit=limit)
        stand = pointers.of_name(tx, actor.workspace, "harness", name)
    items = [{key: value for key, value in plain(one).items() if key not in {"files", "parts"}} for one in versions]
    following = items[-1]["number"] if len(items) == limit else None
    return {"name": name, "items": items, "pointers": [plain(one) for one in stand], "next": following}


@router.get("/harnesses/{name}/versions/{selector}")
async def get_version(
    name: str,
    selector: str,
    actor: CurrentActor,
    registry: CurrentRegistry,
    response: Response,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Any:
    """One version by digest, unique digest prefix, number or pointer. ETag is the digest."""
    actor.require("read", name)
    with registry.database.read() as tx:
        version = harnesses.get(tx, actor.workspace, name, selector)
    headers = {"ETag": f'"{version.digest}"'}
    headers["Cache-Control"] = IMMUTABLE if selector == version.digest else "private, no-cache"
    if if_none_match and if_none_match.strip('"') == version.digest:
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return plain(version)


@router.get("/harnesses/{name}/versions/{selector}/archive", response_class=Response)
def get_archive(name: str, selector: str, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """The folder as a tar with fixed times: the same version gives the same bytes."""
    actor.require("read", name)
    with registry.database.read() as tx:
        version = harnesses.get(tx, actor.workspace, name, selector)
    content = archive.write_tar(harnesses.files_of(registry.blobs, version))
    disposition = f'attachment; filename="{version.name}-{version.digest[7:19]}.tar"'
    headers = {"ETag": f'"{version.digest}"', "Content-Disposition": disposition, "Cache-Control": IMMUTABLE}
    return Response(content, media_type="application/x-tar", headers=headers)


@router.get("/harnesses/{name}/lineage/{selector}")
async def get_lineage(name: str, selector: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """The version and its ancestors, nearest first."""
    actor.require("read", name)
    with registry.database.read() as tx:
        version = harnesses.get(tx, actor.workspace, name, selector)
        chain = harnesses.lineage(tx, actor.workspace, name, version.digest)
    keys = ("digest", "number", "author", "message", "created_at")
    return {"items": [{key: getattr(one, key) for key in keys} for one in chain]}


@router.get("/harnesses/{name}/diff")
def get_diff(
    name: str,
    actor: CurrentActor,
    registry: CurrentRegistry,
    a: Annotated[str, Query(description="selector of the old version")],
    b: Annotated[str, Query(description="selector of the new version")],
) -> dict[str, Any]:
    """What changed in meaning: renamed skills, retyped parameters, moved sections, changed texts; and in tokens, by part."""
    actor.require("read", name)
    (old, before), (new, after) = (registry.load(actor.workspace, name, selector) for selector in (a, b))
    return {"name": name, **_difference(old, before, new, after)}


@router.get("/diff/{a}/{b}")
def get_any_diff(a: str, b: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """The same between any two versions or releases by digest (or a prefix of it), whatever their names."""
    actor.require_some("read")
    old, new = (_by_digest(registry, actor, digest) for digest in (a, b))
    (_, before), (_, after) = (registry.load(actor.workspace, one.name, one.digest) for one in (old, new))
    return {"name": new.name, **_difference(old, before, new, after)}


def _by_digest(registry: Registry, actor: Actor, digest: str) -> harnesses.Version:
    """The version, or that of a release; what may not be read is not there."""
    with registry.database.read() as tx:
        wanted = digest
        with suppress(NotFoundError):
            found = releases.get(tx, actor.workspace, digest)
            wanted = found.harness if actor.may("read", found.name) else digest
        version = harnesses.by_digest(tx, actor.workspace, wanted)
    if not actor.may("read", version.name):
        raise NotFoundError(f"no version {digest[:80]}", place=actor.workspace, cure="hat harness list")
    return version


def _difference(old: harnesses.Version, before: Harness, new: harnesses.Version, after: Harness) -> dict[str, Any]:
    costs = [dict(parts_cost(one, SAMPLE_ROOM, estimate)) for one in (before, after)]
    parts = sorted({*costs[0], *costs[1]})
    cost = [{"part": part, "a": costs[0].get(part, 0), "b": costs[1].get(part, 0)} for part in parts]
    return {
        "a": old.digest,
        "b": new.digest,
        "a_name": old.name,
        "b_name": new.name,
        "changes": [plain(change) for change in semantic_diff(before, after)],
        "cost": [one for one in cost if one["a"] != one["b"]],
        "tokens": {"a": sum(costs[0].values()), "b": sum(costs[1].values())},
    }


@router.get("/harnesses/{name}/pointers/{pointer}/ways-back")
def get_ways_back(name: str, pointer: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Past positions of a pointer, and why some of them are no way back."""
    actor.require("read", name)
    with registry.database.read() as tx:
        now = pointers.resolve(tx, actor.workspace, "harness", name, pointer)
        return {**plain(now), "ways": [plain(one) for one in ways_back.of(tx, actor.workspace, now)]}


@router.get("/harnesses/{name}/pointers/{pointer}")
async def get_pointer(
    name: str, pointer: str, actor: CurrentActor, registry: CurrentRegistry, request: Request, response: Response
) -> Any:
    """Where a pointer stands. ETag is its revision."""
    actor.require("read", name)
    with registry.database.read() as tx:
        position = pointers.resolve(tx, actor.workspace, "harness", name, pointer)
    tag = f'"{position.revision}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return plain(position)


@router.put("/harnesses/{name}/pointers/{pointer}")
def move_pointer(
    name: str,
    pointer: str,
    body: Move,
    actor: CurrentActor,
    registry: CurrentRegistry,
    idempotency_key: Annotated[str | None, Header(max_length=128)] = None,
) -> dict[str, Any]:
    """Move a free pointer at once; a protected one answers 403 with the way to go."""

    def run(tx: Any) -> tuple[int, Any]:
        return 200, plain(pointers.move_free(tx, actor, "harness", name, pointer, body.digest))

    request = ["move", name, pointer, body.digest]
    moved: dict[str, Any] = registry.once(actor, idempotency_key, request, run)[1]
    return moved


@router.post("/harnesses/{name}/pointers/{pointer}/rollback")
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
        return 200, plain(pointers.rollback(tx, actor, "harness", name, pointer, to=body.to, reason=body.reason))

    request = ["rollback", name, pointer, body.model_dump()]
    moved: dict[str, Any] = registry.once(actor, idempotency_key, request, run)[1]
    return moved
