"""`hat pipeline list|compile`: the pipelines and the YAML that a cluster gets; running there is pipeline_remote's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hatstack import paths
from hatstack.cli import pipeline_remote
from hatstack.cli.output import DryRun, Output, ProfileName, Set, emit, table

app = typer.Typer(no_args_is_help=True, help="Pipelines and their compiled forms.")
pipeline_remote.add(app)


@app.command("list")
def list_pipelines(output: Output = None) -> None:
    """List the pipelines with their steps."""
    from hat_pipelines import dags

    found = [dags.build(name, ("naive", "hsa")) for name in dags.names()]
    emit(
        [{"name": d.name, "description": d.description, "steps": [step.name for step in d.steps]} for d in found],
        lambda: table(("pipeline", "steps", "what"), [(d.name, len(d.steps), d.description) for d in found]),
    )


@app.command("compile")
def compile_pipeline(
    pipeline: Annotated[str | None, typer.Argument(help="Pipeline; all if none is given.", show_default=False)] = None,
    profile: ProfileName = "h20",
    overrides: Set = None,
    target: Annotated[Path, typer.Option("--to", help="Folder for the YAML files.")] = Path("pipelines/compiled"),
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Write the KFP and Argo forms of a pipeline."""
    from hat_pipelines import compiler, dags
    from hat_pipelines import profile as profiles

    path = paths.profile(profile)
    written = []
    for name in [pipeline] if pipeline else dags.names():
        loaded = profiles.load(path, [*(overrides or ()), f"pipeline={name}"])
        written += compiler.write(loaded, target, dry_run=dry_run)
    emit(
        [{"file": str(path), "changed": changed} for path, changed in written],
        lambda: table(("file", "changed"), [(path, "yes" if changed else "no") for path, changed in written]),
    )
