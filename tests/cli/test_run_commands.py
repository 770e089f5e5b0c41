"""`hat run` over steps that cost nothing: answers, plans, failures, and Ctrl-C in the middle of a step."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hat_pipelines.runs import open_run

Hat = Callable[..., Any]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] not in ("Z", "X")
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_run_answers_with_its_state_and_folder(hat: Hat, toy_profile: Path, tmp_path: Path) -> None:
    done = hat("run", "--profile", toy_profile, "--runs-dir", tmp_path / "runs", "--name", "one", "--output", "json")
    assert (done.code, done.json()["state"], done.json()["run"]) == (0, "done", "one")
    assert Path(done.json()["folder"], "run.json").exists()
    again = hat("run", "--profile", toy_profile, "--runs-dir", tmp_path / "runs", "--name", "one")
    assert again.code == 4
    assert "cure: hat run --resume one" in again.err


def test_without_a_terminal_there_is_one_line_for_each_event(hat: Hat, toy_profile: Path, tmp_path: Path) -> None:
    done = hat("run", "--profile", toy_profile, "--runs-dir", tmp_path / "runs", "--name", "one")
    lines = done.err.splitlines()
    assert lines[0].startswith("run one in ")
    assert lines[1].split() == ["draw", "started"]
    assert done.out.startswith("run one done in ")
    cached = hat("run", "--profile", toy_profile, "--runs-dir", tmp_path / "runs", "--name", "two")
    assert "taken from the cache" in cached.err


def test_a_dry_run_shows_the_plan_and_makes_nothing(hat: Hat, toy_profile: Path, tmp_path: Path) -> None:
    done = hat("run", "--profile", toy_profile, "--runs-dir", tmp_path / "runs", "--dry-run", "--output", "json")
    assert [step["step"] for step in done.json()["steps"]] == ["draw", "add-naive", "add-hsa", "total"]
    assert done.json()["changed"] is False
    assert not (tmp_path / "runs").exists()


def test_a_failed_step_names_step_cure_and_log(hat: Hat, toy_profile: Path, tmp_path: Path) -> None:
    args = [
        "run",
        "--profile",
        toy_profile,
        "--runs-dir",
        tmp_path / "runs",
        "--name",
        "f",
        "--set",
        "steps.add.fail=input",
    ]
    done = hat(*args)
    assert (done.code, done.out) == (3, "")
    error = done.err[done.err.index("error: ") :].splitlines()
    assert error[0].startswith("error: numbers.json:3: step add-")
    assert error[0].endswith("failed: the numbers are bad")
    assert error[-1] == "  cure: draw them again"
    assert Path(error[1].removeprefix("  log: ")).is_file()
    assert error[2] == f"  then: hat run --resume f --runs-dir {tmp_path / 'runs'}"


@pytest.mark.parametrize(
    ("number", "runner", "send"),
    [(signal.SIGINT, "local", os.killpg), (signal.SIGTERM, "local", os.kill), (signal.SIGINT, "kfp", os.killpg)],
    ids=["terminal", "terminated", "kfp"],
)
def test_ctrl_c_in_a_step_ends_everything_and_can_be_resumed(
    number: int, runner: str, send: Any, spawn: Callable[..., Any], waiting_profile: Path, tmp_path: Path
) -> None:
    """A terminal sends Ctrl-C to the whole process group: runner, fork server and all."""
    process = spawn(
        "run", "--profile", waiting_profile, "--runs-dir", tmp_path / "runs", "--name", "c", "--runner", runner
    )
    pids = tmp_path / "pids"
    for line in process.stderr:
        if line.split() == ["wait", "started"]:
            break
    while not pids.exists() and process.poll() is None:
        os.sched_yield()
    send(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert f"error: {tmp_path / 'runs' / 'c'}: interrupted in wait" in err
    assert f"cure: hat run --resume c --runs-dir {tmp_path / 'runs'}" in err
    folder = open_run(tmp_path / "runs", "c")
    assert folder.record.state == "interrupted"
    assert {name: record.state for name, record in folder.record.steps.items()} == {
        "draw": "done",
        "wait": "interrupted",
    }
    assert {path.name for path in folder.step("wait").path.iterdir()} == {"config.json", "progress.jsonl", "log.txt"}
    assert not [pid for pid in map(int, pids.read_text().split()) if alive(pid)]


def test_a_killed_run_leaves_no_process_and_can_be_resumed(
    spawn: Callable[..., Any], waiting_profile: Path, tmp_path: Path, hat: Hat
) -> None:
    process = spawn("run", "--profile", waiting_profile, "--runs-dir", tmp_path / "runs", "--name", "k")
    pids = tmp_path / "pids"
    while not pids.exists() and process.poll() is None:
        os.sched_yield()
    process.kill()
    process.communicate(timeout=60)
    for pid in map(int, pids.read_text().split()):
        while alive(pid):  # ends as soon as the step has seen that its runner is gone; the test's time-out bounds it
            os.sched_yield()
    plan = hat("run", "--resume", "k", "--runs-dir", tmp_path / "runs", "--dry-run", "--output", "json").json()
    assert [step["action"] for step in plan["steps"]] == ["keep", "run"]


def test_the_cache_is_collected_when_asked(hat: Hat, toy_profile: Path, tmp_path: Path) -> None:
    hat("run", "--profile", toy_profile, "--runs-dir", tmp_path / "runs", "--only", "draw")
    collect = ["cache", "gc", "--days", "0", "--runs-dir", tmp_path / "runs", "--output", "json"]
    told = hat(*collect, "--dry-run").json()
    assert (told["entries"], told["changed"]) == (1, False)
    done = hat(*collect).json()
    assert (done["entries"], done["changed"]) == (1, True)
    again = hat(*collect).json()
    assert (again["entries"], again["changed"]) == (0, False)


def test_pipelines_are_listed_and_compiled_once(hat: Hat, tmp_path: Path) -> None:
    assert {one["name"] for one in hat("pipeline", "list", "--output", "json").json()} >= {
        "ablate",
        "evaluate",
        "evolve",
        "judge",
        "nightly",
        "release",
        "train",
    }
    compiled = ["pipeline", "compile", "evaluate", "--to", tmp_path / "yaml", "--output", "json"]
    assert all(one["changed"] for one in hat(*compiled, "--dry-run").json())
    assert not (tmp_path / "yaml").exists()
    assert all(one["changed"] for one in hat(*compiled).json())
    assert not any(one["changed"] for one in hat(*compiled).json())


def test_doctor_names_what_is_missing_and_fails_only_for_what_is_needed(
    hat: Hat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = hat("doctor", "--runs-dir", tmp_path, "--output", "json")
    assert (told.code, told.json()["ok"]) == (0, True)
    assert {"python", "training", "disk", "cores"} <= {one["check"] for one in told.json()["findings"]}
    monkeypatch.setattr("hatstack.cli.doctor.LEAST_DISK_GIB", 1e9)
    short = hat("doctor", "--runs-dir", tmp_path, "--output", "json")
    assert short.code == 1
    assert [one["check"] for one in short.json()["findings"] if one["state"] == "bad"] == ["disk"]
    assert short.error()["kind"] == "check_failed"
