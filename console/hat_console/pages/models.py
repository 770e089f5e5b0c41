"""Models: what MLflow has registered, with suites, acceptance length, lineage and the releases that hold it."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from hat_console.pages import CurrentActor, CurrentRegistry, Page
from hat_registry.api.routes import model as api

router = APIRouter()


@router.get("/models")
def listing(request: Request, view: Page, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """All models of the workspace."""
    return view.page(request, "models.html", api.list_models(actor, registry))


@router.get("/models/{name}")
def one(request: Request, name: str, view: Page, actor: CurrentActor, registry: CurrentRegistry) -> Response:
    """One model with its versions."""
    link = request.app.state.links.get("mlflow", "")
    return view.page(request, "model.html", api.get_model(name, actor, registry), mlflow=link)
