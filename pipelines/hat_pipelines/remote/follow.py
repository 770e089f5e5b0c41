"""A run on a cluster as a run folder here: submit it, mirror its steps, logs and results while it goes.

The folder is like a local run's, so pages, reports and comparisons know no difference. Always holds: a follower that
died is replaced by one that goes on: the workflow bears the run's name, so nothing is submitted twice. Big artifacts
stay in the cluster's repository; what pages read is fetched. Not here: engines, the queue.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

from hat_pipelines import profile, run, runs
from hat_pipelines.errors import InterruptedRunError, PipelineError, RemoteError, RunConflictError, StepFailedError
from hat_pipelines.pod import split_log
from hat_pipelines.remote.engine import Engine, Status, StepStatus, wait
from hat_pipelines.remote.settings import Remote, read
from hat_pipelines.remote.store import Store, says_full
from hat_pipelines.runs import Fault, RunFolder

if TYPE_CHECKING:
    from hat_pipelines.desk.supervise import Ticket
    from hat_pipelines.plan import Job

SMALL = ("simulate", "collect", "import", "augment", "judge", "evaluate", "register", "report", "release", "canary")
"""Components whose artifacts are fetched; of others only config, result and progress."""
HEAD = ("config.json", "result.json", "progress.jsonl")
NAME = 52
"""Longest name of a CronWorkflow, since its workflows get eleven characters more."""


def follow(ticket: Ticket, on_open: Callable[[RunFolder], None] = lambda folder: None) -> RunFolder:
    """Carry a ticket out on its cluster. Raises StepFailedError, RemoteError, or InterruptedRunError once cancelled.

    `on_open` is called with the run folder before anything is submitted.
    """
    remote = read(ticket.remote)
    engine, store = connect(ticket.order.target, remote)
    folder = _folder(ticket)
    name = workflow_name(folder.id)
    with folder.lock():
        mirror = Mirror(folder, engine, store, name)
        try:
            on_open(folder)
            _begin(ticket, folder, engine, store, name)
            status = wait(engine, name, seen=mirror.see)
        except KeyboardInterrupt:
            engine.cancel(name)
            mirror.end("interrupted")
            raise InterruptedRunError(run=folder.path, steps=mirror.running()) from None
        except PipelineError:
            mirror.end("failed")
            raise
        _conclude(folder, mirror, status)
    return folder


def connect(target: str, remote: Remote) -> tuple[Engine, Store | None]:
    """The engine that a target means, and the artifact repository where there is one."""
    store = Store(remote.s3_bucket, remote.s3_endpoint, remote.s3_prefix) if remote.s3_bucket else None
    if target == "argo":
        from hat_pipelines.remote.argo import Argo

        return Argo.connect(remote.argo, remote.argo_namespace), store
    from hat_pipelines.remote.kfp import Kfp

    return Kfp.connect(remote), store


def workflow_name(run_id: str) -> str:
    """A run's id as a name of Kubernetes: lower case, no dots or underscores; another id never gives the same name."""
    plain = re.sub(r"[^a-z0-9-]+", "-", run_id.lower()).strip("-")[:NAME].rstrip("-")
    if plain == run_id:
        return plain
    return f"{plain[: NAME - 9].rstrip('-') or 'run'}-{hashlib.sha256(run_id.encode()).hexdigest()[:8]}"


def _folder(ticket: Ticket) -> RunFolder:
    path = ticket.root / ticket.run
    if (path / "run.json").exists():
        return runs.open_run(ticket.root, ticket.run)
    job = ticket.catalogue().job(ticket.order, ticket.root)
    record = run.record_of(job, "argo" if ticket.order.target == "argo" else "kubeflow")
    return runs.create(ticket.root, ticket.run, profile.dump(job.profile), record)


def _begin(ticket: Ticket, folder: RunFolder, engine: Engine, store: Store | None, name: str) -> None:
    """Submit the workflow unless it stands; with a resumed order, let what failed run again.

    RunConflictError when one stands that this run did not submit, such as that of a run whose folder was removed.
    """
    try:
        standing = engine.status(name)
    except RemoteError as error:
        if error.kind != "invalid_input":
            raise
        folder.save(remote=name)  # before it is sent: a follower that comes after this one knows it as the run's own
        submit(run.named(folder, run.saved_job(folder)), engine, store, name)
        return
    if not folder.record.remote:
        cure = "choose another name, or delete the workflow"
        raise RunConflictError(f"the cluster has a run called {name!r} already", place=name, cure=cure)
    if ticket.order.resume and standing.over and folder.record.state != "running":  # else a follower before has done so
        engine.retry(name)
        for step, record in folder.record.steps.items():
            if record.state != "done":
                folder.set_step(step, state="waiting", fault=None, started="", ended="", seconds=0.0)
        folder.save(state="running", ended="")


def submit(job: Job, engine: Engine, store: Store | None, name: str, *, cron: str = "") -> None:
    """Bring a job's inputs to the cluster and start it, or keep it as a schedule."""
    if store is None:
        raise RemoteError(
            "no artifact repository is set", kind="invalid_input", place="s3_bucket", cure="set s3_bucket"
        )
    engine.start_job(job, name, store, cron=cron)


class Mirror:
    """Brings a run folder up to what the engine says."""

    def __init__(self, folder: RunFolder, engine: Engine, store: Store | None, name: str) -> None:
        self._folder, self._engine, self._store, self._name = folder, engine, store, name
        self._written: dict[str, tuple[int, int]] = {}
        """Step → the try whose log was read last, and how much of it is written here."""
        self._faults: dict[str, Fault] = {}
        """What the newest try of a step said of its failure."""

    def see(self, status: Status) -> None:
        """One look."""
        if status.ident and status.ident != self._folder.record.remote:
            self._folder.save(remote=status.ident)
        for step, record in self._folder.record.steps.items():
            seen = status.steps.get(step)
            if seen is None or record.state in ("done", "skipped"):
                continue
            if seen.state in ("running", "done", "failed"):
                self._log(step, seen.tries)
            if seen.state == "done":
                self._fetch(step, record.component, seen)
            fault = self._fault(step, seen)
            if (seen.state, seen.tries, fault) != (record.state, record.tries, record.fault):
                self._set(step, seen, fault)

    def running(self) -> list[str]:
        """Steps that were under way at the end."""
        return [name for name, one in self._folder.record.steps.items() if one.state == "interrupted"]

    def end(self, state: str) -> None:
        """Close the records of what had not ended."""
        for name, one in self._folder.record.steps.items():
            if one.state == "running":
                self._folder.set_step(name, state="interrupted", ended=runs.now())
        self._folder.save(state=state, ended=runs.now())

    def _fault(self, step: str, seen: StepStatus) -> Fault | None:
        """What the step said itself, else what the engine says of its pod."""
        told = fault_of(seen)
        return self._faults.get(step, told) if seen.state == "failed" else told

    def _set(self, step: str, seen: StepStatus, fault: Fault | None) -> None:
        begun, ended = seen.started, seen.ended if seen.state != "running" else ""
        self._folder.set_step(
            step, state=seen.state, tries=seen.tries, fault=fault, started=begun, ended=ended,
            seconds=_between(begun, ended),
        )  # fmt: skip

    def _log(self, step: str, tries: int) -> None:
        """Append what is new of a step's log; lines that carry progress go to its progress file."""
        text = self._engine.logs(self._name, step)
        whole = text[: text.rfind("\n") + 1]
        if not whole:
            return
        files = self._folder.step(step)
        files.path.mkdir(parents=True, exist_ok=True)
        if step not in self._written:  # a follower before this one may have written some of it
            for path in (files.log, files.progress):
                path.unlink(missing_ok=True)
        last, before = self._written.get(step, (tries, 0))
        if last != tries:
            self._faults.pop(step, None)
        if last != tries or before > len(whole):  # a new try writes from the start; so does a log that was rotated
            before = 0
        fresh = whole[before:]
        self._written[step] = (tries, len(whole))
        plain, points, fault = split_log(fresh)
        if fault is not None:
            self._faults[step] = fault
        if plain:
            with files.log.open("a", encoding="utf-8") as stream:
                stream.write(plain)
        if points:
            with files.progress.open("a", encoding="utf-8") as stream:
                stream.write(points)

    def _fetch(self, step: str, component: str, seen: StepStatus) -> None:
        if self._store is None or not seen.output:
            return
        files = self._folder.step(step)
        whole = files.path.with_name(f".{step}.fetched")
        self._store.fetch(seen.output, whole, only=() if component in SMALL else HEAD)
        for path in sorted(whole.iterdir()):
            target = files.path / path.name
            if target.is_dir() or not target.exists() or path.name in HEAD:
                if path.is_dir():
                    shutil.rmtree(target, ignore_errors=True)
                path.replace(target)
        shutil.rmtree(whole, ignore_errors=True)


def fault_of(seen: StepStatus) -> Fault | None:
    """What an engine's word on a step means, and what to do."""
    told = seen.message
    if seen.state == "failed":
        if "OOMKilled" in told:
            cure = "give the step more memory (cluster.resources) or smaller sizes, then resume"
            return Fault(kind="exhausted", message=f"out of memory: {told}", cure=cure)
        if says_full(told):
            cure = "free space in the artifact repository, or on the node, then resume"
            return Fault(kind="exhausted", message=f"no space is left: {told}", cure=cure)
        if "deadline" in told.lower():
            return Fault(kind="exhausted", message=told, cure="raise the step's time limit, then resume")
        if any(word in told.lower() for word in ("exit code 137", "exit code 143", "deleted", "evicted")):
            cure = "resume: finished steps are kept; raise cluster.retries if pods are lost often"
            return Fault(kind="unavailable", message=f"the pod was lost: {told}", cure=cure)
        return Fault(kind="internal", message=told or "the pod failed", cure="read the log, then resume")
    if told and seen.state == "running":
        cure = "make the secret, or the node, that is missing" if "secret" in told.lower() else "see the pod"
        return Fault(kind="unavailable", message=told, cure=cure)
    return None


def _between(begun: str, ended: str) -> float:
    if not (begun and ended):
        return 0.0
    one, other = (datetime.datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (begun, ended))
    return round(max(0.0, (other - one).total_seconds()), 3)


def _conclude(folder: RunFolder, mirror: Mirror, status: Status) -> None:
    mirror.see(status)
    began = _first(folder)
    folder.save(seconds=_between(began, runs.now()))
    if status.state == "done":
        for name, one in folder.record.steps.items():
            if one.state == "waiting":
                folder.set_step(name, state="skipped", ended=runs.now())
        run.publish_report(folder)
        folder.save(state="done", ended=runs.now())
        return
    mirror.end("interrupted" if status.state == "cancelled" else "failed")
    if status.state == "cancelled":
        raise InterruptedRunError(run=folder.path, steps=mirror.running())
    failed = next((name for name, one in folder.record.steps.items() if one.state == "failed"), "")
    fault = folder.record.steps[failed].fault if failed else None
    if fault is None:
        fault = Fault(
            kind="internal", message=status.message or "the workflow failed", cure="read the engine's own page"
        )
    raise StepFailedError(
        f"step {failed or '?'} failed: {fault.message}",
        step=failed,
        kind=fault.kind,
        place=status.name,
        cure=fault.cure,
    )


def _first(folder: RunFolder) -> str:
    return min((one.started for one in folder.record.steps.values() if one.started), default=folder.record.started)
