"""Toy step `add`: its run function."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from hat_components.data import digest_file
from hat_components.step import InputError, Progress, StepError, StepResult
from tests.pipelines.toys.add.config import Config


class AwayError(StepError):
    """A server is away."""

    kind = "unavailable"


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Write the sum of every input's numbers."""
    (out / "half.txt").write_text("half-written")
    _fail(config)
    total = sum(sum(json.loads(path.read_text())) for path in inputs.values() if path.suffix == ".json")
    (out / "half.txt").unlink()
    (out / "sum.json").write_text(json.dumps([total]))
    return StepResult(
        artifacts={"sum": "sum.json"}, digests={"sum": digest_file(out / "sum.json")}, metrics={"total": float(total)}
    )


def _fail(config: Config) -> None:
    if config.fail == "absent":
        if not Path(config.marker).exists():
            raise InputError("the marker is absent", place=config.marker, cure="make it")
    elif config.marker:
        marker = Path(config.marker)
        first = not marker.exists()
        with marker.open("a") as stream:
            stream.write("try\n")
        if config.fail == "once" and first:
            raise AwayError("the server is away", place="server", cure="wait")
    if config.fail == "away":
        raise AwayError("the registry is away", place="registry", cure="resume when it is back")
    if config.fail == "input":
        raise InputError("the numbers are bad", place="numbers.json:3", cure="draw them again")
    if config.fail == "bug":
        raise ZeroDivisionError("a bug")
    if config.fail == "disk":
        Path("/dev/full").write_text("more than there is room for")
    if config.fail == "memory":
        raise MemoryError
    if config.fail == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
