"""Runs the steps of a plan: starts what is ready, settles what has ended, records how far it came.

Always holds: a step's artifacts and result appear under their final names together or not at all; after an error or a
signal no process of the run is left and every step's record says how it ended. Not here: what is to be done (plan),
processes (worker), what is shown (display).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from multiprocessing.connection import wait
from pathlib import Path
from typing import Protocol

from hat_components.step import StepResult
from hat_pipelines import worker
from hat_pipelines.cache import Cache
from hat_pipelines.dag import INPUT, Step, parents, source
from hat_pipelines.errors import InterruptedRunError, StepFailedError
from hat_pipelines.plan import Job
from hat_pipelines.runs import Fault, RunFolder, StepFolder, now

TICK_S = 0.2
"""How often the display is given new progress while nothing ends."""
BACKOFF_S = 2.0
"""Wait before the first retry; doubled for each further one."""


class Display(Protocol):
    """What watches a run. Every method is called from the runner's one thread."""

    def changed(self, step: str) -> None:
        """The record of a step changed."""

    def tick(self) -> None:
        """Time passed; progress files may have grown."""


class Schedule:
    """One execution of one run. Call `run` once."""

    def __init__(
        self,
        folder: RunFolder,
        job: Job,
        *,
        selected: frozenset[str],
        kept: Mapping[str, StepResult],
        cache: Cache | None,
        display: Display,
    ) -> None:
        self._folder = folder
        self._job = job
        self._cache = cache
        self._display = display
        self._results: dict[str, StepResult] = dict(kept)
        self._left = [step for step in job.dag.steps if step.name in selected and step.name not in kept]
        self._skipped: set[str] = set()
        self._running: dict[str, worker.Attempt] = {}
        self._not_before: dict[str, float] = {}

    def run(self) -> None:
        """Run until nothing is left. Raises StepFailedError or InterruptedRunError once everything has been stopped."""
        heavy = any(step.component in worker.HEAVY for step in self._left)
        try:
            with worker.Workers(self._job.profile.local.threads, heavy) as workers:
                try:
                    while self._left or self._running:
                        self._start_ready(workers)
                        self._wait()
                        for name in [n for n, attempt in self._running.items() if attempt.exit_code() is not None]:
                            self._settle(name)
                finally:
                    self._stop_running()
                    self._exit(workers)
        except KeyboardInterrupt:
            raise InterruptedRunError(run=self._folder.path, steps=self._interrupted()) from None

    def _exit(self, workers: worker.Workers) -> None:
        """Run the exit handler, however the run ended; that it fails is on its record and changes no other ending."""
        step = self._job.dag.on_exit
        if step is None or step.name not in self._folder.record.steps:
            return
        try:
            self._begin(step, workers)
            while self._running:
                self._wait()
                for name in [n for n, attempt in self._running.items() if attempt.exit_code() is not None]:
                    self._settle(name)
        except (StepFailedError, OSError):
            return
        finally:
            self._left.clear()
            self._stop_running()

    def _interrupted(self) -> list[str]:
        return [name for name, record in self._folder.record.steps.items() if record.state == "interrupted"]

    def _start_ready(self, workers: worker.Workers) -> None:
        for step in list(self._left):
            if len(self._running) >= self._job.profile.local.parallel:
                return
            if parents(step) & self._skipped or not self._wanted(step):
                self._skip(step)
            elif parents(step) <= self._results.keys() and self._not_before.get(step.name, 0) <= time.monotonic():
                self._left.remove(step)
                self._begin(step, workers)

    def _wanted(self, step: Step) -> bool:
        """False when the step's condition is known not to hold."""
        if step.when is None or step.when.step not in self._results:
            return True
        observed = self._results[step.when.step].metrics.get(step.when.metric)
        if observed is None:
            message = f"its condition needs the metric {step.when.metric!r}, which {step.when.step} did not report"
            raise StepFailedError(message, step=step.name, kind="internal", place=step.name)
        return step.when.holds(observed)

    def _skip(self, step: Step) -> None:
        self._left.remove(step)
        self._skipped.add(step.name)
        self._set(step.name, state="skipped", ended=now())

    def _begin(self, step: Step, workers: worker.Workers) -> None:
        digests = self._job.digests(step, self._results)
        assert digests is not None, "a step begins only when its inputs stand"
        key = self._job.key(step, digests)
        inputs = self._paths(step)
        files = self._folder.step(step.name)
        record = self._folder.record.steps[step.name]
        keep = step.component in worker.RESUMABLE and record.key == key
        files.prepare(self._job.configs[step.name].model_dump(mode="json"), keep_work=keep)
        hit = self._cache.find(key) if self._cache and step.cache else None
        tries = record.tries
        if hit is not None and self._cache is not None:
            self._cache.take(key, hit, files)
            self._results[step.name] = hit
            self._set(step.name, state="cached", key=key, started=now(), ended=now(), seconds=0.0, fault=None)
            return
        self._set(step.name, state="running", key=key, started=now(), ended="", tries=tries + 1, fault=None)
        task = worker.Task(
            component=step.component,
            config=files.config,
            inputs=inputs,
            out=files.work,
            progress=files.progress,
            outcome=files.outcome,
            log=files.log,
            threads=self._job.profile.local.threads,
            environment=self._job.environment,
        )
        self._running[step.name] = workers.start(task, step.time_limit_s)

    def _paths(self, step: Step) -> dict[str, Path]:
        paths: dict[str, Path] = {}
        for name, need in step.needs.items():
            origin, artifact = source(need)
            if origin == INPUT:
                paths[name] = self._job.inputs[artifact].path
                continue
            path = self._folder.step(origin).artifact(artifact)
            if path is None:
                raise StepFailedError(
                    f"step {origin} made no {artifact!r}, which {step.name} needs", step=step.name, kind="internal"
                )
            paths[name] = path
        return {name: path.resolve() for name, path in paths.items()}

    def _wait(self) -> None:
        sentinels = [attempt.sentinel for attempt in self._running.values()]
        if sentinels:
            wait(sentinels, timeout=TICK_S)
        elif self._left and (delays := [self._not_before[s.name] for s in self._left if s.name in self._not_before]):
            time.sleep(max(0.0, min(min(delays) - time.monotonic(), TICK_S)))
        for name, attempt in self._running.items():
            if attempt.overdue and attempt.exit_code() is None:
                worker.stop([attempt])
                self._not_before.pop(name, None)
        self._display.tick()

    def _settle(self, name: str) -> None:
        attempt = self._running.pop(name)
        attempt.signal(signal.SIGKILL)  # whatever the step started and left behind
        step = self._job.dag.step(name)
        files = self._folder.step(name)
        ending = {"ended": now(), "seconds": round(attempt.seconds, 3)}
        outcome = worker.read_outcome(files.outcome)
        if attempt.exit_code() == worker.OK and isinstance(outcome, StepResult):
            files.publish(outcome)
            self._results[name] = outcome
            self._set(name, state="done", **ending)
            if self._cache and step.cache:
                self._cache.put(self._folder.record.steps[name].key, files)
            return
        fault = outcome if isinstance(outcome, Fault) else self._crash(step, attempt, files)
        files.discard()
        if fault.kind == "unavailable" and self._folder.record.steps[name].tries <= step.retries:
            delay = BACKOFF_S * 2 ** (self._folder.record.steps[name].tries - 1)
            self._not_before[name] = time.monotonic() + delay
            self._left.append(step)
            self._set(name, state="waiting", fault=fault, **ending)
            return
        self._set(name, state="failed", fault=fault, **ending)
        raise StepFailedError(
            f"step {name} failed: {fault.message}",
            step=name,
            kind=fault.kind,
            place=fault.place,
            cure=fault.cure,
        )

    def _crash(self, step: Step, attempt: worker.Attempt, files: StepFolder) -> Fault:
        """What is to be said of a process that ended without saying anything."""
        code = attempt.exit_code()
        if attempt.overdue:
            return Fault(
                kind="exhausted",
                message=f"it ran past its time limit of {attempt.limit_s:g} s",
                cure="raise the time limit",
            )
        if code == -9:
            cure = "it was probably out of memory: use smaller sizes, or a machine with more"
            return Fault(kind="exhausted", message="the process was killed", place=str(files.log), cure=cure)
        return Fault(
            kind="internal", message=f"the process ended with code {code}", place=str(files.log), cure="read the log"
        )

    def _stop_running(self) -> None:
        """End what still runs and mark it interrupted; unfinished work is removed, but for checkpoints to go on from."""
        worker.stop(list(self._running.values()))
        for name, attempt in self._running.items():
            if self._job.dag.step(name).component not in worker.RESUMABLE:
                self._folder.step(name).discard()
            self._set(name, state="interrupted", ended=now(), seconds=round(attempt.seconds, 3))
        self._running.clear()

    def _set(self, name: str, **changes: object) -> None:
        self._folder.set_step(name, **changes)
        self._display.changed(name)
