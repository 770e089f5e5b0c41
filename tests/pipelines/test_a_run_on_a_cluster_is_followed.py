"""Whoever follows a run on a cluster writes each line once, says what a step said of its failure, and keeps the budget."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hat_pipelines import profile, run, runs
from hat_pipelines.desk import supervise
from hat_pipelines.desk.order import Order
from hat_pipelines.errors import RemoteError
from hat_pipelines.plan import Job
from hat_pipelines.pod import FAULT_MARK, PROGRESS_MARK
from hat_pipelines.remote import follow
from hat_pipelines.remote.engine import State, Status, StepState, StepStatus
from hat_pipelines.remote.store import Store
from hat_pipelines.runs import Fault, RunFolder
from tests.pipelines.desks import TOYS, catalogue

FULL = Fault(kind="exhausted", message="out of memory", cure="use smaller sizes")


class Engine:
    """A workflow whose step `draw` writes what it is told to."""

    def __init__(self) -> None:
        self.text, self.stands, self.cancelled = "", False, False

    def start_job(self, job: Job, name: str, store: Store, *, cron: str = "") -> None:
        self.stands = True

    def status(self, name: str) -> Status:
        if not self.stands:
            raise RemoteError(f"no workflow {name!r}", kind="invalid_input")
        state: State = "cancelled" if self.cancelled else "running"
        return Status(name, state, steps={"draw": seen("running")})

    def logs(self, name: str, step: str) -> str:
        return self.text

    def cancel(self, name: str) -> bool:
        self.cancelled = True
        return True


def seen(state: StepState, tries: int = 1, message: str = "") -> StepStatus:
    return StepStatus(state, tries, message, "2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z")


def look(mirror: follow.Mirror, step: StepStatus) -> None:
    mirror.see(Status("w", "running", steps={"draw": step}, ident="id-of-w"))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    known = catalogue(tmp_path)
    job = known.job(Order(pipeline=TOYS, profile="toy"), tmp_path / "runs")
    return runs.create(tmp_path / "runs", "far", profile.dump(job.profile), run.record_of(job, "argo"))


def test_lines_are_written_once_whoever_follows_and_a_new_try_goes_on_behind(folder: RunFolder) -> None:
    engine = Engine()
    engine.text = f'one\n{PROGRESS_MARK}{{"kind": "progress"}}\ntime="now" level=info argo=true\nhalf'
    for _ in range(2):  # the second follower finds what the first has written
        mirror = follow.Mirror(folder, engine, None, "w")  # type: ignore[arg-type]  # what a mirror asks of an engine
        look(mirror, seen("running"))
        look(mirror, seen("running"))
    files = folder.step("draw")
    assert runs.open_run(folder.path.parent, "far").record.remote == "id-of-w"
    assert files.log.read_text() == "one\n"
    assert files.progress.read_text() == '{"kind": "progress"}\n'
    engine.text = "another, and longer than what the first one wrote\n" * 9
    look(mirror, seen("running", tries=2))
    assert files.log.read_text() == "one\n" + engine.text
    engine.text = ""  # the pod has gone
    look(mirror, seen("done", tries=2))
    assert files.log.read_text().startswith("one\n")


def test_a_failed_step_says_itself_why(folder: RunFolder) -> None:
    engine = Engine()
    mirror = follow.Mirror(folder, engine, None, "w")  # type: ignore[arg-type]  # as above
    engine.text = f"{FAULT_MARK}no JSON\n{FAULT_MARK}{FULL.model_dump_json()}\n"
    look(mirror, seen("failed", message="main: Error (exit code 6)"))
    assert folder.record.steps["draw"].fault == FULL
    assert not folder.step("draw").log.exists()


@pytest.mark.parametrize(
    ("told", "kind", "cure"),
    [
        ("OOMKilled (exit code 137)", "exhausted", "more memory"),
        ("main: Error (exit code 137)", "unavailable", "raise cluster.retries"),
        ("pod deleted", "unavailable", "resume"),
        ("Pod was active on the node longer than the specified deadline", "exhausted", "time limit"),
        ("Error (exit code 64): failed to put file: XMinioStorageFull: no room", "exhausted", "free space"),
        ("The node was low on resource: ephemeral-storage. Threshold quantity: 5Gi", "exhausted", "free space"),
        ("main: Error (exit code 70)", "internal", "read the log"),
    ],
)
def test_what_an_engine_says_of_a_pod_has_a_cure(told: str, kind: str, cure: str) -> None:
    fault = follow.fault_of(seen("failed", message=told))
    assert fault is not None
    assert fault.kind == kind
    assert cure in fault.cure


@pytest.fixture
def terminable() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


def ordered(tmp_path: Path, **more: object) -> supervise.Ticket:
    known = catalogue(tmp_path)
    order = Order.model_validate({"pipeline": TOYS, "profile": "toy", "target": "argo", **more})
    return supervise.Ticket(
        order=order, run="far", root=tmp_path / "runs", cache=None, profiles=known.profiles, harnesses=known.harnesses,
        pipelines=known.pipelines,
    )  # fmt: skip


def test_a_workflow_that_another_run_left_is_never_taken_for_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine()
    engine.stands = True
    monkeypatch.setattr(follow, "connect", lambda target, remote: (engine, object()))
    outcome = supervise.carry_out(ordered(tmp_path))
    assert outcome.fault is not None
    assert (outcome.state, outcome.fault.kind) == ("failed", "conflict")
    assert "another name" in outcome.fault.cure
    names = [follow.workflow_name(run) for run in ("a-b", "a.b", "A-b", "a" * 60, "a" * 61, "...")]
    assert len(set(names)) == len(names)
    assert names[0] == "a-b"
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?", name) for name in names)


def test_a_budget_stops_a_run_on_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminable: None) -> None:
    engine = Engine()
    engine.text = f'{PROGRESS_MARK}{{"kind": "progress", "done": 30, "total": 40, "note": "tokens"}}\n'
    monkeypatch.setattr(follow, "connect", lambda target, remote: (engine, object()))
    outcome = supervise.carry_out(ordered(tmp_path, budget={"tokens": 25}))
    assert engine.cancelled
    assert outcome.state == "over_budget"
    assert outcome.fault is not None
    assert "30 tokens of 25" in outcome.fault.message
