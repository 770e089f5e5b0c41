"""Registered models as MLflow has them, with what hatstack knows of each: suites, acceptance length, lineage, releases.

Always holds: a workspace sees only models whose name begins with its own; nothing here keeps a copy. Not here: aliases
and drift (mlflow_link).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, select

from hat_registry import clock
from hat_registry.errors import NotFoundError
from hat_registry.mlflow_link import MODEL_TAG, Mlflow
from hat_registry.store.tables import release

MOST = 200
LINEAGE = ("harness", "dataset", "config", "profile", "code", "arm")


def listing(mlflow: Mlflow, workspace: str, only: frozenset[str] | None = None) -> list[dict[str, Any]]:
    """Models of the workspace with their newest version and aliases, by name; `only` are the names that may be seen."""
    with mlflow.asked() as client:
        found = client.search_registered_models(f"name LIKE '{workspace.replace(chr(39), '')}.%'", max_results=MOST)
        return [
            {
                "name": bare,
                "mlflow": model.name,
                "aliases": {alias: int(number) for alias, number in sorted(model.aliases.items())},
                "newest": max((int(one.version) for one in model.latest_versions or ()), default=0),
                "updated_at": _time(model.last_updated_timestamp),
            }
            for model in found
            if (bare := _bare(model.name, workspace)) and (only is None or bare in only)
        ]


def get(mlflow: Mlflow, tx: Connection, workspace: str, name: str) -> dict[str, Any]:
    """One model with its versions, newest first. NotFoundError where the workspace has none of that name."""
    from mlflow.exceptions import MlflowException

    full = f"{workspace}.{name}"
    with mlflow.asked() as client:
        try:
            model = client.get_registered_model(full)
        except MlflowException as error:
            if error.error_code in {"RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"}:
                raise NotFoundError(f"no model {name[:120]}", place=workspace, cure="hat model list") from None
            raise
        aliases: dict[str, list[str]] = {}
        for alias, number in sorted(model.aliases.items()):
            aliases.setdefault(str(number), []).append(alias)
        versions = client.search_model_versions(f"name = '{full.replace(chr(39), '')}'", max_results=MOST)
        told = [_version(client, one, aliases.get(str(one.version), [])) for one in versions]
    told.sort(key=lambda one: -one["version"])
    released = _releases(tx, workspace, {one["digest"] for one in told if one["digest"]})
    for one in told:
        one["releases"] = released.get(one["digest"], [])
    return {"name": name, "mlflow": full, "versions": told}


def _version(client: Any, one: Any, aliases: list[str]) -> dict[str, Any]:
    tags = dict(one.tags)
    run = client.get_run(one.run_id) if one.run_id else None
    metrics = {key: float(value) for key, value in sorted(run.data.metrics.items())} if run else {}
    return {
        "version": int(one.version),
        "digest": tags.get(MODEL_TAG, ""),
        "aliases": aliases,
        "created_at": _time(one.creation_timestamp),
        "run": one.run_id or "",
        "experiment": run.info.experiment_id if run else "",
        "lineage": {key: tags[f"hatstack.{key}"] for key in LINEAGE if tags.get(f"hatstack.{key}")},
        "suites": {key: value for key, value in metrics.items() if "." in key and "accept" not in key},
        "acceptance": {key: value for key, value in metrics.items() if "accept" in key},
    }


def _releases(tx: Connection, workspace: str, digests: set[str]) -> dict[str, list[dict[str, str]]]:
    """Model digest → releases of the workspace that hold it."""
    found: dict[str, list[dict[str, str]]] = {}
    if not digests:
        return found
    query = select(release.c.digest, release.c.name, release.c.content).where(release.c.workspace == workspace)
    for row in tx.execute(query.order_by(release.c.created_at.desc()).limit(1000)):
        for digest in digests:
            if f'"model": "{digest}"' in row.content:
                found.setdefault(digest, []).append({"digest": row.digest, "name": row.name})
    return found


def _bare(full: str, workspace: str) -> str:
    """The name without the workspace; "" for a model of another."""
    return full.removeprefix(f"{workspace}.") if full.startswith(f"{workspace}.") else ""


def _time(milliseconds: int | None) -> str:
    return clock.text(datetime.fromtimestamp((milliseconds or 0) / 1000, UTC))
