"""A run has a folder of its own, resumes only as what it was, and says in its record how it ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hat_pipelines import profile, run
from hat_pipelines.errors import RunConflictError, RunNotFoundError, StepFailedError
from hat_pipelines.estimate import estimate
from hat_pipelines.plan import Job
from hat_pipelines.run import Options
from hat_pipelines.runs import RunFolder, RunRecord, list_runs, open_run

Make = Callable[..., Job]
Start = Callable[..., RunFolder]


def states(folder: RunFolder) -> dict[str, str]:
    saved = RunRecord.model_validate_json((folder.path / "run.json").read_bytes())
    return {name: record.state for name, record in saved.steps.items()}


def test_a_run_folder_holds_what_the_contract_says(make_job: Make, start: Start) -> None:
    folder = start(make_job(), name="one")
    assert {path.name for path in folder.path.iterdir()} >= {"profile.yaml", "run.json", "steps"}
    assert {path.name for path in (folder.path / "steps" / "draw").iterdir()} == {
        "config.json",
        "result.json",
        "progress.jsonl",
        "log.txt",
        "artifacts",
    }
    assert states(folder) == {"draw": "done", "add-naive": "done", "add-hsa": "done", "total": "done"}
    kinds = [json.loads(line)["kind"] for line in folder.step("draw").progress.read_text().splitlines()]
    assert (kinds[0], kinds[-1]) == ("start", "end")
    assert profile.load(folder.profile).pipeline == "tests.pipelines.toys.pipelines"


def test_a_taken_name_is_a_conflict_and_nothing_is_touched(make_job: Make, start: Start) -> None:
    folder = start(make_job(), name="one")
    before = (folder.path / "run.json").read_bytes()
    with pytest.raises(RunConflictError) as caught:
        start(make_job("seed=2"), name="one")
    assert caught.value.kind == "conflict"
    assert "--resume one" in caught.value.cure
    assert (folder.path / "run.json").read_bytes() == before


def test_names_without_a_name_never_collide(make_job: Make, start: Start, runs_root: Path) -> None:
    found = [start(make_job(), only=("draw",)).id for _ in range(3)]
    assert len(set(found)) == 3
    assert sorted(list_runs(runs_root)) == sorted(found)


@pytest.mark.parametrize("name", ["../x", ".", "a/b", "a b"])
def test_names_that_are_no_folder_names_are_refused(name: str, make_job: Make, start: Start) -> None:
    with pytest.raises(RunConflictError, match="no run name"):
        start(make_job(), name=name)


def test_a_condition_that_does_not_hold_skips_what_follows(make_job: Make, start: Start) -> None:
    folder = start(make_job("steps.draw.count=1"))
    assert states(folder)["total"] == "skipped"
    assert not folder.step("total").result.exists()
    assert folder.record.state == "done"


def test_only_runs_a_step_and_what_it_needs(make_job: Make, start: Start, runs_root: Path) -> None:
    folder = start(make_job(), only=("add-hsa",))
    assert states(folder) == {"draw": "done", "add-naive": "waiting", "add-hsa": "done", "total": "waiting"}
    assert folder.record.state == "partial"
    resumed = run.resume(folder.id, runs_root, Options(quiet=True))
    assert set(states(resumed).values()) == {"done"}


def test_a_resumed_run_keeps_what_is_done_and_ends_with_the_same_result(
    make_job: Make, start: Start, runs_root: Path, tmp_path: Path
) -> None:
    whole = start(make_job())
    job = make_job("steps.total.fail=once", f"steps.total.marker={tmp_path / 'marker'}")
    with pytest.raises(StepFailedError) as caught:
        start(job, name="broken")
    assert caught.value.kind == "unavailable"
    broken = open_run(runs_root, "broken")
    assert (broken.record.state, states(broken)["total"]) == ("failed", "failed")
    drawn = broken.step("draw").result.stat().st_mtime_ns
    resumed = run.resume("broken", runs_root, Options(quiet=True), job)
    assert set(states(resumed).values()) == {"done"}
    assert resumed.step("draw").result.stat().st_mtime_ns == drawn
    assert resumed.step("total").result.read_bytes() == whole.step("total").result.read_bytes()


def test_a_step_that_is_unavailable_is_tried_again(
    make_job: Make, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hat_pipelines.schedule.BACKOFF_S", 0.0)
    marker = tmp_path / "marker"
    folder = start(make_job("steps.add-hsa.fail=once", f"steps.add-hsa.marker={marker}"))
    assert states(folder)["add-hsa"] == "done"
    assert folder.record.steps["add-hsa"].tries == 2
    assert marker.read_text() == "try\ntry\n"


def test_a_run_resumes_only_under_the_identical_config(make_job: Make, start: Start, runs_root: Path) -> None:
    start(make_job(), name="one", only=("draw",))
    with pytest.raises(RunConflictError) as caught:
        run.resume("one", runs_root, Options(quiet=True), make_job("steps.draw.count=4"))
    assert "steps.draw.count" in caught.value.message


def test_a_run_does_not_resume_when_an_input_or_the_code_changed(
    make_job: Make, start: Start, runs_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(make_job(), name="one", only=("draw",))
    (tmp_path / "harness" / "harness.yaml").write_text("name: other\n")
    with pytest.raises(RunConflictError, match="'harness' is gone or has changed"):
        run.resume("one", runs_root, Options(quiet=True))
    (tmp_path / "harness" / "harness.yaml").write_text("name: toy\n")
    monkeypatch.setattr("hat_pipelines.run.code_digest", lambda: "sha256:other")
    with pytest.raises(RunConflictError, match="the code changed"):
        run.resume("one", runs_root, Options(quiet=True))


def test_from_step_runs_it_and_all_behind_it_again(make_job: Make, start: Start, runs_root: Path) -> None:
    folder = start(make_job())
    before = {name: folder.step(name).result.stat().st_mtime_ns for name in folder.record.steps}
    again = run.resume(folder.id, runs_root, Options(quiet=True, from_step="add"))
    changed = {name for name in before if again.step(name).result.stat().st_mtime_ns != before[name]}
    assert changed == {"add-naive", "add-hsa", "total"}


def test_two_processes_do_not_work_in_one_run(make_job: Make, start: Start, runs_root: Path) -> None:
    folder = start(make_job(), only=("draw",))
    with folder.lock(), pytest.raises(RunConflictError, match="another process"):
        run.resume(folder.id, runs_root, Options(quiet=True))


def test_an_unknown_run_is_told_with_the_nearest(make_job: Make, start: Start, runs_root: Path) -> None:
    start(make_job(), name="first-try", only=("draw",))
    with pytest.raises(RunNotFoundError) as caught:
        open_run(runs_root, "frist-try")
    assert caught.value.cure == "did you mean 'first-try'?"


def test_a_plan_says_what_would_happen_and_changes_nothing(
    make_job: Make, start: Start, runs_root: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    fresh = run.preview(runs_root, None, make_job(), Options(cache=cache))
    assert [entry.action for entry in fresh] == ["run"] * 4
    assert not runs_root.exists()
    folder = start(make_job(), cache=cache, only=("add-naive",))
    after = {entry.step: entry.action for entry in run.preview(runs_root, folder.id, None, Options(cache=cache))}
    assert after == {"draw": "keep", "add-naive": "keep", "add-hsa": "run", "total": "run"}
    new = {entry.step: entry.action for entry in run.preview(runs_root, None, make_job(), Options(cache=cache))}
    assert new == {"draw": "cached", "add-naive": "cached", "add-hsa": "run", "total": "run"}


def test_a_plan_is_told_with_what_its_steps_took_before(make_job: Make, start: Start, runs_root: Path) -> None:
    job = make_job()
    planned = run.preview(runs_root, None, job, Options())
    assert estimate(runs_root, job, planned).unknown == ("draw", "add-naive", "add-hsa", "total")
    folder = start(job)
    for name, seconds in (("draw", 4.0), ("add-naive", 6.0), ("add-hsa", 2.0), ("total", 0.0)):
        folder.set_step(name, seconds=seconds)
    guess = estimate(runs_root, job, planned)
    assert (guess.steps["draw"], guess.unknown, guess.total) == (4.0, (), 6.0)
