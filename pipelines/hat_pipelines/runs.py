"""Run folders: `runs/<id>/{profile.yaml, run.json, report.html, steps/<step>/…}` and the record in them.

Always holds: an id is given once and never again; `run.json` (`hatstack.run/1`) is replaced whole, so a reader sees
the state before or after a change; one process at a time works in a run (a lock that dies with its holder).
Not here: which step runs when (run), what a step's process does (worker).
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hat_components.step import StepResult
from hat_harness.errors import Kind
from hat_pipelines.dag import PROGRESS, suggest
from hat_pipelines.errors import RunConflictError, RunNotFoundError, resumption

FORMAT = "hatstack.run/1"
RUN_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
State = Literal["waiting", "running", "done", "cached", "skipped", "failed", "interrupted"]
FINISHED: tuple[State, ...] = ("done", "cached")
Runner = Literal["local", "kfp", "argo", "kubeflow"]
"""Who runs the steps: this machine, KFP's local runner, Argo Workflows or Kubeflow Pipelines on a cluster."""


class Record(BaseModel):
    """Base of the records here: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Fault(Record):
    """Why a step failed, in the shape that every interface reports errors in."""

    kind: Kind
    message: str
    place: str = ""
    cure: str = ""


class StepRecord(Record):
    """What is known of one step of a run."""

    component: str
    state: State = "waiting"
    key: str = ""
    """Digest of component, code, config and inputs; equal keys have equal results."""
    started: str = ""
    """UTC, ISO 8601; "" before."""
    ended: str = ""
    seconds: float = 0.0
    """Wall time of the last try."""
    tries: int = 0
    fault: Fault | None = None


class InputRecord(Record):
    """A file or folder that the run brought from outside."""

    path: str
    digest: str


class RunRecord(Record):
    """`run.json`: what ran, from what, how far it came."""

    format: Literal["hatstack.run/1"] = "hatstack.run/1"
    id: str
    pipeline: str
    profile: str
    """Name of the profile."""
    config: str
    """Digest of the resolved profile; a run resumes only under the same one."""
    code: str
    """Digest of the packages that steps are made of."""
    imported: bool = False
    """Whether the conversations came from a file."""
    inputs: dict[str, InputRecord] = Field(default_factory=dict)
    runner: Runner = "local"
    remote: str = ""
    """What the cluster's engine calls the run, for links to its pages; "" on this machine."""
    state: Literal["running", "done", "partial", "failed", "interrupted"] = "running"
    """`partial`: all steps that were asked for are done, and others were left out."""
    started: str
    ended: str = ""
    seconds: float = 0.0
    """Wall time spent on it, all resumptions together."""
    steps: dict[str, StepRecord] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    """Package → version, of those that a result can depend on."""
    host: dict[str, Any] = Field(default_factory=dict)
    """Cores, memory and platform; no names."""


def now() -> str:
    """The present time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file so that its final name only ever holds all of it."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file so that its final name only ever holds all of it."""
    part = path.with_name(f".{path.name}.part{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


class StepFolder:
    """`steps/<step>/` of a run.

    `work` is where a step writes; it takes the name `artifacts` when it is whole. `outcome` is how the step's process
    tells the runner what came of it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.result = path / "result.json"
        self.progress = path / "progress.jsonl"
        self.log = path / "log.txt"
        self.artifacts = path / "artifacts"
        self.work = path / ".work"
        self.outcome = path / ".outcome.json"

    def prepare(self, config: Mapping[str, Any], *, keep_work: bool = False) -> None:
        """Make room for a try: the config stands, everything of an earlier try is gone.

        With `keep_work` its work, progress and log stay, to be gone on with.
        """
        self.clear(keep_work=keep_work)
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.config, config)
        self.work.mkdir(exist_ok=True)

    def clear(self, *, keep_work: bool = False) -> None:
        """Remove what an earlier try left; the result goes first, so that no reader finds it without artifacts."""
        for path in (self.result, self.outcome):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.artifacts, ignore_errors=True)
        if not keep_work:
            for path in (self.progress, self.log):
                path.unlink(missing_ok=True)
            self.discard()

    def discard(self) -> None:
        """Remove unfinished work."""
        shutil.rmtree(self.work, ignore_errors=True)

    def publish(self, result: StepResult) -> None:
        """Give the finished work its final names: artifacts first, then the result that lists them."""
        shutil.rmtree(self.artifacts, ignore_errors=True)
        self.work.replace(self.artifacts)
        write_json(self.result, result.model_dump(mode="json"))
        self.outcome.unlink(missing_ok=True)

    def read_result(self) -> StepResult | None:
        """The result, or None when the step has not finished."""
        try:
            return StepResult.model_validate_json(self.result.read_bytes())
        except (OSError, ValidationError):
            return None

    def artifact(self, name: str) -> Path | None:
        """Path of an artifact of the finished step, or None. Every step has the artifact `progress`, its curves."""
        if name == PROGRESS:
            return self.progress if self.progress.exists() else None
        result = self.read_result()
        return self.artifacts / result.artifacts[name] if result and name in result.artifacts else None


class RunFolder:
    """One run on disk. Get one by `create` or `open_run`."""

    def __init__(self, path: Path, record: RunRecord) -> None:
        self.path = path
        self.record = record

    @property
    def id(self) -> str:
        """The run's id, which is its folder's name."""
        return self.path.name

    @property
    def profile(self) -> Path:
        """The resolved profile that the run was started with."""
        return self.path / "profile.yaml"

    @property
    def report(self) -> Path:
        """The rendered report; it stands once the run is done."""
        return self.path / "report.html"

    def step(self, name: str) -> StepFolder:
        """The folder of one step."""
        return StepFolder(self.path / "steps" / name)

    def save(self, **changes: Any) -> None:
        """Change fields of the record and write it."""
        self.record = self.record.model_copy(update=changes)
        write_json(self.path / "run.json", self.record.model_dump(mode="json"))

    def set_step(self, name: str, **changes: Any) -> None:
        """Change fields of one step's record and write the run's."""
        step = self.record.steps[name].model_copy(update=changes)
        self.save(steps={**self.record.steps, name: step})

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process; RunConflictError while another one does. The lock dies with its holder."""
        with (self.path / ".lock").open("a") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunConflictError(
                    "another process works in this run", place=str(self.path), cure="wait for it or stop it"
                ) from None
            yield


def create(root: Path, name: str, profile_text: str, record: RunRecord) -> RunFolder:
    """Make the folder of a new run; `name` "": the profile's name and the time. RunConflictError when it is taken."""
    if name and not RUN_ID.match(name):
        raise RunConflictError(f"{name!r} is no run name", cure="letters, digits, dots, _ and -, at most 64")
    root.mkdir(parents=True, exist_ok=True)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    for attempt in range(100):
        ident = name or f"{record.profile}-{stamp}" + (f"-{attempt + 1}" if attempt else "")
        path = root / ident
        try:
            path.mkdir()
        except FileExistsError:
            if name:
                raise RunConflictError(
                    f"a run called {name!r} stands already",
                    place=str(path),
                    cure=f"{resumption(path)}, or another --name",
                ) from None
            continue
        write_text(path / "profile.yaml", profile_text)
        folder = RunFolder(path, record.model_copy(update={"id": ident}))
        folder.save()
        return folder
    raise RunConflictError("no free run name found", place=str(root), cure="give one with --name")


def open_run(root: Path, ident: str) -> RunFolder:
    """An existing run; RunNotFoundError names the nearest one if there is none."""
    path = root / ident
    try:
        record = RunRecord.model_validate_json((path / "run.json").read_bytes())
    except OSError:
        raise RunNotFoundError(f"no run {ident!r}", place=str(root), cure=suggest(ident, list_runs(root))) from None
    except ValidationError as error:
        raise RunNotFoundError(
            f"run.json is broken: {error.errors()[0]['msg']}", place=str(path / "run.json")
        ) from None
    return RunFolder(path, record)


def list_runs(root: Path) -> list[str]:
    """Ids of the runs below `root`, oldest first."""
    found = root.glob("*/run.json") if root.is_dir() else ()
    return [
        path.parent.name for path in sorted(found, key=lambda path: (path.parent.stat().st_ctime, path.parent.name))
    ]
