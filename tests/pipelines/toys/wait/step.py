"""Toy step `wait`: its run function."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from hat_components.step import Progress, StepResult
from tests.pipelines.toys.wait.config import Config

CHILD = """
import signal
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
signal.pause()
"""


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Write something by halves, say so, wait."""
    (out / "half.txt").write_text("half-written")
    child = subprocess.Popen([sys.executable, "-c", CHILD])
    part = Path(config.pids + ".part")
    part.write_text(f"{os.getpid()} {child.pid}")
    part.replace(config.pids)
    while True:
        signal.pause()
