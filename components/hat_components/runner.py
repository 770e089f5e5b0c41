"""Runs one step as a process: `python -m hat_components.<step> --config FILE --input NAME=PATH --out DIR`.

Always holds: `DIR/result.json` appears last and only when the step ended well; an expected error is told in one line
with its cure, never as a traceback, and its kind decides the exit code. Paths in `result.json` are relative to DIR.
Not here: run folders, caching, retries (hat_pipelines), what a step does.
"""

from __future__ import annotations

import argparse
import errno
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from hat_components.step import InputError, Run, StepConfig, StepError, StepResult
from hat_harness.errors import Kind, PlatformError

EXIT_CODES: Mapping[Kind, int] = {
    "check_failed": 1,
    "usage": 2,
    "invalid_input": 3,
    "conflict": 4,
    "forbidden": 4,
    "unavailable": 5,
    "exhausted": 6,
    "internal": 70,
}
"""Exit code of every kind of error; 0 is success, 130 an interrupt."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class FileProgress:
    """A `Progress` that appends JSON lines to a file: start, progress, metric, artifact, warning, end.

    Use it as a context manager: entering writes `start`, leaving writes `end` with ok true or false.
    """

    def __init__(self, path: Path, step: str = "") -> None:
        self._path, self._step = path, step
        self._began = time.monotonic()
        self._stream: IO[str] | None = None

    def __enter__(self) -> FileProgress:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self._path.open("a", encoding="utf-8")
        self._write("start", step=self._step)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._write("end", ok=kind is None)
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _write(self, kind: str, **fields: Any) -> None:
        if self._stream is None:
            return
        record = {"kind": kind, "seconds": round(time.monotonic() - self._began, 3), **fields}
        self._stream.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
        self._stream.flush()  # whole lines, so that a watcher sees them and a kill loses none

    def progress(self, done: int, total: int, note: str = "") -> None:
        """`done` of `total` units are finished."""
        self._write("progress", done=done, total=total, note=note)

    def metric(self, name: str, value: float, step: int) -> None:
        """One point of a curve; what is no finite number is left out with a warning."""
        if math.isfinite(value):
            self._write("metric", name=name, value=value, step=step)
        else:
            self.warning(f"{name} is {value} at step {step}")

    def artifact(self, name: str, path: Path) -> None:
        """An artifact stands complete at `path`."""
        self._write("artifact", name=name, path=str(path))

    def warning(self, message: str) -> None:
        """Something the reader of the report should know."""
        self._write("warning", message=message)


def main(config_class: type[StepConfig], run: Run, argv: Sequence[str] | None = None) -> None:
    """Parse the command line, run the step, exit. `run` gets DIR itself as `out`."""
    sys.exit(execute(config_class, run, sys.argv[1:] if argv is None else argv))


def execute(config_class: type[StepConfig], run: Run, argv: Sequence[str]) -> int:
    """Like `main`, but returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {config_class.__module__.rpartition('.')[0]}")
    parser.add_argument("--config", type=Path, help="JSON file; every field has a default if it is not given")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=PATH", help="may be repeated")
    parser.add_argument("--out", type=Path, required=True, help="folder for artifacts, progress and result")
    given = parser.parse_args(argv)
    try:
        _refuse_finished(given.out)
        config = _read_config(config_class, given.config)
        inputs = _read_inputs(given.input)
        given.out.mkdir(parents=True, exist_ok=True)
        with FileProgress(given.out / "progress.jsonl", config_class.__module__.split(".")[-2]) as progress:
            result = run(config, inputs, given.out, progress)
        _write(given.out / "config.json", config.model_dump_json(indent=2))
        _write(given.out / "result.json", result.model_dump_json(indent=2))
    except PlatformError as error:
        return _tell(error)
    except OSError as error:
        if error.errno in _FULL:
            return _tell(_full(error))
        raise
    except KeyboardInterrupt:
        return 130
    except MemoryError:
        traceback.print_exc()
        return EXIT_CODES["exhausted"]
    sys.stdout.write(json.dumps(_summary(result)) + "\n")
    return 0


def _full(error: OSError) -> PlatformError:
    found = StepError(f"cannot write: {error.strerror}", place=str(error.filename or ""), cure="free disk space")
    found.kind = "exhausted"
    return found


def _summary(result: StepResult) -> dict[str, Any]:
    return {"artifacts": result.artifacts, "digests": result.digests, "metrics": result.metrics}


def _tell(error: PlatformError) -> int:
    sys.stderr.write(f"error: {error}\n")
    return EXIT_CODES[error.kind]


def _refuse_finished(out: Path) -> None:
    if (out / "result.json").exists():
        error = StepError("a finished step stands here", place=str(out), cure="give a new output folder")
        error.kind = "conflict"
        raise error


def _read_config(config_class: type[StepConfig], path: Path | None) -> StepConfig:
    try:
        return config_class.model_validate_json(b"{}" if path is None else path.read_bytes())
    except OSError as error:
        raise InputError(f"the config cannot be read: {error.strerror}", place=str(path)) from error
    except ValidationError as error:
        found = [f"{'.'.join(map(str, fault['loc'])) or 'config'}: {fault['msg']}" for fault in error.errors()]
        raise InputError("; ".join(found), place=str(path or "config"), cure="see the step's config class") from error


def _read_inputs(given: Sequence[str]) -> dict[str, Path]:
    inputs: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or not name:
            raise InputError(f"{text!r} is not NAME=PATH", place="--input")
        if not Path(path).exists():
            raise InputError(f"input {name!r} does not exist", place=path)
        inputs[name] = Path(path)
    return inputs


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        draft.write_text(text + "\n", encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
