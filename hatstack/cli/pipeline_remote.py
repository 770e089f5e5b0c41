"""`hat pipeline submit|status|cancel`: pipelines on a cluster's workflow engine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hatstack import paths
from hatstack.cli.failure import UsageError
from hatstack.cli.output import DryRun, Output, ProfileName, Set, emit, say, table

if TYPE_CHECKING:
    from hat_pipelines.remote.engine import Engine, Status
    from hat_pipelines.remote.store import Store


class Target(StrEnum):
    """A workflow engine."""

    ARGO = "argo"
    KFP = "kfp"


Where = Annotated[Target, typer.Option("--to", help="Engine: Argo Workflows or Kubeflow Pipelines.")]
Remote = Annotated[
    list[str] | None,
    typer.Option("--remote", help="Where the engine is, KEY=VALUE: argo, argo_namespace, kfp, s3_bucket, …; docs."),
]
RunName = Annotated[str, typer.Argument(help="Name of the run on the cluster.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Longest wait, seconds; 0: no limit.")]


def add(app: typer.Typer) -> None:
    """Give the noun its commands."""
    app.command("submit")(submit)
    app.command("status")(status)
    app.command("cancel")(cancel)


def _engine(where: Target, remote: list[str] | None) -> tuple[Engine, Store | None]:
    from hat_pipelines.remote.follow import connect
    from hat_pipelines.remote.settings import read

    pairs = [text.partition("=") for text in remote or ()]
    if wrong := [key for key, sign, _ in pairs if not sign]:
        raise UsageError(f"--remote {wrong[0]}: KEY=VALUE", place="hat pipeline", cure="--remote kfp=https://…")
    return connect(where.value, read({key: value for key, _, value in pairs}))


def submit(  # each parameter is an option of the command line
    pipeline: Annotated[str, typer.Argument(help="Pipeline.")] = "train",
    profile: ProfileName = "h20",
    overrides: Set = None,
    harness: Annotated[str | None, typer.Option("--harness", help="A shipped harness, or a folder.")] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", help="What else the pipeline needs, NAME=PATH; may be repeated.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the run.", show_default="profile and time")] = "",
    where: Where = Target.ARGO,
    remote: Remote = None,
    cron: Annotated[str, typer.Option("--cron", help="Keep it as a schedule in UTC instead: 30 2 * * *")] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is over.")] = False,
    timeout: Timeout = 0.0,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Start a pipeline on a cluster: inputs go to its artifact repository, the manifest to its engine."""
    from hat_pipelines import plan
    from hat_pipelines import profile as profiles
    from hat_pipelines.desk import cron as crons
    from hat_pipelines.remote.follow import submit as send
    from hat_pipelines.remote.follow import workflow_name

    loaded = profiles.load(paths.profile(profile), [*(overrides or ()), f"pipeline={pipeline}"])
    brought = {"harness": paths.harness(harness or loaded.harness)}
    for text in inputs or ():
        key, sign, value = text.partition("=")
        if not sign:
            raise UsageError(f"--input {text}: NAME=PATH", place="hat pipeline submit", cure="--input model=FOLDER")
        brought[key] = Path(value)
    job = plan.job(loaded, brought)
    schedule = crons.parse(cron).text if cron else ""
    chosen = workflow_name(name or paths.fresh(Path(), loaded.name).name)
    told: dict[str, Any] = {"run": chosen, "engine": where.value, "steps": [step.name for step in job.dag.steps]}
    if dry_run:
        emit({**told, "changed": False}, f"would submit {chosen} with {len(job.dag.steps)} steps to {where.value}")
        return
    engine, store = _engine(where, remote)
    send(job, engine, store, chosen, cron=schedule)
    if wait and not schedule:
        _waited(engine, chosen, timeout)
        return
    emit({**told, "changed": True}, f"submitted {chosen}\nnext    hat pipeline status {chosen} --to {where.value}")


def status(
    run: RunName,
    where: Where = Target.ARGO,
    remote: Remote = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is over.")] = False,
    timeout: Timeout = 0.0,
    step: Annotated[str, typer.Option("--log", help="Show the log of this step instead.")] = "",
    output: Output = None,
) -> None:
    """Show how far a run on a cluster is, or the log of a step."""
    from hat_pipelines.pod import split_log

    engine, _ = _engine(where, remote)
    if step:
        text, _, _ = split_log(engine.logs(run, step))
        emit({"run": run, "step": step, "log": text}, text or "nothing is written yet")
    elif wait:
        _waited(engine, run, timeout)
    else:
        _show(engine.status(run))


def cancel(
    run: RunName,
    where: Where = Target.ARGO,
    remote: Remote = None,
    retry: Annotated[bool, typer.Option("--retry", help="Instead: run what failed again.")] = False,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Stop a run on a cluster, or let a failed one go on from where it failed."""
    engine, _ = _engine(where, remote)
    if dry_run:
        _show(engine.status(run))
        return
    if retry:
        engine.retry(run)
        emit({"run": run, "changed": True}, f"{run} goes on from what failed")
        return
    changed = engine.cancel(run)
    emit({"run": run, "changed": changed}, f"{run} is being stopped" if changed else f"{run} was over already")


def _waited(engine: Engine, run: str, timeout: float) -> None:
    from hat_pipelines.errors import StepFailedError
    from hat_pipelines.remote.engine import wait

    last = ""

    def seen(found: Status) -> None:
        nonlocal last
        line = f"{found.name} {found.state}  " + "  ".join(
            f"{name} {one.state}" for name, one in found.steps.items() if one.state in ("running", "failed")
        )
        if line != last:
            last = line
            say(line.rstrip())

    found = wait(engine, run, timeout_s=timeout or None, seen=seen)
    _show(found)
    if found.state != "done":
        failed = next((name for name, one in found.steps.items() if one.state == "failed"), "")
        told = found.steps[failed].message if failed else found.message
        cure = f"hat pipeline cancel {run} --retry, once the cause is gone"
        raise StepFailedError(
            f"{run} {found.state}: {failed} {told}".strip(), step=failed, kind="check_failed", place=run, cure=cure
        )


def _show(found: Status) -> None:
    rows = [(name, one.state, one.tries, one.started, one.ended, one.message) for name, one in found.steps.items()]
    heads = ("step", "state", "tries", "started", "ended", "message")
    data = {
        "run": found.name,
        "state": found.state,
        "message": found.message,
        "steps": [dict(zip(heads, row, strict=True)) for row in rows],
    }
    emit(
        data,
        lambda: f"{found.name} {found.state} {found.message}".rstrip() + "\n" + (table(heads, rows) if rows else ""),
    )
