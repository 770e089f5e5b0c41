"""`hat model list|show|aliases`: registered models. They live in MLflow's registry; nothing here keeps a copy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hatstack import paths
from hatstack.cli.failure import CheckError, InputError, UnavailableError
from hatstack.cli.output import DryRun, Output, RunsDir, emit, table
from hatstack.cli.remote import DEFAULT, RegistryUrl, Remote

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

app = typer.Typer(no_args_is_help=True, help="Registered models.")
Uri = Annotated[
    str,
    typer.Option(
        "--mlflow", help="MLflow's tracking URI.", envvar="MLFLOW_TRACKING_URI", show_default="beside the runs"
    ),
]


@app.command("list")
def list_models(runs_dir: RunsDir = None, uri: Uri = "", output: Output = None) -> None:
    """List registered models with their versions and aliases."""
    with _client(runs_dir, uri) as client:
        found = [_model(client, model) for model in client.search_registered_models()]
    rows = [
        (
            one["name"],
            version["version"],
            ", ".join(version["aliases"]) or "-",
            version["arm"] or "-",
            version["digest"][:19],
        )
        for one in found
        for version in one["versions"]
    ]
    emit(found, lambda: table(("model", "version", "aliases", "arm", "digest"), rows) if rows else "no models yet")


@app.command("show")
def show(
    model: Annotated[str, typer.Argument(help="NAME, NAME@ALIAS or NAME@VERSION.")],
    runs_dir: RunsDir = None,
    uri: Uri = "",
    output: Output = None,
) -> None:
    """Show a model version: where it comes from and how it was evaluated."""
    name, _, which = model.partition("@")
    with _client(runs_dir, uri) as client:
        known = [one.name for one in client.search_registered_models()]
        full = next((one for one in known if one in (name, f"default.{name}")), None)
        if full is None:
            raise InputError(f"no model {name!r}", place=model, cure=f"one of: {', '.join(known) or 'none yet'}")
        version = _pick(_model(client, client.get_registered_model(full)), which, model)
        run = client.get_run(version["run"]) if version["run"] else None
        metrics = {key: value for key, value in sorted(run.data.metrics.items()) if "." in key} if run else {}
    emit(
        {"name": full, **version, "metrics": metrics},
        lambda: "\n".join(
            [
                f"{full} version {version['version']}  {', '.join(version['aliases'])}".rstrip(),
                *(f"  {key.removeprefix('hatstack.')}  {value}" for key, value in sorted(version["tags"].items())),
                f"  source  {version['source']}",
                "",
                table(("suite and metric", "value"), [(key, f"{value:.3f}") for key, value in metrics.items()]),
            ]
        ),
    )


@app.command("aliases")
def aliases(
    follow: Annotated[bool, typer.Option("--follow", help="Put MLflow's aliases where the ledger says.")] = False,
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Compare MLflow's aliases with the ledger, through the registry's server; exit code 1 when they differ."""
    remote = Remote(registry)
    body = remote.post("/mlflow/follow") if follow and not dry_run else remote.get("/mlflow/aliases")
    rows = [(one["model"], one["alias"], one["subject"] or "-", one["state"], one["message"]) for one in body["items"]]
    emit(
        {"changed": False, **body},
        lambda: (
            table(("model", "alias", "pointer", "state", "what it says"), rows) if rows else "no pointer of a model yet"
        ),
    )
    if body["drift"]:
        raise CheckError(
            f"{body['drift']} aliases differ from the ledger", place=body["mlflow"], cure="hat model aliases --follow"
        )


def registered(model: str, runs_dir: Path | None, uri: str) -> dict[str, Any]:
    """The version of NAME, NAME@ALIAS or NAME@VERSION with its digest, source and tags. InputError."""
    name, _, which = model.partition("@")
    with _client(runs_dir, uri) as client:
        known = [one.name for one in client.search_registered_models()]
        full = next((one for one in known if one in (name, f"default.{name}")), None)
        if full is None:
            raise InputError(f"no model {name!r}", place=model, cure=f"one of: {', '.join(known) or 'none yet'}")
        return _pick(_model(client, client.get_registered_model(full)), which, model)


def _client(runs_dir: Path | None, uri: str) -> AbstractContextManager[Any]:
    from contextlib import contextmanager

    @contextmanager
    def connected() -> Iterator[Any]:
        place = paths.mlflow_uri(paths.runs_dir(runs_dir), uri)
        if place.startswith("sqlite:///") and not Path(place.removeprefix("sqlite:///")).exists():
            raise InputError("no models yet", place=place, cure="hat run --profile smoke")
        import logging

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        try:
            yield MlflowClient(tracking_uri=place, registry_uri=place)
        except MlflowException as error:
            reason = " ".join(str(error).split())[:200]
            raise UnavailableError(f"MLflow: {reason}", place=place, cure="check that the server runs") from None

    return connected()


def _model(client: Any, model: Any) -> dict[str, Any]:
    versions = client.search_model_versions(f"name='{model.name}'")
    aliases = client.get_registered_model(model.name).aliases
    return {
        "name": model.name,
        "versions": [
            {
                "version": int(one.version),
                "aliases": sorted(alias for alias, number in aliases.items() if str(number) == str(one.version)),
                "arm": one.tags.get("hatstack.arm", ""),
                "digest": one.tags.get("hatstack.model", ""),
                "run": one.run_id,
                "source": one.source,
                "tags": dict(one.tags),
            }
            for one in sorted(versions, key=lambda one: -int(one.version))
        ],
    }


def _pick(model: dict[str, Any], which: str, given: str) -> dict[str, Any]:
    versions: list[dict[str, Any]] = model["versions"]
    for version in versions:
        if not which or which == str(version["version"]) or which in version["aliases"] or version["digest"] == which:
            return version
    known = ", ".join(str(version["version"]) for version in versions) or "none"
    raise InputError(f"no version {which!r}", place=given, cure=f"versions: {known}")
