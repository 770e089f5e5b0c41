"""`/webhooks`: addresses that are told of ledger rows, and the log of what they were told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from hat_registry import outbound, webhooks
from hat_registry.api.access import CurrentActor, CurrentRegistry

router = APIRouter(tags=["webhook"])


class NewWebhook(BaseModel):
    """Body that names an address."""

    model_config = ConfigDict(extra="forbid")
    url: str = Field(min_length=8, max_length=2048)
    kinds: list[str] = Field(default_factory=list, max_length=50)
    """Ledger kinds that it is told of; none: all."""


class Active(BaseModel):
    """Body that pauses or resumes."""

    model_config = ConfigDict(extra="forbid")
    active: bool


@router.get("/webhooks")
async def list_webhooks(actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """The workspace's webhooks; never their secrets."""
    with registry.database.read() as tx:
        return {"items": webhooks.listing(tx, actor)}


@router.post("/webhooks", status_code=201)
def add_webhook(request: Request, body: NewWebhook, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Name an address; the signing secret is in this answer and nowhere else."""
    allowed: Sequence[outbound.Network] = request.app.state.outbound
    actor.require("policy")
    with registry.database.write() as tx:
        made, secret = webhooks.add(tx, actor, body.url, body.kinds, allowed)
    return {**made, "secret": secret}


@router.get("/webhooks/{identity}")
async def get_webhook(identity: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """One webhook with the newest of its deliveries."""
    with registry.database.read() as tx:
        return {**webhooks.get(tx, actor, identity), "deliveries": webhooks.deliveries(tx, actor, identity)}


@router.put("/webhooks/{identity}")
def set_webhook(identity: str, body: Active, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Pause or resume; what happens while it is paused is not told later."""
    with registry.database.write() as tx:
        return {"id": identity, "active": body.active, "changed": webhooks.set_active(tx, actor, identity, body.active)}


@router.delete("/webhooks/{identity}")
def remove_webhook(identity: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Forget a webhook and its log."""
    with registry.database.write() as tx:
        webhooks.remove(tx, actor, identity)
    return {"id": identity, "removed": True}


@router.post("/webhooks/{identity}/ping", status_code=202)
def ping_webhook(identity: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Write a row that it is told of, to see one arrive."""
    with registry.database.write() as tx:
        webhooks.ping(tx, actor, identity)
    return {"id": identity, "pinged": True}


@router.get("/webhooks/{identity}/deliveries")
async def list_deliveries(
    identity: str,
    actor: CurrentActor,
    registry: CurrentRegistry,
    state: Literal["waiting", "delivered", "given_up"] | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> dict[str, Any]:
    """What it was told, newest first: state, attempts, last status or error, next attempt."""
    with registry.database.read() as tx:
        return {"items": webhooks.deliveries(tx, actor, identity, state=state, limit=limit)}


@router.post("/webhooks/{identity}/deliveries/{delivery}/again", status_code=202)
def send_again(identity: str, delivery: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Send a delivery once more, with the same id."""
    with registry.database.write() as tx:
        webhooks.again(tx, actor, identity, delivery)
    return {"id": delivery, "state": "waiting"}
