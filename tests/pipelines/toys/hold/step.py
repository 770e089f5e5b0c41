"""Toy step `hold`: its run function."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from hat_components.data import digest_file
from hat_components.step import Progress, StepResult
from tests.pipelines.toys.hold.config import Config


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Report until the file stands."""
    pause = threading.Event()
    number = 0
    while not Path(config.release).exists():
        number += 1
        sys.stdout.write(f"line {number}\n")
        sys.stdout.flush()
        progress.metric("loss", 1 / number, number)
        progress.progress(number * config.tokens, 1_000_000, "tokens")
        pause.wait(0.05)
    (out / "model.txt").write_text("held")
    digest = digest_file(out / "model.txt")
    return StepResult(artifacts={"model": "model.txt"}, digests={"model": digest}, metrics={"rounds": 1.0})
