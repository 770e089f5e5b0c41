"""Runs a load: Locust in a process of its own, headless or with its web page, and reads the turns back.

Always holds: the process is ended when the block ends; requests in flight at the end may finish for `FINISH_S` seconds;
a folder that already holds turns is refused. Not here: users, figures.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from hat_harness.errors import Kind
from hat_serving.errors import ServingError
from hat_serving.loadtest.ask import TurnRecord
from hat_serving.loadtest.measured import LoadResult, read_turns, summed
from hat_serving.loadtest.plan import LoadPlan

FINISH_S = 30
USERS = Path(__file__).with_name("users.py")


class LoadError(ServingError):
    """The load cannot be run, or its process failed."""

    kind: Kind = "invalid_input"


class RunningLoad:
    """A load that runs beside what its caller does. Use as a context manager; `out` gets `turns.jsonl`, `locust.log`.

    `ui_port` serves Locust's own page there instead of starting at once; the plan's shape still rules the load.
    """

    def __init__(self, plan: LoadPlan, out: Path, *, ui_port: int | None = None) -> None:
        self.plan = plan
        self.turns_file = out / "turns.jsonl"
        self._log = out / "locust.log"
        self._ui_port = ui_port
        self._process: subprocess.Popen[bytes] | None = None
        if self.turns_file.exists():
            raise LoadError("the folder holds a load already", place=str(out), cure="give another folder")
        out.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> RunningLoad:
        """Start it."""
        environment = {
            **os.environ,
            "HATSTACK_LOADTEST_PLAN": self.plan.model_dump_json(),
            "HATSTACK_LOADTEST_TURNS": str(self.turns_file.resolve()),
            "GEVENT_SUPPORT": "True",
        }
        command = [sys.executable, "-m", "locust", "-f", str(USERS), "--stop-timeout", str(FINISH_S)]
        command += ["--exit-code-on-error", "0", "--loglevel", "WARNING"]
        if self._ui_port is None:
            command += ["--headless", "--only-summary"]
        else:
            command += ["--web-host", "127.0.0.1", "--web-port", str(self._ui_port)]
        self.turns_file.touch()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for its end; end it at once when the block failed."""
        if self._process is None:
            return
        if kind is not None:
            self.stop()
        try:
            self._process.wait(None if self._ui_port is not None else self.plan.duration_s + FINISH_S + 60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """End the load early; requests in flight may finish."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def so_far(self) -> list[TurnRecord]:
        """Turns that are over by now."""
        return read_turns(self.turns_file)

    def result(self) -> LoadResult:
        """The figures, once the block has ended. LoadError when Locust failed or nobody said anything."""
        turns = self.so_far()
        code = self._process.poll() if self._process is not None else None
        if code is None:
            raise LoadError("the load is still running", place=str(self.turns_file), cure="leave the block first")
        if code not in (0, -signal.SIGTERM) or not turns:
            said = self._log.read_text(encoding="utf-8", errors="replace").strip()[-600:]
            raise LoadError(f"Locust ended with {code}; its last words: {said or 'none'}", place=str(self._log))
        return summed(self.plan, turns)


def run_load(plan: LoadPlan, out: Path) -> LoadResult:
    """Run a load headless to its end."""
    with RunningLoad(plan, out) as load:
        pass
    return load.result()
