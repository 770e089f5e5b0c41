"""What was collected so far: one line for each finished item, so that a killed step never asks a teacher twice.

Always holds: an item whose line is in the file is finished; a line that a kill cut off is taken away when the file is
opened; a file of another run is refused. Not here: the dataset that it becomes (step).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import Field, ValidationError

from hat_components.data import Record, Trajectory
from hat_components.step import InputError, StepError
from hat_harness.errors import Kind


class JournalError(StepError):
    """The journal belongs to another run."""

    kind: Kind = "conflict"


class Collected(Record):
    """What became of one item."""

    item: str
    played: int
    """Sessions that the teacher finished."""
    failed: int = 0
    """Sessions that met a failing endpoint: they say nothing about the teacher."""
    accepted: int = 0
    """Sessions that scored well enough, kept or not."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    causes: tuple[str, ...] = ()
    """Why sessions were not accepted, one code for each session and cause."""
    trajectories: tuple[Trajectory, ...] = Field(default=())
    """The segments of the sessions that are kept."""


class Journal:
    """An open journal; use as a context manager."""

    def __init__(self, path: Path, identity: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.found: dict[str, Collected] = {}
        end = self._read(identity) if path.exists() else 0
        self._stream = path.open("r+b" if path.exists() else "wb")
        self._stream.truncate(end)
        self._stream.seek(end)
        if not end:
            self._append(json.dumps({"identity": identity}).encode())

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stream.close()

    def add(self, collected: Collected) -> None:
        """The item is finished; it is on the disk when this returns."""
        self._append(collected.model_dump_json().encode())
        self.found[collected.item] = collected

    def _append(self, line: bytes) -> None:
        self._stream.write(line + b"\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def _read(self, identity: str) -> int:
        """Take over the whole lines; returns where they end."""
        data = self.path.read_bytes()
        end = data.rfind(b"\n") + 1
        lines = data[:end].splitlines()
        if not lines:
            return 0
        try:
            if json.loads(lines[0]).get("identity") != identity:
                cure = "give a new output folder, or run with the config and inputs that it began with"
                raise JournalError("what was collected here is of another run", place=str(self.path), cure=cure)
            for line in lines[1:]:
                collected = Collected.model_validate_json(line)
                self.found[collected.item] = collected
        except (ValueError, ValidationError, AttributeError) as error:
            raise InputError(
                f"the journal is broken: {str(error)[:120]}", place=str(self.path), cure="remove it to begin anew"
            ) from error
        return end
