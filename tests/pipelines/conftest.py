"""A profile over the toy steps and a way to run it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hat_pipelines import plan, profile, run
from hat_pipelines.plan import Job
from hat_pipelines.runs import RunFolder

TOYS = """\
format: hatstack.profile/1
name: toy
pipeline: tests.pipelines.toys.pipelines
arms: [naive, hsa]
local: {threads: 1, parallel: 2}
steps:
  draw: {count: 3}
"""


@pytest.fixture
def toys(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(TOYS)
    return path


@pytest.fixture
def make_job(toys: Path, tmp_path: Path) -> Callable[..., Job]:
    brought = tmp_path / "harness"
    brought.mkdir()
    (brought / "harness.yaml").write_text("name: toy\n")

    def make(*overrides: str) -> Job:
        return plan.job(profile.load(toys, overrides), {"harness": brought})

    return make


@pytest.fixture
def runs_root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def start(runs_root: Path) -> Callable[..., RunFolder]:
    def begin(job: Job, **options: object) -> RunFolder:
        return run.start(job, runs_root, run.Options(quiet=True, **options))  # type: ignore[arg-type]

    return begin
