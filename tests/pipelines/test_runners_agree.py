"""KFP's local runner executes what is compiled and comes to the same artifacts as the runner of this package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hat_pipelines.errors import StepFailedError
from hat_pipelines.plan import Job
from hat_pipelines.runs import RunFolder, open_run

Make = Callable[..., Job]
Start = Callable[..., RunFolder]


@pytest.mark.parametrize("count", [3, 1])
def test_both_runners_make_the_same_and_skip_the_same(count: int, make_job: Make, start: Start) -> None:
    job = make_job(f"steps.draw.count={count}", "steps.draw.numbers=[3, 4]")
    ours, kfp = start(job), start(job, runner="kfp")
    told = [{name: record.state for name, record in folder.record.steps.items()} for folder in (ours, kfp)]
    assert told[0] == told[1]
    assert told[0]["total"] == ("done" if count == 3 else "skipped")
    for name, state in told[0].items():
        if state == "done":
            assert kfp.step(name).read_result() == ours.step(name).read_result()
    assert not (kfp.path / ".kfp").exists()


def test_a_failure_in_kfp_names_the_step_and_leaves_nothing_half_written(
    make_job: Make, start: Start, runs_root: Path
) -> None:
    with pytest.raises(StepFailedError) as caught:
        start(make_job("steps.add-hsa.fail=input"), name="f", runner="kfp")
    assert caught.value.kind == "invalid_input"
    assert "step add-hsa failed: the numbers are bad" in caught.value.message
    folder = open_run(runs_root, "f")
    assert folder.record.steps["add-hsa"].state == "failed"
    assert not folder.step("add-hsa").artifacts.exists()
    assert not folder.step("add-hsa").work.exists()
