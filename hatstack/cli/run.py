"""`hat run`, `hat report`, `hat evaluate`: the main job, its report, and one model on its own."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hatstack import paths
from hatstack.cli.failure import UsageError
from hatstack.cli.output import DryRun, Output, ProfileName, RunsDir, Set, as_json, emit, say, table

if TYPE_CHECKING:
    from hat_pipelines.plan import Job
    from hat_pipelines.profile import Profile
    from hat_pipelines.run import Options
    from hat_pipelines.runs import RunFolder

DEFAULT_PROFILE = "smoke"
OptionalProfile = Annotated[
    str | None, typer.Option("--profile", help="Name of a shipped profile, or a file.", show_default=DEFAULT_PROFILE)
]
HarnessName = Annotated[
    str | None, typer.Option("--harness", help="Name of a shipped harness, or a folder; overrides the profile's.")
]
RunName = Annotated[
    str, typer.Option("--name", help="Name of the run; it must be new.", show_default="profile and time")
]


class Runner(StrEnum):
    """What runs the steps."""

    LOCAL = "local"
    KFP = "kfp"


def add(app: typer.Typer) -> None:
    """Give the application its commands."""
    app.command("run")(run)
    app.command("report")(report)
    app.command("evaluate")(evaluate)


def run(  # each parameter is an option of the command line
    profile: OptionalProfile = None,
    overrides: Set = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Conversations to train on: OpenAI chat JSONL, a file or a folder.")
    ] = None,
    purpose: Annotated[
        str | None, typer.Option("--purpose", help="What --data may be used for; training takes only `training`.")
    ] = None,
    harness: HarnessName = None,
    name: RunName = "",
    resume: Annotated[str | None, typer.Option("--resume", help="Go on with this run.")] = None,
    from_step: Annotated[
        str, typer.Option("--from-step", help="With --resume: run this step and all behind it again.")
    ] = "",
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Run this step and what it needs; may be repeated.")
    ] = None,
    runner: Annotated[
        Runner, typer.Option("--runner", help="What runs the steps: this machine, or KFP's local runner.")
    ] = Runner.LOCAL,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Take equal steps from earlier runs.")] = True,
    runs_dir: RunsDir = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Run a pipeline by a profile: data, training, evaluation, registration, report."""
    from hat_pipelines import run as runner_module

    root = paths.runs_dir(runs_dir)
    _check(resume=resume, from_step=from_step, name=name, data=data, purpose=purpose)
    if runner is Runner.KFP and (resume or only):
        raise UsageError("KFP's local runner runs whole pipelines", place="hat run --runner kfp", cure="--runner local")
    options = runner_module.Options(
        name=name,
        from_step=from_step,
        only=tuple(only or ()),
        cache=paths.cache_dir(root) if cache else None,
        quiet=as_json(),
        runner="kfp" if runner is Runner.KFP else "local",
        on_open=announce,
        environment={"MLFLOW_TRACKING_URI": paths.mlflow_uri(root)},
    )
    if resume and not (profile or overrides or data or harness):
        job = None
    else:
        job = job_of(profile or DEFAULT_PROFILE, list(overrides or ()), data, purpose, harness)
    if dry_run:
        show_plan(root, resume, job, options)
        return
    if resume:
        folder = runner_module.resume(resume, root, options, job)
    else:
        assert job is not None
        folder = runner_module.start(job, root, options)
    _finish(folder)


def announce(folder: RunFolder) -> None:
    """Say where a run keeps its files."""
    say(f"run {folder.id} in {folder.path}")


def _check(  # what the options may not contradict
    *, resume: str | None, from_step: str, name: str, data: Path | None, purpose: str | None
) -> None:
    if from_step and not resume:
        raise UsageError("--from-step needs a run to go on with", place="hat run", cure="add --resume RUN")
    if resume and name:
        raise UsageError("a resumed run keeps its name", place="hat run", cure="leave --name out")
    if data is not None and purpose is None:
        raise UsageError(
            "data need a purpose", place="hat run --data", cure="add --purpose training if they may be trained on"
        )
    if purpose is not None and data is None:
        raise UsageError("--purpose says what --data may be used for", place="hat run", cure="add --data FILE")


def job_of(profile: str, overrides: list[str], data: Path | None, purpose: str | None, harness: str | None) -> Job:
    """The job that a profile, its overrides and what the run brings make."""
    from hat_pipelines import plan
    from hat_pipelines import profile as profiles

    path = paths.profile(profile)
    if harness:
        overrides.append(f"harness={json.dumps(harness)}")
    inputs: dict[str, Path] = {}
    if data is not None:
        overrides += [f"steps.import.purpose={purpose}", f"steps.import.name={_slug(data)}"]
        inputs["data"] = data
    loaded = profiles.load(path, overrides, imported=data is not None)
    if data is not None:
        loaded = profiles.load(path, [*overrides, *_calls(loaded)], imported=True)
    inputs["harness"] = paths.harness(loaded.harness)
    return plan.job(loaded, inputs, imported=data is not None)


def _calls(profile: Profile) -> list[str]:
    """Overrides that measure, and choose between arms by, the next call of conversations that training did not see."""
    suites = ("calls", "calls-t2")
    overrides = []
    for step in profile.dag(imported=True).steps:
        if step.component == "evaluate":
            chosen = [*profile.config(step).model_dump()["suites"], *suites]
            overrides.append(f"steps.{step.name}.suites={json.dumps(list(dict.fromkeys(chosen)))}")
    if "select" not in profile.steps.get("register", {}):
        overrides.append(f"steps.register.select={json.dumps(dict.fromkeys(suites, 0.5))}")
    return overrides


def _slug(path: Path) -> str:
    """A dataset name from a file's name."""
    stem = path.name.split(".")[0].lower()
    return re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:64] or "data"


def show_plan(root: Path, resume: str | None, job: Job | None, options: Options) -> None:
    """Print what would happen with each step, and about how long it takes."""
    from hat_pipelines import run as runner_module
    from hat_pipelines import runs
    from hat_pipelines.display import clock
    from hat_pipelines.estimate import estimate

    planned = runner_module.preview(root, resume, job, options)
    meant = job or runner_module.saved_job(runs.open_run(root, resume or ""))
    guess = estimate(root, meant, planned)
    heads = ("step", "component", "action", "why", "seconds")
    rows = [(one.step, one.component, one.action, one.why, guess.steps.get(one.step)) for one in planned]
    steps = [dict(zip(heads, row, strict=True)) for row in rows]
    unknown = f"; {len(guess.unknown)} steps have not run here before" if guess.unknown else ""
    emit(
        {"steps": steps, "seconds": guess.total, "unknown": list(guess.unknown), "changed": False},
        lambda: f"{table(heads, rows)}\n{f'about {clock(guess.total)}' if guess.steps else 'no estimate'}{unknown}",
    )


def _finish(folder: RunFolder) -> None:
    from hat_pipelines.summary import scores

    found = scores(folder)
    data: dict[str, Any] = {
        "run": folder.id,
        "state": folder.record.state,
        "folder": str(folder.path),
        "report": str(folder.report) if folder.report.exists() else None,
        "seconds": round(folder.record.seconds, 1),
        "scores": found.rows,
    }
    emit(data, lambda: _closing(folder))


def _closing(folder: RunFolder) -> str:
    """The few lines that a run ends with: scores, where the report is, what to do next."""
    from hat_pipelines.display import clock
    from hat_pipelines.summary import scores

    found = scores(folder)
    lines = []
    if found.rows:
        rows = [(row["suite"], *(row.get(arm) for arm in found.arms), row["title"]) for row in found.rows]
        lines += [table(("suite", *found.arms, "scores in percent"), rows), ""]
    lines.append(f"run {folder.id} done in {clock(folder.record.seconds)}")
    if folder.report.exists():
        lines.append(f"report  {folder.report}")
    if any(record.component == "register" for record in folder.record.steps.values()):
        where = "" if folder.path.parent == Path("runs") else f" --runs-dir {folder.path.parent}"
        lines.append(f"next    hat model list{where}")
    return "\n".join(lines)


def report(
    run: Annotated[
        str | None,
        typer.Argument(help="Id of the run, the newest if none is given; or `paper`.", show_default=False),
    ] = None,
    item: Annotated[
        str | None, typer.Option("--item", help="With `paper`: the item to make, such as t14; none lists them all.")
    ] = None,
    harness: Annotated[
        str, typer.Option("--harness", help="With `paper`: the harness whose inventory is shown.")
    ] = "live-commerce",
    serving: Annotated[
        Path | None, typer.Option("--serving-profile", help="With `paper`: the serving profile that is shown.")
    ] = None,
    runs_dir: RunsDir = None,
    output: Output = None,
) -> None:
    """Render a run's report again from its results, or make an item of the source paper from one's own runs."""
    if run == "paper":
        from hatstack.cli.paper import paper

        paper(paths.runs_dir(runs_dir), item, harness, serving)
        return
    if item is not None:
        raise UsageError("--item belongs to `hat report paper`", place="hat report", cure="hat report paper --item ID")
    from hat_pipelines import run as runner_module
    from hat_pipelines import runs
    from hat_pipelines.errors import RunNotFoundError

    root = paths.runs_dir(runs_dir)
    known = runs.list_runs(root)
    if run is None and not known:
        raise RunNotFoundError("there is no run yet", place=str(root), cure="hat run --profile smoke")
    page = runner_module.render_report(root, run or known[-1], runner_module.Options(quiet=as_json()))
    emit({"run": run or known[-1], "report": str(page)}, str(page))


def evaluate(  # each parameter is an option of the command line
    model: Annotated[
        Path | None, typer.Argument(help="Folder of a trained model; none with --endpoint.", show_default=False)
    ] = None,
    profile: ProfileName = DEFAULT_PROFILE,
    overrides: Set = None,
    harness: HarnessName = None,
    endpoint: Annotated[str, typer.Option("--endpoint", help="Any OpenAI-compatible server: base URL up to /v1.")] = "",
    endpoint_model: Annotated[str, typer.Option("--endpoint-model", help="Name of the model at the endpoint.")] = "",
    endpoint_key: Annotated[
        str, typer.Option("--endpoint-key", help="Environment variable that holds the endpoint's key.")
    ] = "OPENAI_API_KEY",
    parallel: Annotated[int, typer.Option("--parallel", min=1, max=256, help="Requests in flight.")] = 8,
    timeout: Annotated[float, typer.Option("--timeout", help="Limit of one request, seconds.")] = 60.0,
    suite: Annotated[
        list[str] | None,
        typer.Option("--suite", help="Suite to score; may be repeated.", show_default="the profile's"),
    ] = None,
    name: RunName = "",
    runs_dir: RunsDir = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Evaluate a model folder, or any OpenAI-compatible endpoint, on suites."""
    from hat_pipelines import plan
    from hat_pipelines import profile as profiles
    from hat_pipelines import run as runner_module
    from hatstack.cli import evaluate_endpoint

    if (model is None) == (not endpoint):
        raise UsageError("name a model folder or an endpoint", place="hat evaluate", cure="FOLDER, or --endpoint URL")
    suites = suite or []
    if model is None:
        fixed = evaluate_endpoint.overrides(endpoint, endpoint_model, suites, endpoint_key, parallel, timeout)
    else:
        fixed = ["pipeline=evaluate"]
    root = paths.runs_dir(runs_dir)
    chosen = [*fixed, *evaluate_endpoint.suite_override(suites), *(overrides or ())]
    loaded = profiles.load(paths.profile(profile), chosen)
    inputs = {"harness": paths.harness(harness or loaded.harness), **({} if model is None else {"model": model})}
    job = plan.job(loaded, inputs)
    options = runner_module.Options(name=name or "", cache=paths.cache_dir(root), quiet=as_json(), on_open=announce)
    if dry_run:
        show_plan(root, None, job, options)
        return
    _finish(runner_module.start(job, root, options))
