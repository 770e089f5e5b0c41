"""`hat data …`: conversations from outside, and the datasets that steps make."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hatstack.cli.failure import ConflictError, InputError, UsageError
from hatstack.cli.output import DryRun, Output, emit, table

if TYPE_CHECKING:
    from hat_components.importer.config import Config
    from hat_components.step import StepResult

app = typer.Typer(no_args_is_help=True, help="Datasets and imported conversations.")
Source = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="OpenAI chat JSONL or exported MLflow traces: .jsonl, .jsonl.gz, .json, or a folder of them.",
    ),
]


@app.command("import")
def import_data(
    source: Source,
    purpose: Annotated[str, typer.Option("--purpose", help="What the data may be used for; it has no default.")],
    target: Annotated[Path, typer.Option("--to", help="Folder for the datasets; it must not exist.")],
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the dataset.", show_default="the folder's name")
    ] = None,
    held_out: Annotated[
        float, typer.Option("--held-out", min=0.0, max=1.0, help="Share that is kept from training.")
    ] = 0.2,
    keep_days: Annotated[
        int,
        typer.Option("--keep-days", min=1, max=3650, help="Days that the data may be kept; then steps refuse them."),
    ] = 365,
    skip: Annotated[bool, typer.Option("--skip-bad-lines", help="Leave bad lines out instead of refusing.")] = False,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Import conversations or MLflow traces: checked, scrubbed, viewers' names replaced, tagged with a purpose."""
    if target.exists():
        raise ConflictError("it exists already", place=str(target), cure="choose another folder")
    config = _config(name or target.resolve().name, purpose, held_out, skip, keep_days)
    result = _import(source, config, None if dry_run else target)
    emit(
        {"folder": str(target), "changed": not dry_run, "digests": result.digests, "metrics": result.metrics},
        lambda: (
            table(
                ("what", "count"),
                [(key.replace("_", " "), int(value)) for key, value in sorted(result.metrics.items())],
            )
            + (f"\nwould make {target}" if dry_run else f"\nmade {target}")
        ),
    )


@app.command("validate")
def validate(source: Source, output: Output = None) -> None:
    """Check conversations as an import would, and keep nothing."""
    result = _import(source, _config("check", "evaluation", 0.0, False), None)
    count = int(result.metrics["conversations"])
    emit(
        {"valid": True, "conversations": count, "metrics": result.metrics},
        f"{source}: {count} conversations, all valid",
    )


@app.command("show")
def show(
    folder: Annotated[Path, typer.Argument(help="A dataset folder.")],
    records: Annotated[int, typer.Option("--records", min=0, help="Show this many records.")] = 0,
    output: Output = None,
) -> None:
    """Show a dataset's manifest, after comparing its content with it."""
    import json

    from hat_components.data import load_manifest, read_lines

    manifest = load_manifest(folder)
    first: list[Any] = []
    for split in manifest.splits:
        for _, line in read_lines(folder, split):
            if len(first) < records:
                first.append(json.loads(line))
    rows = [(name, split.count, split.digest[:19]) for name, split in manifest.splits.items()]
    emit(
        {**manifest.model_dump(mode="json"), "records": first},
        lambda: "\n".join(
            [
                f"{manifest.name}  {manifest.kind}  for {manifest.purpose or 'nothing: untagged'}{_until(manifest)}",
                manifest.digest,
                "",
                table(("split", "records", "digest"), rows),
                *(json.dumps(record, ensure_ascii=False) for record in first),
            ]
        ),
    )


def _until(manifest: Any) -> str:
    from hat_components.data import KEEP_UNTIL, expired

    day = manifest.facts.get(KEEP_UNTIL)
    if day is None:
        return ""
    return f"  past its day: kept until {day}" if expired(manifest) else f"  kept until {day}"


@app.command("erase")
def erase(
    viewer: Annotated[
        str | None, typer.Option("--viewer", help="The viewer's own id; it is not written anywhere.")
    ] = None,
    expired: Annotated[
        bool, typer.Option("--expired", help="Everything that is past its retention, whoever said it.")
    ] = False,
    data: Annotated[Path | None, typer.Option("--data", help="Folder with datasets, searched through lineage.")] = None,
    gateway: Annotated[
        Path | None, typer.Option("--gateway", help="Data folder of a gateway: conversations, traces.")
    ] = None,
    mlflow: Annotated[
        str | None,
        typer.Option("--mlflow", help="URI of an MLflow server: traces, JSON lines; names models to make again."),
    ] = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Erase a viewer, or what is past its day, from datasets, conversations and traces; says what must be made again."""
    if (viewer is None) == (not expired) or viewer == "":
        raise UsageError("erase what?", place="hat data erase", cure="give --viewer ID or --expired, and one of them")
    if data is None and gateway is None and mlflow is None:
        raise UsageError(
            "nothing to erase from", place="hat data erase", cure="--data FOLDER, --gateway FOLDER, --mlflow URI"
        )
    if mlflow is not None and viewer is None:
        raise UsageError(
            "--expired does not reach MLflow", place="--mlflow", cure="MLflow archives traces by its own rule"
        )
    for folder in (data, gateway):
        if folder is not None and not folder.is_dir():
            raise InputError("there is no such folder", place=str(folder), cure="check the path")
    body: dict[str, Any] = {"changed": not dry_run, "datasets": {}, "derived": {}, "conversations": 0, "traces": {}}
    body |= {"mlflow_traces": 0, "artifacts": {}, "models": []}
    ids: set[str] = set()
    digests: set[str] = set()
    if data is not None:
        from hat_components.importer.erase import erase_expired, erase_viewer

        found = (
            erase_expired(data, dry_run=dry_run)
            if viewer is None
            else erase_viewer(data, viewer, _key(gateway), dry_run=dry_run)
        )
        body |= {"datasets": found.records, "derived": found.derived}
        ids, digests = found.ids, found.digests
    if gateway is not None:
        body |= _from_gateway(gateway, viewer, dry_run)
    if mlflow is not None and viewer is not None:
        body |= _from_mlflow(mlflow, viewer, ids, digests, dry_run)
    rows = [(path, count) for path, count in {**body["datasets"], **body["traces"], **body["artifacts"]}.items()]
    rows += [("conversations", body["conversations"]), ("mlflow traces", body["mlflow_traces"])]
    again = "".join(f"\nmake again: {path}" for path in [*body["derived"], *body["models"]])
    emit(body, lambda: table(("place", "would go" if dry_run else "gone"), rows) + again)


def _key(gateway: Path | None) -> bytes:
    """The key of pseudonyms: the environment's, else that of the gateway whose turns were taken into datasets."""
    from hat_components.importer.scrub import ENVIRONMENT_KEY, load_key

    own = gateway / "pseudonym.key" if gateway is not None else None
    if own is None or os.environ.get(ENVIRONMENT_KEY) or not own.is_file():
        return load_key("")
    return own.read_bytes()  # as the gateway reads it: its bytes are random, and load_key would strip some


def _from_mlflow(uri: str, viewer: str, ids: set[str], digests: set[str], dry_run: bool) -> dict[str, Any]:
    """What goes from an MLflow server."""
    from hat_components.importer.erase_mlflow import erase_from_mlflow
    from hat_components.importer.scrub import load_key, pseudonym
    from hat_components.register.tracking import locate

    alias = pseudonym(load_key(""), viewer)
    gone = erase_from_mlflow(locate(uri, Path()), viewer, alias, ids, digests, dry_run=dry_run)
    return {"mlflow_traces": gone.traces, "artifacts": gone.artifacts, "models": gone.models}


def _from_gateway(gateway: Path, viewer: str | None, dry_run: bool) -> dict[str, Any]:
    """What goes from a gateway's stores."""
    if viewer is None:
        from dataclasses import asdict

        from hat_serving.gateway.retention import Retention, expire

        old = expire(gateway, Retention.of(gateway), dry_run=dry_run)
        rows = {name: count for name, count in asdict(old.experiments).items() if count}
        return {"conversations": old.conversations, "traces": dict.fromkeys(old.traces, "all"), "experiments": rows}
    from hat_serving.gateway.__main__ import pseudonym_key
    from hat_serving.gateway.erase import erase_viewer as erase_from_gateway

    gone = erase_from_gateway(gateway, viewer, pseudonym_key(gateway / "pseudonym.key"), dry_run=dry_run)
    return {"conversations": gone.conversations, "traces": dict(gone.traces)}


def _config(name: str, purpose: str, held_out: float, skip: bool, keep_days: int = 365) -> Config:
    from pydantic import ValidationError

    from hat_components.importer.config import Config

    given = {"name": name, "purpose": purpose, "held_out": held_out, "keep_days": keep_days}
    try:
        return Config.model_validate({**given, "on_error": "skip" if skip else "refuse"})
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{first['loc'][0]}: {first['msg']}", place="hat data import") from None


def _import(source: Path, config: Config, target: Path | None) -> StepResult:
    """Run the import step; with a target its folder appears whole or not at all."""
    import tempfile

    from hat_components.importer.step import run
    from hat_components.step import NullProgress

    parent = target.parent if target else Path(tempfile.gettempdir())
    try:
        parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".hat-import-{os.getpid()}-", dir=parent))
    except OSError as error:
        cure = "choose another folder"
        raise InputError(f"cannot be written: {error.strerror}", place=str(parent), cure=cure) from None
    try:
        result = run(config, {"conversations": source}, part, NullProgress())
        if target is not None:
            part.chmod(0o755)
            part.rename(target)
        return result
    finally:
        shutil.rmtree(part, ignore_errors=True)
