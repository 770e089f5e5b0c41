"""Reads the `progress.jsonl` that a running step appends to (kinds start, progress, metric, artifact, warning, end).

Always holds: only whole lines are read; a line that is not understood is passed over. Not here: writing (the step's
own process) and showing (display).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Watched:
    """What is known of one step from its progress file."""

    done: int = 0
    total: int = 0
    note: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    """Last value of every curve."""
    warnings: list[str] = field(default_factory=list)

    @property
    def share(self) -> float | None:
        """Share of the work that is done, None while the step has not said."""
        return min(1.0, self.done / self.total) if self.total > 0 else None

    def take(self, record: dict[str, Any]) -> None:
        """Fold one record in."""
        kind = record.get("kind")
        if kind == "progress":
            self.done, self.total = int(record.get("done", 0)), int(record.get("total", 0))
            self.note = str(record.get("note", ""))
        elif kind == "metric":
            self.metrics[str(record.get("name", ""))] = float(record.get("value", 0.0))
        elif kind == "warning":
            self.warnings.append(str(record.get("message", "")))

    def figures(self, limit: int = 2) -> str:
        """The live metrics in few words, losses first."""
        names = sorted(self.metrics, key=lambda name: ("loss" not in name, name))[:limit]
        return "  ".join(f"{name} {self.metrics[name]:.4g}" for name in names)


class Tail:
    """Follows one progress file from where it stopped last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self.watched = Watched()

    def read(self) -> Watched:
        """Take in what was appended since; a file that became shorter is read from its start."""
        try:
            with self._path.open("rb") as stream:
                if stream.seek(0, 2) < self._offset:
                    self._offset, self.watched = 0, Watched()
                stream.seek(self._offset)
                block = stream.read()
        except OSError:
            return self.watched
        whole = block[: block.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            try:
                record = json.loads(line)
                if isinstance(record, dict):
                    self.watched.take(record)
            except (ValueError, TypeError):
                continue
        return self.watched
