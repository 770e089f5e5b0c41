"""`hat ablate`: what each stage of training adds, one seed at a time; finished rows go to a file that all machines share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hatstack import paths
from hatstack.cli.failure import UsageError
from hatstack.cli.output import DryRun, Output, RunsDir, Set, as_json, emit, say, table
from hatstack.cli.run import HarnessName, RunName, job_of, show_plan

if TYPE_CHECKING:
    from hat_components.ablation.rows import Row
    from hat_pipelines.runs import RunFolder

RESULTS = Path("docs") / "results" / "ablation.jsonl"


def add(app: typer.Typer) -> None:
    """Give the application its command."""
    app.command("ablate")(ablate)


def ablate(  # each parameter is an option of the command line
    profile: Annotated[str, typer.Option("--profile", help="Name of a shipped profile, or a file.")] = "ablate",
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the run; the profile's if none is given.")] = None,
    overrides: Set = None,
    harness: HarnessName = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="Measure this policy and what it needs; may be repeated.")
    ] = None,
    name: RunName = "",
    resume: Annotated[str | None, typer.Option("--resume", help="Go on with this run.")] = None,
    results: Annotated[
        Path, typer.Option("--results", help="File that finished rows are added to.", show_default=str(RESULTS))
    ] = RESULTS,
    runs_dir: RunsDir = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Train and measure every stage on both pathways; rows of finished policies are kept however the run ends."""
    from hat_pipelines import run as runner

    root = paths.runs_dir(runs_dir)
    if resume and (name or overrides or harness or seed is not None):
        raise UsageError("a resumed run keeps its config and its name", place="hat ablate", cure="only --resume RUN")
    chosen = list(overrides or ()) + ([f"seed={seed}"] if seed is not None else [])
    job = None if resume else job_of(profile, chosen, None, None, harness)
    if job is not None and job.dag.name != "ablate":
        raise UsageError(f"profile {profile} runs pipeline {job.dag.name}", place="--profile", cure="pipeline: ablate")
    opened: list[RunFolder] = []
    options = runner.Options(
        name=name,
        only=tuple(f"evaluate-{one}" for one in policy or ()),
        cache=paths.cache_dir(root),
        quiet=as_json(),
        on_open=opened.append,
    )
    if dry_run:
        show_plan(root, resume, job, options)
        return
    try:  # rows of what is finished are kept, also of a run that stops
        if resume:
            runner.resume(resume, root, options)
        elif job is not None:
            runner.start(job, root, options)
    finally:
        found, added = _keep(opened, results)
        say(f"{added} new rows in {results}")
    emit(
        {"run": opened[0].id, "results": str(results), "added": added, "rows": [row.model_dump() for row in found]},
        lambda: _table(found) + "\nnext    hat report paper --item t4",
    )


def _keep(opened: list[RunFolder], results: Path) -> tuple[list[Row], int]:
    """Rows of the evaluations that the run has finished, and how many of them are new in the file."""
    from hat_components.ablation.policies import POLICIES
    from hat_components.ablation.rows import append_rows, rows_of
    from hat_components.evaluate.result import load_evaluation
    from hat_harness.digest import decimals, digest_json
    from hat_pipelines import profile as profiles

    evaluations: dict[str, Any] = {}
    if not opened:
        return [], 0
    folder = opened[0]
    for one in POLICIES:
        artifact = folder.step(f"evaluate-{one}").artifact("evaluation")
        if artifact is not None:
            evaluations[one] = load_evaluation(artifact)
    loaded = profiles.load(folder.profile)
    steps = {name: {**fields, "seed": 0} if "seed" in fields else fields for name, fields in loaded.steps.items()}
    recipe = loaded.model_copy(update={"seed": 0, "steps": steps})  # what seeds of one measurement have in common
    rows = rows_of(evaluations, loaded.seed, digest_json(decimals(recipe.model_dump(mode="json"))))
    return rows, append_rows(results, rows)


def _table(rows: list[Row]) -> str:
    from hat_components.ablation.policies import COLUMNS, POLICIES

    shown = [row for row in rows if row.kind == "policy"]
    columns = [column for column in COLUMNS if any(column in row.scores for row in shown)]
    cells = [
        (row.policy, POLICIES[row.policy], *(f"{100 * row.scores[c]:.1f}" if c in row.scores else "-" for c in columns))
        for row in shown
    ]
    return table(("policy", "stage", *columns), cells)
