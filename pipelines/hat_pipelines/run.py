"""Starts and resumes runs: the one entry for whoever runs a pipeline on this machine.

    job = plan.job(profile.load(path), {"harness": folder})
    folder = start(job, Path("runs"), Options())

Always holds: a new run gets a folder of its own or RunConflictError; a run resumes only under the identical saved
config, inputs and code; however it ends, `run.json` says how. Not here: the command line (hatstack.cli).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from hat_components.data import digest_path
from hat_components.step import StepResult
from hat_pipelines import display, plan, profile, runs
from hat_pipelines.cache import Cache, code_digest
from hat_pipelines.dag import parents
from hat_pipelines.errors import (
    InterruptedRunError,
    RunConflictError,
    RunNotFoundError,
    StepFailedError,
    resumption,
)
from hat_pipelines.plan import Job
from hat_pipelines.runs import InputRecord, RunFolder, Runner, RunRecord, StepRecord, now
from hat_pipelines.schedule import Schedule

VERSIONS = ("hatstack", "torch", "transformers", "tokenizers", "numpy", "trl", "mlflow", "pydantic")


@dataclass(frozen=True)
class Options:
    """How to run, apart from what."""

    name: str = ""
    """Name of a new run; "": the profile's name and the time."""
    from_step: str = ""
    """Run this step and all behind it again."""
    only: tuple[str, ...] = ()
    """Run these steps and what they need, nothing else."""
    cache: Path | None = None
    """Folder of the result cache; None: no cache."""
    quiet: bool = False
    """Show no progress."""
    runner: Literal["local", "kfp"] = "local"
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for every step's process (where MLflow is); they are no part of what fixes the result."""
    on_open: Callable[[RunFolder], None] | None = None
    """Called with the run folder before the first step starts."""


def start(job: Job, root: Path, options: Options) -> RunFolder:
    """Run a job in a new folder below `root`. Raises RunConflictError, StepFailedError or InterruptedRunError."""
    selected = plan.selection(job.dag, options.only)
    record = record_of(job, options.runner)
    folder = runs.create(root, options.name, profile.dump(job.profile), record)
    with folder.lock():
        _execute(folder, job, options, selected, frozenset())
    return folder


def resume(ident: str, root: Path, options: Options, job: Job | None = None) -> RunFolder:
    """Go on with a run. `job`, where given, must be what it was started with; RunConflictError says what differs."""
    folder, saved = _resumable(ident, root, job)
    selected = plan.selection(saved.dag, options.only)
    again = plan.forced(saved.dag, options.from_step)
    with folder.lock():
        folder.save(state="running", ended="")
        _execute(folder, saved, options, selected | again, again)
    return folder


def _resumable(ident: str, root: Path, job: Job | None) -> tuple[RunFolder, Job]:
    """The run and the job it was started with. RunConflictError when `job` or the code is another one."""
    folder = runs.open_run(root, ident)
    saved = saved_job(folder)
    if job is not None and config_digest(job) != folder.record.config:
        raise RunConflictError(
            f"run {ident} was started under another config: {_difference(saved, job)}",
            place=str(folder.profile),
            cure=f"{resumption(folder.path)} without --profile and --set, or start a new run",
        )
    if folder.record.code != code_digest():
        raise RunConflictError(
            f"the code changed since run {ident} was started, so its end would not be the same",
            place=str(folder.path),
            cure="start a new run; steps whose result is in the cache are not computed again",
        )
    return folder, saved


def saved_job(folder: RunFolder) -> Job:
    """The job that a run was started with; RunConflictError when a file that it brought is gone or differs."""
    loaded = profile.load(folder.profile, imported=folder.record.imported)
    inputs = {name: Path(brought.path) for name, brought in folder.record.inputs.items()}
    for name, brought in folder.record.inputs.items():
        path = Path(brought.path)
        if not path.exists() or digest_path(path) != brought.digest:
            raise RunConflictError(
                f"the input {name!r} is gone or has changed since the run was started",
                place=brought.path,
                cure="restore it, or start a new run",
            )
    return plan.job(loaded, inputs, imported=folder.record.imported)


def config_digest(job: Job) -> str:
    """Digest of the resolved profile and of the files that the run brings."""
    text = profile.dump(job.profile) + "".join(f"{n}\t{b.digest}\n" for n, b in sorted(job.inputs.items()))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def preview(root: Path, ident: str | None, job: Job | None, options: Options) -> list[plan.Planned]:
    """What `start` or, with `ident`, `resume` would do with each step; changes nothing."""
    cache = Cache(options.cache) if options.cache else None
    if ident is None:
        if job is None:
            raise ValueError("a new run needs a job")
        if options.name and (root / options.name).exists():
            raise RunConflictError(f"a run called {options.name!r} stands already", place=str(root / options.name))
        return plan.preview(job, cache, plan.selection(job.dag, options.only), {})
    folder, saved = _resumable(ident, root, job)
    again = plan.forced(saved.dag, options.from_step)
    kept = plan.finished(folder, named(folder, saved), again)
    return plan.preview(saved, cache, plan.selection(saved.dag, options.only) | again, kept)


def render_report(root: Path, ident: str, options: Options) -> Path:
    """Run the report step of a finished run again; returns the page. RunNotFoundError when the run has none."""
    folder = runs.open_run(root, ident)
    names = [name for name, record in folder.record.steps.items() if record.component == "report"]
    if not names:
        raise RunNotFoundError(f"pipeline {folder.record.pipeline} has no report step", place=str(folder.path))
    job = named(folder, saved_job(folder))
    with folder.lock():
        results = plan.finished(folder, job, frozenset(names), same_code=False)
        missing = sorted(set().union(*(parents(job.dag.step(name)) for name in names)) - results.keys())
        if missing:
            cure = resumption(folder.path)
            raise RunNotFoundError(f"the report needs {', '.join(missing)}", place=str(folder.path), cure=cure)
        _forget(folder, set(names))
        _steps(folder, job, replace(options, cache=None), frozenset(names), results)
        page = publish_report(folder)
    assert page is not None, "a report step that ended well has a report"
    return page


def record_of(job: Job, runner: Runner = "local") -> RunRecord:
    """The record that a run of this job begins with."""
    return RunRecord(
        id="",
        pipeline=job.dag.name,
        profile=job.profile.name,
        config=config_digest(job),
        code=code_digest(),
        imported="data" in job.inputs,
        inputs={name: InputRecord(path=str(b.path), digest=b.digest) for name, b in job.inputs.items()},
        runner=runner,
        started=now(),
        steps={step.name: StepRecord(component=step.component) for step in job.dag.every()},
        versions=_versions(),
        host={"cores": os.cpu_count(), "platform": platform.platform(terse=True), "python": platform.python_version()},
    )


def _versions() -> dict[str, str]:
    found = {}
    for name in VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _execute(folder: RunFolder, job: Job, options: Options, selected: frozenset[str], again: frozenset[str]) -> None:
    if options.on_open:
        options.on_open(folder)
    job = named(folder, job)
    results = plan.finished(folder, job, again)
    forgotten = {step.name for step in job.dag.steps if step.name in selected} - results.keys()
    _forget(folder, forgotten | ({job.dag.on_exit.name} if job.dag.on_exit else set()) & folder.record.steps.keys())
    began, before, state = time.monotonic(), folder.record.seconds, "failed"
    try:
        _steps(folder, job, options, selected, results)
        publish_report(folder)
        left = any(folder.record.steps[step.name].state == "waiting" for step in job.dag.steps)
        state = "partial" if left else "done"
    except InterruptedRunError:
        state = "interrupted"
        raise
    except StepFailedError as error:
        log = folder.step(error.step).log
        error.log = str(log) if log.exists() else ""
        error.resume = resumption(folder.path)
        raise
    finally:
        folder.save(state=state, ended=now(), seconds=round(before + time.monotonic() - began, 3))


def _steps(
    folder: RunFolder, job: Job, options: Options, selected: frozenset[str], results: Mapping[str, StepResult]
) -> None:
    shown = [step.name for step in job.dag.steps if step.name in selected]
    job = replace(job, environment=options.environment)
    with _termination(), display.pick(folder, shown, quiet=options.quiet) as screen:
        if options.runner == "kfp":
            from hat_pipelines.local_kfp import run_kfp

            run_kfp(folder, job, screen)
            return
        cache = Cache(options.cache) if options.cache else None
        Schedule(folder, job, selected=selected, kept=results, cache=cache, display=screen).run()


def named(folder: RunFolder, job: Job) -> Job:
    """The job with what only the run knows filled into the configs that ask for it: its id and its digests."""
    known = {"run": folder.id, "profile": folder.record.config, "code": folder.record.code}
    configs = {}
    for name, config in job.configs.items():
        update = {key: value for key, value in known.items() if getattr(config, key, None) == ""}
        configs[name] = config.model_copy(update=update)
    return replace(job, configs=configs)


def _forget(folder: RunFolder, names: set[str]) -> None:
    """Put the steps that will run back to the start; what an earlier try left of them is removed."""
    steps = dict(folder.record.steps)
    for name in sorted(names):
        unfinished = steps[name].state in ("running", "interrupted")
        folder.step(name).clear(keep_work=unfinished)
        steps[name] = StepRecord(component=steps[name].component, key=steps[name].key if unfinished else "")
    folder.save(steps=steps)


def publish_report(folder: RunFolder) -> Path | None:
    """Copy the report of the run's report step to `report.html`; None when there is none."""
    for name, record in folder.record.steps.items():
        source = folder.step(name).artifact("report") if record.component == "report" else None
        if source is not None:
            page = source / "report.html" if source.is_dir() else source
            part = folder.report.with_name(".report.part")
            shutil.copyfile(page, part)
            part.replace(folder.report)
            return folder.report
    return None


@contextmanager
def _termination() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, so that a run that is asked to end leaves the same record."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _difference(saved: Job, given: Job) -> str:
    """Where two jobs differ, in few words."""
    old, new = saved.profile.model_dump(mode="json"), given.profile.model_dump(mode="json")
    found = [path for path, _ in _leaves(old, new)]
    found += [
        f"input {n}"
        for n in sorted(saved.inputs.keys() | given.inputs.keys())
        if saved.inputs.get(n) != given.inputs.get(n)
    ]
    shown = ", ".join(found[:5]) or "its version of the profile format"
    return shown + (f" and {len(found) - 5} more" if len(found) > 5 else "")


def _leaves(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _leaves(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif old != new:
        yield path, new
