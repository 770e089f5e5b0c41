"""Reads the curves of a `progress.jsonl`, whichever runner wrote it.

Always holds: a line that is no finite metric point, or was cut off by a crash, is left out. Not here: writing (runner).
"""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path

from hat_components.step import InputError


def read_curves(path: Path) -> list[tuple[str, float, int]]:
    """(name, value, step) of every metric point, in order; `path` is the file or the folder that holds it."""
    file = path / "progress.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise InputError("there are no curves", place=str(file), cure="give a step's progress.jsonl")
    points: list[tuple[str, float, int]] = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = json.loads(line)
            if record.get("kind") == "metric" and isfinite(float(record["value"])):
                points.append((str(record["name"]), float(record["value"]), int(record["step"])))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return points
