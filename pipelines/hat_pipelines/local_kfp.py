"""Runs a job by KFP's own local runner, so that the compiled pipeline is what is executed.

KFP runs in a process of its own; its tasks write the run's step folders, which is where this module reads how far they
are. Always holds: the same artifacts as the local runner's, since the step functions are the same. Not here: caching
and resuming, which KFP's local runner would do by its own rules; a run by it starts from the beginning.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from hat_pipelines import worker
from hat_pipelines.errors import InterruptedRunError, StepFailedError
from hat_pipelines.plan import Job
from hat_pipelines.pod import RUN_VARIABLE
from hat_pipelines.runs import Fault, RunFolder, now
from hat_pipelines.schedule import TICK_S, Display


@dataclass(frozen=True)
class _Order:
    """What KFP's process needs to know."""

    folder: Path
    job: Job
    log: Path


def run_kfp(folder: RunFolder, job: Job, screen: Display) -> None:
    """Run every step. Raises StepFailedError or InterruptedRunError once nothing is left running."""
    log = folder.path / "kfp.log"
    with worker.thread_variables(job.profile.local.threads):
        process = multiprocessing.get_context("spawn").Process(target=_main, args=(_Order(folder.path, job, log),))
        process.start()
    attempt = worker.Attempt(process, None)
    try:
        while attempt.exit_code() is None:
            wait([attempt.sentinel], timeout=TICK_S)
            _look(folder, screen)
            screen.tick()
    except KeyboardInterrupt:
        worker.stop([attempt])
        _look(folder, screen)
        ended = _close(folder, screen, "interrupted")
        raise InterruptedRunError(run=folder.path, steps=ended) from None
    finally:
        worker.stop([attempt])
        shutil.rmtree(folder.path / ".kfp", ignore_errors=True)
    _look(folder, screen)
    _conclude(folder, job, attempt, screen, log)


def _look(folder: RunFolder, screen: Display) -> None:
    """Bring the records up to what stands in the step folders."""
    for name, record in folder.record.steps.items():
        files = folder.step(name)
        if record.state == "waiting" and files.config.exists():
            folder.set_step(name, state="running", started=now(), tries=1)
            screen.changed(name)
            record = folder.record.steps[name]
        if record.state != "running":
            continue
        outcome = worker.read_outcome(files.outcome)
        if files.result.exists():
            folder.set_step(name, state="done", ended=now(), seconds=_seconds(files.config, files.result))
            screen.changed(name)
        elif isinstance(outcome, Fault):
            folder.set_step(name, state="failed", ended=now(), fault=outcome)
            screen.changed(name)


def _seconds(begin: Path, end: Path) -> float:
    return round(max(0.0, end.stat().st_mtime - begin.stat().st_mtime), 3)


def _close(folder: RunFolder, screen: Display, state: str) -> list[str]:
    """Mark steps that were running; returns their names."""
    names = [name for name, record in folder.record.steps.items() if record.state == "running"]
    for name in names:
        folder.step(name).discard()
        folder.set_step(name, state=state, ended=now())
        screen.changed(name)
    return names


def _conclude(folder: RunFolder, job: Job, attempt: worker.Attempt, screen: Display, log: Path) -> None:
    failed = next(((n, r.fault) for n, r in folder.record.steps.items() if r.state == "failed"), None)
    if failed is None and attempt.exit_code() != 0:
        names = _close(folder, screen, "failed")
        message = f"KFP's local runner ended with code {attempt.exit_code()}"
        failed = (names[0] if names else job.dag.name, Fault(kind="internal", message=message, place=str(log)))
    if failed is not None:
        name, fault = failed
        assert fault is not None, "a failed step says why"
        told = f"step {name} failed: {fault.message}"
        raise StepFailedError(told, step=name, kind=fault.kind, place=fault.place, cure=fault.cure)
    for name, record in folder.record.steps.items():
        if record.state == "waiting":
            folder.set_step(name, state="skipped", ended=now())
            screen.changed(name)


def _main(order: _Order) -> None:
    """Body of KFP's process: compile the job's pipeline and run it."""
    os.setpgid(0, 0)
    worker.end_with_parent()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    worker.redirect(order.log)
    os.environ.update(order.job.environment)
    os.environ[RUN_VARIABLE] = str(order.folder.resolve())
    os.environ.setdefault("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    try:
        sys.exit(_run(order.folder, order.job))
    except KeyboardInterrupt:
        sys.exit(worker.INTERRUPTED)


def _run(folder: Path, job: Job) -> int:
    from kfp import local

    from hat_pipelines.to_kfp import to_kfp

    configs = {name: config.model_dump(mode="json") for name, config in job.configs.items()}
    pipeline = to_kfp(job.dag, job.profile, configs, retries=False)
    # KFP removes its workspace after every run, so each gets one of its own
    workspace = tempfile.mkdtemp(prefix="hatstack-kfp-")
    local.init(
        runner=local.SubprocessRunner(use_venv=False),
        pipeline_root=str(folder.resolve() / ".kfp"),
        workspace_root=workspace,
        raise_on_error=True,
    )
    arguments: dict[str, Any] = {name: str(brought.path) for name, brought in job.inputs.items()}
    pipeline(**arguments)
    return 0
