"""`/canaries/…/moves`: what the canary controller tells the ledger."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path

from hat_registry import canaries
from hat_registry.api.access import CurrentActor, CurrentRegistry

router = APIRouter(tags=["canary"])
Part = Annotated[str, Path(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]


@router.post("/canaries/{namespace}/{name}/moves", status_code=201)
def record(
    namespace: Part, name: Part, body: canaries.Move, actor: CurrentActor, registry: CurrentRegistry
) -> dict[str, Any]:
    """Write a move of a canary rollout into the ledger; the same move again changes nothing."""
    with registry.database.write() as tx:
        return {"changed": canaries.record(tx, actor, namespace, name, body)}
