"""`/models`: registered models. They live in MLflow; what stands here is asked for at each call."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from hat_registry import model_versions
from hat_registry.api.access import CurrentActor, CurrentRegistry
from hat_registry.errors import NotFoundError

router = APIRouter(tags=["model"])


@router.get("/models")
def list_models(actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Models of the workspace; `mlflow` says whether one is connected at all."""
    actor.require_some("read")
    if registry.mlflow is None:
        return {"mlflow": False, "items": []}
    found = model_versions.listing(registry.mlflow, actor.workspace, actor.names("read"))
    return {"mlflow": True, "items": found}


@router.get("/models/{name}")
def get_model(name: str, actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """One model: its versions with suites, acceptance length, lineage and releases."""
    actor.require("read", name)
    if registry.mlflow is None:
        raise NotFoundError(f"no model {name[:120]}", cure="connect an MLflow: MLFLOW_TRACKING_URI")
    with registry.database.read() as tx:
        return model_versions.get(registry.mlflow, tx, actor.workspace, name)
