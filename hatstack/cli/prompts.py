"""`hat harness export|import`: prompts of a harness into MLflow's prompt registry and back. Not here: push and pull."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hatstack import paths
from hatstack.cli.failure import ConflictError
from hatstack.cli.output import DryRun, Output, emit, table
from hatstack.cli.remote import DEFAULT, RegistryUrl, Remote, part

if TYPE_CHECKING:
    from hat_registry.mlflow_prompts import Crossing

Name = Annotated[str, typer.Argument(help="Name of the harness.")]
Uri = Annotated[
    str,
    typer.Option(
        "--mlflow", help="MLflow's tracking URI.", envvar="MLFLOW_TRACKING_URI", show_default="beside the runs"
    ),
]
Workspace = Annotated[str, typer.Option("--workspace", help="Workspace, the first word of names in MLflow.")]


def add(app: typer.Typer) -> None:
    """Give the noun its two verbs."""
    app.command("export")(export)
    app.command("import")(bring)


def export(
    name: Name,
    version: Annotated[str, typer.Option("--version", help="Digest, number or pointer.")] = "production",
    uri: Uri = "",
    workspace: Workspace = "default",
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Register a version's prompts in MLflow, byte for byte; names what a prompt registry has no place for."""
    from hat_registry import mlflow_prompts
    from hat_registry.mlflow_link import Mlflow

    digest, message, files = _fetched(registry, name, version)
    if dry_run:
        staying = sorted(path for path in files if not path.startswith(mlflow_prompts.FOLDER))
        told = {"harness": digest, "carried": sorted(set(files) - set(staying)), "not_carried": staying}
        emit({**told, "changed": False}, f"would export {len(files) - len(staying)} prompts of {name} {digest[7:19]}")
        return
    beside = Mlflow(paths.mlflow_uri(paths.runs_dir(), uri))
    done = mlflow_prompts.export(beside, workspace, name, digest, files, message=message)
    _emit(done, f"{name} {digest} in {beside.place}")


def bring(
    name: Name,
    target: Annotated[Path, typer.Argument(help="Folder to make; it must not exist.")],
    of: Annotated[
        str,
        typer.Option("--of", help="Digest of the harness whose prompts are wanted.", show_default="the newest prompts"),
    ] = "",
    base: Annotated[
        Path | None,
        typer.Option("--base", help="Folder that gives everything else.", show_default="the version they came from"),
    ] = None,
    uri: Uri = "",
    workspace: Workspace = "default",
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Make a harness folder from the prompts that MLflow has for a name, to be compared and pushed."""
    from hat_harness.digest import harness_digest
    from hat_registry import mlflow_prompts
    from hat_registry.archive import read_folder
    from hat_registry.harnesses import parse
    from hat_registry.mlflow_link import Mlflow
    from hatstack.cli.harness_registry import write_files

    if target.exists():
        raise ConflictError("it exists already", place=str(target), cure="choose another folder")
    beside = Mlflow(paths.mlflow_uri(paths.runs_dir(), uri))
    given: dict[str, bytes] = {}
    if base is not None:
        given = read_folder(base)
    elif came := of or mlflow_prompts.source(beside, workspace, name):
        _, _, given = _fetched(registry, name, came)
    files, done = mlflow_prompts.bring(beside, workspace, name, given, digest=of)
    done.harness = harness_digest(parse(files))
    if not dry_run:
        write_files(files, target)
    _emit(done, f"{'would make' if dry_run else 'made'} {target}, {done.harness}", folder=str(target), dry_run=dry_run)


def _fetched(registry: str, name: str, version: str) -> tuple[str, str, dict[str, bytes]]:
    """Digest, message and files of a version."""
    from hat_registry.archive import read_tar

    remote = Remote(registry)
    found = remote.get(f"/harnesses/{part(name)}/versions/{part(version)}")
    content = remote.send("GET", f"/harnesses/{part(name)}/versions/{part(found['digest'])}/archive").content
    return found["digest"], found["message"], read_tar(content)


def _emit(done: Crossing, last: str, *, dry_run: bool = False, **more: Any) -> None:
    rows = [(one.file, one.prompt, one.version, "new" if one.changed else "known") for one in done.carried]
    staying = list(done.not_carried.items())
    changed = any(one.changed for one in done.carried) and not dry_run
    body = {
        "harness": done.harness,
        "carried": [asdict(one) for one in done.carried],
        "not_carried": done.not_carried,
        "changed": changed,
        **more,
    }
    emit(
        body,
        lambda: (
            (table(("file", "prompt", "version", "content"), rows) + "\n\n" if rows else "")
            + (table(("not carried", "why"), staying) + "\n\n" if staying else "")
            + last
        ),
    )
