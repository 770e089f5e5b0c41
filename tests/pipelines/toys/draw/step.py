"""Toy step `draw`: its run function."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

from hat_components.data import digest_file
from hat_components.step import Progress, StepResult
from tests.pipelines.toys.draw.config import Config


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Draw `count` numbers and append the configured ones."""
    assert all(isinstance(number, int) for number in config.numbers)
    generator = random.Random(config.seed)
    drawn = [generator.randrange(100) for _ in range(config.count)] + list(config.numbers)
    (out / "numbers.json").write_text(json.dumps(drawn))
    progress.progress(1, 1)
    progress.metric("loss", 0.5, 1)
    return StepResult(
        artifacts={"numbers": "numbers.json"},
        digests={"numbers": digest_file(out / "numbers.json")},
        metrics={"count": float(len(drawn))},
    )
