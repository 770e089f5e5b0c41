"""Runs `hat`: in this process for speed, as a process of its own where signals and start-up matter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hatstack.cli import main

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.err.strip().splitlines()[-1])
        return found


@pytest.fixture
def hat(capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def call(*argv: object) -> Done:
        capfd.readouterr()
        code = main.main([str(word) for word in argv])
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        return Done(code, out, err)

    return call


@pytest.fixture
def spawn() -> Callable[..., subprocess.Popen[str]]:
    """Start `hat` as a process in a session of its own."""
    started: list[subprocess.Popen[str]] = []
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job; children would ignore Ctrl-C too
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def begin(*argv: object, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "hatstack.cli.main", *map(str, argv)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def toy_profile(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(
        "format: hatstack.profile/1\nname: toy\npipeline: tests.pipelines.toys.pipelines\n"
        "local: {threads: 1, parallel: 2}\nsteps:\n  draw: {count: 3}\n"
    )
    return path


@pytest.fixture
def waiting_profile(tmp_path: Path) -> Path:
    path = tmp_path / "waiting.yaml"
    path.write_text(
        "format: hatstack.profile/1\nname: waiting\npipeline: tests.pipelines.toys.waiting\n"
        f"steps:\n  wait: {{pids: {tmp_path / 'pids'}}}\n"
    )
    return path
