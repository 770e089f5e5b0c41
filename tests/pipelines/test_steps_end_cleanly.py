"""However a step ends, its kind of failure is told, nothing half-written has a final name, and no process is left."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hat_pipelines.dag import Dag, Step
from hat_pipelines.errors import StepFailedError
from hat_pipelines.plan import Job
from hat_pipelines.runs import RunFolder, open_run
from tests.pipelines.toys.pipelines import WAIT

Make = Callable[..., Job]
Start = Callable[..., RunFolder]


@pytest.mark.parametrize(
    ("fail", "kind", "message", "cure"),
    [
        ("input", "invalid_input", "the numbers are bad", "draw them again"),
        ("bug", "internal", "unexpected ZeroDivisionError: a bug", "read the log"),
        ("memory", "exhausted", "out of memory", "smaller sizes"),
        ("kill", "exhausted", "the process was killed", "out of memory"),
        ("disk", "exhausted", "No space left on device", "free disk space"),
    ],
)
def test_a_failure_names_step_place_and_cure(
    fail: str, kind: str, message: str, cure: str, make_job: Make, start: Start, runs_root: Path
) -> None:
    with pytest.raises(StepFailedError) as caught:
        start(make_job(f"steps.add-hsa.fail={fail}", "steps.add-hsa.marker=''"), name="f")
    error = caught.value
    assert (error.kind, error.step) == (kind, "add-hsa")
    assert message in error.message
    assert cure in error.cure
    folder = open_run(runs_root, "f")
    files = folder.step("add-hsa")
    assert folder.record.steps["add-hsa"].fault is not None
    assert error.log == str(files.log)
    assert {path.name for path in files.path.iterdir()} <= {"config.json", "progress.jsonl", "log.txt", ".outcome.json"}
    assert ("Traceback" in files.log.read_text()) == (fail in ("bug", "memory", "disk"))
    assert "running" not in {record.state for record in folder.record.steps.values()}


def test_a_step_past_its_time_limit_is_ended_with_its_children(
    make_job: Make, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs_root: Path
) -> None:
    def build(arms: tuple[str, ...], *, imported: bool = False) -> Dag:
        step = Step(name="wait", component=WAIT, artifacts=("nothing",), time_limit_s=3.0)
        return Dag(name="limited", inputs=("harness",), steps=(step,))

    monkeypatch.setattr("tests.pipelines.toys.pipelines.build", build)
    pids = tmp_path / "pids"
    with pytest.raises(StepFailedError) as caught:
        start(make_job("steps={wait: {pids: " + str(pids) + "}}"), name="late")
    assert caught.value.kind == "exhausted"
    assert "time limit of 3 s" in caught.value.message
    for pid in map(int, pids.read_text().split()):
        assert not alive(pid)
    assert not open_run(runs_root, "late").step("wait").work.exists()


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be collected does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().split()[2] not in ("Z", "X")
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.mark.parametrize(("fail", "state"), [("", "done"), ("bug", "failed")])
def test_the_exit_handler_runs_however_the_run_ends(
    fail: str, state: str, make_job: Make, start: Start, runs_root: Path
) -> None:
    job = make_job("pipeline=tests.pipelines.toys.closing", "steps={}", f"steps.add.fail={fail!r}")
    if fail:
        with pytest.raises(StepFailedError) as caught:
            start(job, name="closing")
        assert caught.value.step == "add"
    else:
        start(job, name="closing")
    folder = open_run(runs_root, "closing")
    assert folder.record.state == state
    assert {name: record.state for name, record in folder.record.steps.items()} == {
        "draw": "done", "add": state, "close": "done",
    }  # fmt: skip
