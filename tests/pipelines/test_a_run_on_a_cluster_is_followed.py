"""Whoever follows a run on a cluster writes each line once, says what a step said of its failure, and keeps the budget."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hat_pipelines import profile, run, runs
from hat_pipelines.desk import supervise
from hat_pipelines.desk.order import Order
from hat_pipelines.pod import FAULT_MARK, PROGRESS_MARK
from hat_pipelines.remote import follow
from hat_pipelines.remote.engine import State, Status, StepState, StepStatus
from hat_pipelines.runs import Fault, RunFolder
from tests.pipelines.desks import TOYS, catalogue

FULL = Fault(kind="exhausted", message="out of memory", cure="use smaller sizes")


class Engine:
    """A workflow whose step `draw` writes what it is told to."""

    def __init__(self) -> None:
        self.text, self.state, self.cancelled = "", "running", False

    def status(self, name: str) -> Status:
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
    mirror.see(Status("w", "running", steps={"draw": step}))


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


def test_a_budget_stops_a_run_on_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminable: None) -> None:
    known = catalogue(tmp_path)
    engine = Engine()
    engine.text = f'{PROGRESS_MARK}{{"kind": "progress", "done": 30, "total": 40, "note": "tokens"}}\n'
    monkeypatch.setattr(follow, "connect", lambda target, remote: (engine, None))
    order = Order.model_validate({"pipeline": TOYS, "profile": "toy", "target": "argo", "budget": {"tokens": 25}})
    ticket = supervise.Ticket(
        order=order, run="far", root=tmp_path / "runs", cache=None, profiles=known.profiles, harnesses=known.harnesses,
        pipelines=known.pipelines,
    )  # fmt: skip
    outcome = supervise.carry_out(ticket)
    assert engine.cancelled
    assert outcome.state == "over_budget"
    assert outcome.fault is not None
    assert "30 tokens of 25" in outcome.fault.message
