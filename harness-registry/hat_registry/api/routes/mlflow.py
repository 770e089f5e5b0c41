"""`/mlflow`: whether MLflow's aliases are where the ledger says, and putting them there."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from hat_registry import mlflow_link
from hat_registry.api.access import CurrentActor, CurrentRegistry
from hat_registry.errors import NotFoundError
from hat_registry.mlflow_link import Alias, Mlflow

router = APIRouter(tags=["mlflow"])


@router.get("/mlflow/aliases")
def list_aliases(actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Every alias that the ledger stands for, beside where MLflow has it; `drift` counts those that differ."""
    actor.require("read")
    beside = _mlflow(registry)
    with registry.database.read() as tx:
        wanted = mlflow_link.projection(tx, actor.workspace)
    return _told(mlflow_link.drift(wanted, beside), beside)


@router.post("/mlflow/follow")
def follow(actor: CurrentActor, registry: CurrentRegistry) -> dict[str, Any]:
    """Put MLflow's aliases where the ledger says; the server also does so by itself after every move."""
    actor.require("move")
    beside = _mlflow(registry)
    with registry.database.read() as tx:
        wanted = mlflow_link.projection(tx, actor.workspace)
    found, count = mlflow_link.follow(wanted, beside)
    return {**_told(found, beside), "set": count, "changed": count > 0}


def _mlflow(registry: CurrentRegistry) -> Mlflow:
    if registry.mlflow is None:
        raise NotFoundError("no MLflow stands beside this registry", cure="start it with MLFLOW_TRACKING_URI")
    return registry.mlflow


def _told(found: list[Alias], beside: Mlflow) -> dict[str, Any]:
    items = [{**asdict(one), "message": one.told()} for one in found]
    return {"mlflow": beside.place, "items": items, "drift": sum(one.state != "follows" for one in found)}
