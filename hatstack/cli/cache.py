"""`hat cache gc`: the cache of finished steps."""

from __future__ import annotations

from typing import Annotated

import typer

from hatstack import paths
from hatstack.cli.output import DryRun, Output, RunsDir, emit

app = typer.Typer(no_args_is_help=True, help="The cache of finished steps.")
DAY = 86400.0


@app.callback()
def _noun() -> None:
    """The cache of finished steps."""


@app.command("gc")
def collect(
    days: Annotated[float, typer.Option("--days", min=0.0, help="Remove what was not used for this many days.")] = 30.0,
    runs_dir: RunsDir = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Remove cached results that no run has used for a while."""
    from hat_pipelines.cache import Cache

    folder = paths.cache_dir(paths.runs_dir(runs_dir))
    removed = Cache(folder).collect(older_than_s=days * DAY, dry_run=dry_run)
    verb = "would remove" if dry_run else "removed"
    emit(
        {
            "changed": bool(removed.entries) and not dry_run,
            "entries": removed.entries,
            "bytes": removed.bytes,
            "cache": str(folder),
        },
        f"{verb} {removed.entries} entries, {removed.bytes / 2**20:.1f} MiB, from {folder}",
    )
