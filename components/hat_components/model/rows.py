"""Rows of a trajectory dataset (`hatstack.trajectory/1`), one for each segment.

Always holds: data that are not tagged for training are refused; a row without a supervised token is left out and
counted. Not here: batches, the making of trajectories (augment).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hat_components.data import Trajectory, read_records, require
from hat_components.model.codec import Codec, Row
from hat_components.step import InputError


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one arm and where they come from."""

    rows: list[Row]
    digest: str
    skipped: int
    """Trajectories without anything to learn from."""


def trajectory_rows(inputs: Mapping[str, Path], name: str, codec: Codec, arm: str = "") -> Rows:
    """Rows of the dataset given as input `name`; `arm` "" takes all arms. Raises InputError."""
    folder, manifest = require(inputs, name, kind="trajectories", purposes=("training",))
    arms: Counter[str] = Counter()
    rows: list[Row] = []
    skipped = 0
    for trajectory in read_records(folder, Trajectory):
        arms[trajectory.arm] += 1
        if arm and trajectory.arm != arm:
            continue
        row = codec.row(trajectory.messages, trajectory.tools)
        if row.supervised():
            rows.append(row.compact())
        else:
            skipped += 1
    if not rows:
        found = ", ".join(f"{name} ({count})" for name, count in sorted(arms.items()))
        raise InputError(f"there is no trajectory of the arm {arm!r}", place=str(folder), cure=f"arms in it: {found}")
    return Rows(rows, manifest.digest, skipped)
