"""Runs the `go` command where a run may take long: what it says is shown as it comes, and it always ends.

Always holds: past the deadline the command and everything that it started are killed; it does not outlive a build that is
killed either. Not here: what is built (build, argo_build).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.controlplane.errors import ControlPlaneError

MINUTES = 60.0
"""How long a whole build may take; `HATSTACK_BUILD_MINUTES` moves it."""
EVERY_S = 5.0
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def deadline() -> float:
    """When a build that begins now has to be over, by the monotonic clock."""
    return time.monotonic() + 60 * float(os.environ.get("HATSTACK_BUILD_MINUTES") or MINUTES)


def run(argv: list[str], folder: Path, *, until: float, heard: Callable[[str], None] | None = None) -> str:
    """What `go argv` prints. `heard` gets each line of its standard error. Raises ControlPlaneError."""
    tail: list[str] = []
    with (
        tempfile.TemporaryFile("w+") as printed,
        subprocess.Popen(
            ["go", *argv],
            cwd=folder,
            stdout=printed,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        ) as process,
    ):
        killed = threading.Event()

        def kill() -> None:
            killed.set()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(max(until - time.monotonic(), 0.0), kill)
        timer.daemon = True
        timer.start()
        try:
            assert process.stderr is not None
            for line in process.stderr:
                tail = [*tail[-20:], line.rstrip()]
                if heard is not None:
                    heard(line.rstrip())
        except BaseException:
            kill()
            raise
        finally:
            timer.cancel()
        code = process.wait()
        printed.seek(0)
        output = printed.read()
    if killed.is_set():
        cure = "run it again, it goes on where it stopped; HATSTACK_BUILD_MINUTES gives it more time"
        raise ControlPlaneError(f"`go {argv[0]}` was not done in time", place=str(folder), cure=cure)
    if code:
        raise ControlPlaneError(f"`go {argv[0]}` failed:\n" + "\n".join(tail), place=str(folder))
    return output


def teller(what: str, total: int = 0) -> Callable[[str], None]:
    """Shows every few seconds how many lines there were and how long it has taken."""
    begun, shown, count = time.monotonic(), 0.0, 0

    def heard(_line: str) -> None:
        nonlocal shown, count
        count += 1
        now = time.monotonic()
        if now - shown >= EVERY_S:
            shown = now
            of = f" of at most {total}" if total else ""
            print(f"  {count}{of} {what}, {now - begun:.0f} s", file=sys.stderr, flush=True)

    return heard
