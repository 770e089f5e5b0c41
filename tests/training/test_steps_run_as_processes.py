"""`python -m hat_components.<step>` says how it goes in progress.jsonl and how it ended by result.json and exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hat_components.runner import EXIT_CODES, FileProgress, execute
from hat_components.step import InputError, StepConfig, StepError, StepResult
from hat_harness.errors import PlatformError
from tests.training.test_killed_runs_resume_to_the_same_weights import CONFIG


class Config(StepConfig):
    """Config of a step that does what it is told."""

    size: int = 3


def good(config, inputs, out, progress):
    progress.progress(1, config.size, "half")
    progress.metric("loss", 0.5, 1)
    progress.metric("loss", float("nan"), 2)
    (out / "a.txt").write_text("x")
    progress.artifact("a", out / "a.txt")
    return StepResult(artifacts={"a": "a.txt"}, metrics={"inputs": float(len(inputs))})


def records(out):
    return [json.loads(line) for line in (out / "progress.jsonl").read_text().splitlines()]


def test_a_step_writes_progress_and_result(tmp_path):
    out = tmp_path / "o"
    assert execute(Config, good, ["--out", str(out), "--input", f"x={tmp_path}"]) == 0
    assert [record["kind"] for record in records(out)] == ["start", "progress", "metric", "warning", "artifact", "end"]
    assert records(out)[-1]["ok"] is True
    result = StepResult.model_validate_json((out / "result.json").read_bytes())
    assert result.artifacts == {"a": "a.txt"}
    assert result.metrics == {"inputs": 1.0}
    assert json.loads((out / "config.json").read_text()) == {"seed": 1, "size": 3}


def test_a_finished_folder_is_never_overwritten(tmp_path, capsys):
    assert execute(Config, good, ["--out", str(tmp_path)]) == 0
    assert execute(Config, good, ["--out", str(tmp_path)]) == EXIT_CODES["conflict"]
    assert "finished step" in capsys.readouterr().err


@pytest.mark.parametrize("kind", EXIT_CODES)
def test_the_kind_of_an_error_is_the_exit_code(tmp_path, capsys, kind):
    def bad(config, inputs, out, progress):
        error = StepError("it broke", place="here", cure="mend it")
        error.kind = kind
        raise error

    assert execute(Config, bad, ["--out", str(tmp_path)]) == EXIT_CODES[kind]
    assert capsys.readouterr().err == "error: here: it broke (mend it)\n"
    assert records(tmp_path)[-1] | {"seconds": 0} == {"kind": "end", "seconds": 0, "ok": False}
    assert not (tmp_path / "result.json").exists()


def test_every_kind_of_error_has_an_exit_code():
    from typing import get_args

    from hat_harness.errors import Kind

    assert set(get_args(Kind)) == set(EXIT_CODES)
    assert issubclass(InputError, PlatformError)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--config", "{d}/bad.json"], "colour: Extra inputs are not permitted"),
        (["--config", "{d}/none.json"], "cannot be read"),
        (["--input", "x"], "is not NAME=PATH"),
        (["--input", "x={d}/none"], "does not exist"),
    ],
)
def test_bad_arguments_are_told_in_one_line(tmp_path, capsys, arguments, told):
    (tmp_path / "bad.json").write_text('{"size": "x", "colour": 1}')
    given = [argument.format(d=tmp_path) for argument in arguments]
    assert execute(Config, good, [*given, "--out", str(tmp_path / "o")]) == EXIT_CODES["invalid_input"]
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not (tmp_path / "o").exists()


def test_an_interrupt_ends_with_130(tmp_path):
    def stopped(config, inputs, out, progress):
        raise KeyboardInterrupt

    assert execute(Config, stopped, ["--out", str(tmp_path)]) == 130
    assert records(tmp_path)[-1]["ok"] is False


def test_a_resumed_progress_file_goes_on(tmp_path):
    for _ in range(2):
        with FileProgress(tmp_path / "p.jsonl", "x") as progress:
            progress.metric("loss", 1.0, 1)
    assert len((tmp_path / "p.jsonl").read_text().splitlines()) == 6


def test_sft_runs_as_a_process_and_its_model_can_be_sampled(tmp_path, base_folder, trajectories):
    from hat_components.model.generate import MicroModel

    fit = CONFIG.fit.model_copy(update={"tokens": 4_000, "trainer": "trl"})
    (tmp_path / "c.json").write_text(CONFIG.model_copy(update={"fit": fit}).model_dump_json())
    command = [sys.executable, "-m", "hat_components.sft", "--config", str(tmp_path / "c.json")]
    command += [
        "--input",
        f"base={base_folder}",
        "--input",
        f"trajectories={trajectories}",
        "--out",
        str(tmp_path / "o"),
    ]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["artifacts"] == {"model": "model"}
    result = StepResult.model_validate_json((tmp_path / "o" / "result.json").read_bytes())
    micro = MicroModel.from_folder(tmp_path / "o" / result.artifacts["model"])
    assert len(micro.sample([[5, 6]], 3)[0].ids) <= 3
    points = [record for record in records(tmp_path / "o") if record["kind"] == "metric"]
    assert points
    assert {record["name"] for record in points} == {"sft.loss"}


@pytest.mark.parametrize("module", ["hat_components.sft.config", "hat_components.base.config", "hat_components.runner"])
def test_a_profile_is_checked_without_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path.cwd()).returncode == 0
