"""Evolve, release and nightly run for real with the scripted expert: edits are measured, gates hold, alarms end a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hat_components.data import digest_file
from hat_pipelines import plan, profile, run
from hat_pipelines.errors import StepFailedError
from hat_pipelines.runs import RunFolder, open_run
from hatstack import paths
from tests.judge.conftest import said, serve, verdict
from tests.judge.test_the_judge_step_scores_and_calibrates import Serve

__all__ = ["serve"]

SMALL = ("steps.simulate.train=1", "steps.simulate.dev=2", "steps.simulate.test=2", "steps.simulate.turns=1")
EXPERT = "{policy: expert, suites: [t1], items: 2, draws: 100}"
Begin = Callable[..., RunFolder]


@pytest.fixture
def begin(tmp_path: Path) -> Begin:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"not read by the expert")

    def start(pipeline: str, *overrides: str, **more: Path) -> RunFolder:
        loaded = profile.load(paths.profile("smoke"), [f"pipeline={pipeline}", *SMALL, *overrides])
        job = plan.job(loaded, {"harness": paths.harness("live-commerce"), "model": model, **more})
        return run.start(job, tmp_path / "runs", run.Options(name=pipeline, quiet=True))

    return start


def states(folder: RunFolder) -> dict[str, str]:
    return {name: record.state for name, record in folder.record.steps.items()}


def test_evolve_measures_edits(begin: Begin) -> None:
    expert = "steps.evolve={policies: [{type: expert}], items: 2, held_out_items: 1, draws: 100}"
    folder = begin("evolve", "steps.simulate.evolve=2", expert, candidate=paths.harness("evolution-1"))
    assert states(folder) == {"simulate": "done", "evolve": "done"}
    assert folder.step("evolve").artifact("selected")


def test_a_release_that_fails_its_gate_is_not_proposed(begin: Begin) -> None:
    folder = begin("release", f"steps.test={EXPERT}", "steps.gate.bounds={t1: {least: 1.01}}")
    assert states(folder) == {
        "simulate": "done", "test": "done", "gate": "done", "propose": "skipped", "canary": "skipped",
        "close": "done",
    }  # fmt: skip
    told = folder.step("gate").artifact("gate")
    assert told is not None
    assert "below 1.01" in json.loads(told.read_text())["rows"][0]["says"]


def test_sessions_of_an_earlier_run_are_judged(begin: Begin, serve: Serve) -> None:
    played = begin("evaluate", f"steps.evaluate={EXPERT}")
    endpoint = serve(lambda body, _number: said("Seen.") if "tools" in body else said(verdict(body)))
    given = {name: played.step("evaluate").artifact(name) for name in ("evaluation", "traces")}
    folder = begin("judge", f"steps.judge={{endpoint: '{endpoint.url}', draws: 100}}", **given)  # type: ignore[arg-type]  # both are there
    path = folder.step("judge").artifact("judged")
    assert path == folder.step("judge").path / "artifacts" / "judged.json", "where the console looks for it"
    judged = json.loads(path.read_text())
    assert judged["evaluation"] == digest_file(given["evaluation"])  # type: ignore[arg-type]  # as above
    assert judged["criteria"]["accuracy"]["raw"]["value"] == 1.0


def test_a_nightly_alarm_ends_the_run_and_closes_it(begin: Begin, tmp_path: Path) -> None:
    alarm = "steps.watch={alarm: true, bounds: {t1: {least: 1.01}}}"
    with pytest.raises(StepFailedError) as caught:
        begin("nightly", f"steps.evaluate={EXPERT}", alarm, "seeds=[3]")
    assert (caught.value.step, caught.value.kind) == ("watch-3", "check_failed")
    folder = open_run(tmp_path / "runs", "nightly")
    assert states(folder)["close"] == "done"
    assert json.loads(folder.step("evaluate-3").config.read_text())["seed"] == 3
