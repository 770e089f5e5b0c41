"""What a runs directory holds that a report item can be made of: results by kind, the newest first.

Always holds: hidden folders and links are passed over; nothing is read before an item asks for it, and a file that is
broken is passed over with its reason kept in `broken`. Not here: what items make of it (items_*).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from hat_harness.errors import PlatformError

FILES = {
    "evaluation.json": "evaluation",
    "evolution.json": "evolution",
    "preference.json": "preference",
    "calibration.json": "calibration",
    "history.jsonl": "history",
    "dataset.json": "dataset",
    "progress.jsonl": "progress",
    "loadtest.json": "loadtest",
    "experiment.json": "experiment",
    "run.json": "run",
    "ablation.jsonl": "ablation",
}
"""Name of a result file → its kind."""
DEPTH = 8
R = TypeVar("R")


@dataclass(frozen=True)
class Source:
    """One result file."""

    kind: str
    path: Path
    changed: float
    """Time of its last change, seconds since the epoch."""
    run: str
    """First folder below the root that it was found under: the run's id."""
    step: str = ""
    """Folder below `steps`, "" outside of a run."""


@dataclass
class Sources:
    """Everything found below some roots."""

    found: list[Source] = field(default_factory=list)
    harness: Path | None = None
    """Harness folder whose inventory is shown."""
    profile: Path | None = None
    """Serving profile that is shown."""
    served: Sequence[tuple[str, str, str]] = ()
    """Its settings as (setting, argument of the engine, value)."""
    served_digest: str = ""
    broken: dict[str, str] = field(default_factory=dict)
    """Path → why it could not be read."""

    @classmethod
    def scan(cls, roots: Iterable[Path], *, harness: Path | None = None, profile: Path | None = None) -> Sources:
        """Look through the roots, newest results first."""
        every = [source for root in roots for source in _walk(root)]
        every.sort(key=lambda source: (-source.changed, str(source.path)))
        return cls(every, harness, profile)

    def of(self, kind: str) -> list[Source]:
        """Sources of a kind, the newest first."""
        return [source for source in self.found if source.kind == kind]

    def load(self, kind: str, read: Callable[[Path], R]) -> Iterator[tuple[Source, R]]:
        """Sources of a kind with what `read` makes of them; broken ones are passed over."""
        for source in self.of(kind):
            try:
                yield source, read(source.path)
            except (PlatformError, OSError, ValueError) as error:
                self.broken[str(source.path)] = str(error)[:200]

    def newest(self, kind: str, read: Callable[[Path], R]) -> tuple[Source, R] | None:
        """The newest that can be read, or None."""
        return next(self.load(kind, read), None)


def _walk(root: Path) -> Iterator[Source]:
    for folder, names, files in os.walk(root):
        here = Path(folder)
        parts = here.relative_to(root).parts
        names[:] = sorted(name for name in names if not name.startswith(".")) if len(parts) < DEPTH else []
        for name in files:
            path = here / name
            if name in FILES and not path.is_symlink():
                step = parts[parts.index("steps") + 1] if "steps" in parts[:-1] else ""
                run = parts[0] if parts else root.name
                yield Source(FILES[name], path, path.stat().st_mtime, run, step)
