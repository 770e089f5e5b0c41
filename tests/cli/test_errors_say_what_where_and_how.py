"""Bad input gives one clear message with file and cure, the right exit code, no traceback, and JSON when asked."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hat_harness.errors import PlatformError
from hatstack.cli import doctor as doctor_module
from hatstack.cli import failure, main

Hat = Callable[..., Any]


@pytest.mark.parametrize(
    ("argv", "code", "kind", "message", "cure"),
    [
        (["run", "--profile", "smok"], 3, "invalid_input", "no profile called 'smok'", "did you mean 'smoke'?"),
        (["run", "--profile", "no/such.yaml"], 3, "invalid_input", "no such profile", "check the path"),
        (["run", "--set", "steps.base.modle=1"], 3, "invalid_input", "1 problem in the profile", ""),
        (["run", "--set", "nonsense"], 3, "invalid_input", "1 problem in the profile", ""),
        (["run", "--data", "none.jsonl"], 2, "usage", "data need a purpose", "--purpose training"),
        (
            ["run", "--data", "none.jsonl", "--purpose", "training"],
            3,
            "invalid_input",
            "does not exist",
            "check the path",
        ),
        (["run", "--data", "x.jsonl", "--purpose", "fun"], 3, "invalid_input", "problem in the profile", ""),
        (["run", "--purpose", "training"], 2, "usage", "--purpose says what --data", "--data FILE"),
        (["run", "--from-step", "sft"], 2, "usage", "--from-step needs a run", "--resume"),
        (["run", "--resume", "x", "--name", "y"], 2, "usage", "keeps its name", "leave --name out"),
        (["run", "--runner", "kfp", "--only", "base"], 2, "usage", "whole pipelines", "--runner local"),
        (["run", "--only", "sftt", "--dry-run"], 3, "invalid_input", "no step 'sftt'", "did you mean"),
        (["run", "--resume", "none"], 3, "invalid_input", "no run 'none'", "one of: none"),
        (
            ["run", "--harness", "live-comerce"],
            3,
            "invalid_input",
            "no harness called",
            "did you mean 'live-commerce'?",
        ),
        (["report"], 3, "invalid_input", "there is no run yet", "hat run --profile smoke"),
        (["report", "x"], 3, "invalid_input", "no run 'x'", ""),
        (["model", "list"], 3, "invalid_input", "no models yet", "hat run --profile smoke"),
        (["harness", "show", "nope"], 3, "invalid_input", "no harness called 'nope'", ""),
        (["data", "show", "nope"], 3, "invalid_input", "not a dataset folder", ""),
        (["data", "validate", "nope.jsonl"], 3, "invalid_input", "does not exist", "check the path"),
        (["evaluate", "nope"], 3, "invalid_input", "input 'model' does not exist", "check the path"),
        (["pipeline", "compile", "trian"], 3, "invalid_input", "1 problem in the profile", ""),
        (["scenario", "serve", "--transport", "pigeon"], 2, "usage", "no transport 'pigeon'", "http or stdio"),
        (["doctor", "house"], 2, "usage", "nothing to check called 'house'", "hat doctor"),
        (["runn"], 2, "usage", "No such command", "hat --help"),
        (["run", "--nope"], 2, "usage", "No such option", "hat run --help"),
        (["run", "--output", "xml"], 2, "usage", "Invalid value", "--help"),
        (["harness", "show"], 2, "usage", "Missing argument", "hat harness show --help"),
    ],
)
def test_bad_input_is_told_in_text_and_json(
    argv: list[str],
    code: int,
    kind: str,
    message: str,
    cure: str,
    hat: Hat,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HATSTACK_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    done = hat(*argv)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("error: ")
    assert message in done.err
    assert cure in done.err
    if "xml" not in argv:
        told = hat(*argv, "--output", "json")
        body = told.error()
        assert (told.code, told.out, body["kind"]) == (code, "", kind)
        assert {"kind", "message", "place", "cure"} <= body.keys() <= {"kind", "message", "place", "cure", "problems"}
        assert message in body["message"]
        assert cure in body["cure"]
    assert not (tmp_path / "runs").exists(), "nothing is made for a run that cannot start"


def test_a_wrong_key_names_file_line_and_the_nearest_key(hat: Hat, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nsteps:\n  simulate:\n    trian: 5\n")
    done = hat("run", "--profile", path)
    assert done.code == 3
    assert "mine.yaml:4: unknown key steps.simulate.trian (did you mean 'train'?)" in done.err
    assert hat("run", "--profile", path, "--output", "json").error()["problems"] == [
        "mine.yaml:4: unknown key steps.simulate.trian (did you mean 'train'?)"
    ]


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (KeyError("x"), 70, "internal"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "f"), 6, "exhausted"),
        (MemoryError(), 6, "exhausted"),
        (PlatformError("odd"), 70, "internal"),
    ],
)
def test_what_no_one_foresaw_is_one_line_and_a_log(
    error: Exception, code: int, kind: str, hat: Hat, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(doctor_module, "_python", fail)
    done = hat("doctor", "--output", "json")
    body = done.error()
    assert (done.code, done.out, body["kind"]) == (code, "", kind)
    if isinstance(error, KeyError):
        assert "Traceback" in Path(body["place"]).read_text()


def test_every_kind_of_error_has_an_exit_code_in_the_table() -> None:
    from typing import get_args

    from hat_harness.errors import Kind
    from hatstack.cli.reference import MEANINGS

    assert set(failure.EXIT_CODES) == {*get_args(Kind), "interrupted"}
    assert {*failure.EXIT_CODES.values(), 0} == set(MEANINGS)


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HATSTACK_DEBUG", "1")
    assert main.main(["harness", "show", "nope"]) == 3
    assert "Traceback" in capfd.readouterr().err


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    command = f"{sys.executable} -m hatstack.cli.main --help | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
