"""`hat registry backup|restore|check|gc`: upkeep of a registry, on the machine that reaches its database and blobs.

Always holds: they speak to the stores and not to the server, so they work while it is down; passwords come from the
environment alone. Not here: what the commands do (hat_registry.upkeep).
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hatstack import paths
from hatstack.cli.failure import CheckError, InputError
from hatstack.cli.output import DryRun, Output, emit, say, table

if TYPE_CHECKING:
    from hat_registry.registry import Registry

app = typer.Typer(no_args_is_help=True, help="Upkeep of a registry: backup, restore, check, garbage.")
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Data folder of the console.",
        envvar="HATSTACK_CONSOLE_DATA",
        show_default="runs/.stack/registry",
    ),
]
Database = Annotated[
    str,
    typer.Option(
        "--database",
        help="URL of the database; one with a password goes into HATSTACK_DATABASE_URL.",
        show_default="HATSTACK_DATABASE_URL, else a file in the data folder",
    ),
]
Blobs = Annotated[
    str,
    typer.Option(
        "--blobs",
        help="Folder or s3://bucket/prefix.",
        envvar="HATSTACK_CONSOLE_BLOBS",
        show_default="in the data folder",
    ),
]
Mlflow = Annotated[
    str,
    typer.Option(
        "--mlflow",
        help="URL of the database behind MLflow (its --backend-store-uri); one with a password goes into "
        "HATSTACK_MLFLOW_DATABASE_URL.",
        show_default="HATSTACK_MLFLOW_DATABASE_URL",
    ),
]
Artifacts = Annotated[
    str,
    typer.Option("--artifacts", help="Root of MLflow's artifacts: a folder or s3://bucket/prefix; empty: left out."),
]


@app.command("backup")
def take(
    target: Annotated[Path, typer.Argument(help="Folder to make; it must not exist.")],
    data: Data = None,
    database: Database = "",
    blobs: Blobs = "",
    mlflow: Mlflow = "",
    artifacts: Artifacts = "",
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Save rows, blobs and MLflow as of one moment, checked while they are read; the registry goes on meanwhile."""
    from hat_registry.settings import MLFLOW_DATABASE, secret_url
    from hat_registry.upkeep import backup

    beside = secret_url(mlflow, MLFLOW_DATABASE)
    if dry_run:
        emit({"folder": str(target), "mlflow": bool(beside), "changed": False}, f"would write {target}")
        return
    registry = _open(data, database, blobs)
    manifest, digest = backup.take(registry, target, mlflow=beside, artifacts=artifacts)
    registry.close()
    rows = {name: one.rows for name, one in manifest.tables.items() if one.rows}
    body = {
        "folder": str(target),
        "digest": digest,
        "at": manifest.at,
        "rows": rows,
        "blobs": manifest.blobs,
        "bytes": manifest.blob_bytes,
        "missing": manifest.missing,
        "mlflow": manifest.mlflow is not None,
        "changed": True,
    }
    shown = [*rows.items(), ("blobs", manifest.blobs)]
    if manifest.mlflow:
        shown.append(("MLflow rows", sum(one.rows for one in manifest.mlflow.tables.values())))
        shown.append(("MLflow artifacts", len(manifest.mlflow.artifacts)))
    else:
        say("MLflow is not in it: give --mlflow")
    if manifest.missing:
        say(f"{len(manifest.missing)} blobs were missing already: hat registry check names who needs them")
    emit(body, lambda: table(("what", "count"), shown) + f"\nin {target}, {digest}")


@app.command("restore")
def restore(
    folder: Annotated[Path, typer.Argument(help="A folder that hat registry backup wrote.")],
    data: Data = None,
    database: Database = "",
    blobs: Blobs = "",
    mlflow: Mlflow = "",
    artifacts: Artifacts = "",
    without_mlflow: Annotated[bool, typer.Option("--without-mlflow", help="Leave MLflow's part out.")] = False,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Check a backup and put it into an empty registry and an empty MLflow; --dry-run only checks it."""
    from hat_registry.settings import MLFLOW_DATABASE, database_url, secret_url
    from hat_registry.upkeep import backup

    place = _data(data)
    if dry_run:
        manifest, digest = backup.inspect(folder)
    else:
        place.mkdir(parents=True, exist_ok=True)
        manifest, digest = backup.restore(
            folder,
            database_url(database, place),
            blobs or str(place / "blobs"),
            mlflow="" if without_mlflow else secret_url(mlflow, MLFLOW_DATABASE),
            artifacts=artifacts,
            without_mlflow=without_mlflow,
        )
    heads = {workspace: asdict(head) for workspace, head in manifest.heads.items()}
    body = {"folder": str(folder), "digest": digest, "at": manifest.at, "ledgers": heads, "changed": not dry_run}
    emit(body, f"{'whole' if dry_run else 'restored'}: {folder} of {manifest.at}, {digest}")


@app.command("check")
def check(
    data: Data = None,
    database: Database = "",
    blobs: Blobs = "",
    mlflow: Annotated[
        str, typer.Option("--mlflow", help="MLflow's tracking URI, to compare aliases.", envvar="MLFLOW_TRACKING_URI")
    ] = "",
    deep: Annotated[bool, typer.Option("--deep", help="Read every blob and compute every digest again.")] = False,
    output: Output = None,
) -> None:
    """Check that database, blobs and MLflow fit together; exit code 1 when something does not."""
    from hat_registry import mlflow_link
    from hat_registry.upkeep.check import check as checked

    registry = _open(data, database, blobs)
    report = checked(registry, deep=deep, mlflow=mlflow_link.Mlflow(mlflow) if mlflow else None)
    registry.close()
    found = [asdict(one) for one in report.findings]
    rows = [(one.part, one.place, one.message) for one in report.findings]
    emit(
        {"counts": report.counts, "findings": found},
        lambda: (
            table(("what", "count"), sorted(report.counts.items()))
            + ("\n\n" + table(("part", "place", "what does not fit"), rows) if rows else "\neverything fits")
        ),
    )
    if rows:
        raise CheckError(f"{len(rows)} findings", place="hat registry check", cure="restore, or push the version again")


@app.command("gc")
def collect(
    hours: Annotated[float, typer.Option("--grace", min=0.0, help="Spare blobs younger than so many hours.")] = 24.0,
    data: Data = None,
    database: Database = "",
    blobs: Blobs = "",
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Remove blobs that no version names; pushes may run meanwhile."""
    from hat_registry.upkeep import gc

    registry = _open(data, database, blobs)
    done = gc.collect(registry, grace_s=hours * 3600, dry_run=dry_run)
    registry.close()
    verb = "would remove" if dry_run else "removed"
    emit(
        {**asdict(done), "changed": bool(done.blobs or done.leftovers) and not dry_run},
        f"{verb} {done.blobs} blobs, {done.bytes / 2**20:.1f} MiB; {done.kept} are named, {done.young} are young",
    )


def _data(data: Path | None) -> Path:
    return data or paths.runs_dir() / ".stack" / "registry"


def _open(data: Path | None, database: str, blobs: str) -> Registry:
    from hat_registry.registry import Registry
    from hat_registry.settings import database_url

    place = _data(data)
    url = database_url(database, place)
    file = url.removeprefix("sqlite:///")
    if file != url and not Path(file).exists():
        raise InputError("there is no registry", place=file, cure="--data, or HATSTACK_DATABASE_URL")
    return Registry.open(url, blobs or place / "blobs")
