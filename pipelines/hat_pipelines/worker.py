"""One process per step: started from a server that has the heavy imports loaded, ended with everything it started.

The server (multiprocessing's forkserver) imports what steps share once; a step is a fork of it, so five steps pay for
`import torch` once, and each still has a process of its own: memory, signals, logs and crashes stay apart.
Always holds: a step's process leads a process group, which is ended with it; when the runner dies, it ends too.
Not here: order, cache and records (run).
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from hat_components.step import StepResult
from hat_pipelines.runs import Fault, write_json

OK, FAILED, INTERRUPTED = 0, 1, 130
GRACE_S = 5.0
"""Seconds that a step gets to end by itself after SIGTERM, before SIGKILL."""
HEAVY = ("base", "sft", "evaluate", "opd", "rl", "mtp")
"""Components that import torch."""
RESUMABLE = ("base", "sft", "opd", "rl", "mtp")
"""Components that go on from their own checkpoints when they are given their unfinished work."""
LIGHT = ("hat_pipelines.execute",)
PRELOAD = ("torch", "transformers", "safetensors.torch")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Task:
    """What a step's process needs to know. All paths are absolute."""

    component: str
    config: Path
    inputs: Mapping[str, Path]
    out: Path
    progress: Path
    outcome: Path
    """File that gets the step's result or fault."""
    log: Path
    threads: int
    environment: Mapping[str, str]
    """Variables to set for the step."""


class Attempt:
    """A running step."""

    def __init__(self, process: Any, limit_s: float | None) -> None:
        self._process = process
        self.started = time.monotonic()
        self.limit_s = limit_s

    @property
    def sentinel(self) -> int:
        """What `multiprocessing.connection.wait` waits on."""
        return int(self._process.sentinel)

    @property
    def seconds(self) -> float:
        """Wall time since the start."""
        return time.monotonic() - self.started

    @property
    def overdue(self) -> bool:
        """Whether the time limit has passed."""
        return self.limit_s is not None and self.seconds > self.limit_s

    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        code: int | None = self._process.exitcode
        return code

    def signal(self, number: int) -> None:
        """Send a signal to the step and everything it started."""
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            if self.exit_code() is None:  # so young that it leads no group yet
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._process.pid, number)


class Workers:
    """Starts steps. Use as a context manager: leaving it ends whatever still runs.

    Where a run has heavy steps the server imports torch and its like, and light steps, which need not wait for that,
    are started afresh. The server lives as long as this process; a later run finds it as the first one left it.
    """

    def __init__(self, threads: int, heavy: bool) -> None:
        self._threads = threads
        self._server = multiprocessing.get_context("forkserver")
        self._light = multiprocessing.get_context("spawn") if heavy else self._server
        self._alive: list[Attempt] = []
        self._server.set_forkserver_preload([*LIGHT, *(PRELOAD if heavy else ())])
        with thread_variables(threads), _deaf():
            forkserver.ensure_running()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exc: object) -> None:
        stop(self._alive)

    def start(self, task: Task, limit_s: float | None = None) -> Attempt:
        """Start a step's process."""
        context = self._server if task.component in HEAVY else self._light
        with thread_variables(self._threads), _deaf():
            process = context.Process(target=main, args=(task,), name=f"hat-{task.component}")
            process.start()
        attempt = Attempt(process, limit_s)
        self._alive = [other for other in self._alive if other.exit_code() is None] + [attempt]
        return attempt


def stop(attempts: Sequence[Attempt], grace_s: float = GRACE_S) -> None:
    """Ask all to end, wait up to `grace_s`, then end them; returns when none is left."""
    running = [attempt for attempt in attempts if attempt.exit_code() is None]
    for attempt in running:
        attempt.signal(signal.SIGTERM)  # ends one at once that is too young to have a handler for it
    deadline = time.monotonic() + grace_s
    while running and (left := deadline - time.monotonic()) > 0:
        wait([attempt.sentinel for attempt in running], timeout=left)
        running = [attempt for attempt in running if attempt.exit_code() is None]
    for attempt in attempts:
        attempt.signal(signal.SIGKILL)
    while running:
        wait([attempt.sentinel for attempt in running])
        running = [attempt for attempt in running if attempt.exit_code() is None]


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which a terminal sends to all of them: ending them is the runner's part."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def thread_variables(threads: int) -> Iterator[None]:
    """Thread variables as the children must find them before they import numpy or torch."""
    saved = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update({name: str(threads) for name in THREAD_VARIABLES})
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def main(task: Task) -> None:
    """Body of a step's process."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    end_with_parent()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    redirect(task.log)
    os.environ.update({name: str(task.threads) for name in THREAD_VARIABLES})
    os.environ.update(task.environment)
    try:
        _limit_threads(task.threads)
        from hat_pipelines.execute import execute

        outcome = execute(task.component, task.config, task.inputs, task.out, task.progress)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
    write_outcome(task.outcome, outcome)
    sys.exit(OK if isinstance(outcome, StepResult) else FAILED)


def write_outcome(path: Path, outcome: StepResult | Fault) -> None:
    """Write what came of a step."""
    kind = "result" if isinstance(outcome, StepResult) else "fault"
    write_json(path, {kind: outcome.model_dump(mode="json")})


def read_outcome(path: Path) -> StepResult | Fault | None:
    """What came of a step; None when its process ended without saying."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if "result" in data:
        return StepResult.model_validate(data["result"])
    return Fault.model_validate(data["fault"])


def redirect(log: Path) -> None:
    """Send stdout and stderr of this process and its children to the log; stdin reads nothing."""
    sys.stdout.flush()
    sys.stderr.flush()
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    empty = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((empty, 0), (handle, 1), (handle, 2)):
        os.dup2(source, target)
    os.close(handle)
    os.close(empty)


def end_with_parent() -> None:
    """End this process group as soon as the runner is gone, even if that was killed."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch(sentinel: int) -> None:
        wait([sentinel])
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, args=(parent.sentinel,), daemon=True, name="parent-watch").start()


def _limit_threads(threads: int) -> None:
    """Bound torch's threads where the server has loaded it already; the variables do it elsewhere."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
