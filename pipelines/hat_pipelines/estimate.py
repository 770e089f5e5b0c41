"""How long a plan will take, from how long the same steps took in earlier runs.

Always holds: a step that no earlier run did has no estimate, and the total then says so. Runs of the same profile count
before others of the same pipeline. Not here: the plan (plan).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hat_pipelines.desk.look import records
from hat_pipelines.plan import Job, Planned

LAST = 5
"""Earlier runs of a step that are looked at, the newest first."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds by step, and of the whole."""

    steps: Mapping[str, float]
    total: float
    """Sum of the steps that run, over the steps that may run at a time; what waits for each other takes longer."""
    unknown: tuple[str, ...]
    """Steps that run and that no earlier run did."""


def estimate(root: Path, job: Job, planned: Sequence[Planned]) -> Estimate:
    """What the steps that would run took before, below `root`."""
    before = [record for record in records(root) if record.pipeline == job.dag.name]
    before.sort(key=lambda record: record.profile != job.profile.name)  # stable: the newest stay first
    found: dict[str, float] = {}
    unknown = []
    for entry in planned:
        if entry.action != "run":
            continue
        spent = [
            record.steps[entry.step].seconds
            for record in before
            if entry.step in record.steps and record.steps[entry.step].state == "done"
        ][:LAST]
        if spent:
            found[entry.step] = round(statistics.median(spent), 1)
        else:
            unknown.append(entry.step)
    return Estimate(found, round(sum(found.values()) / job.profile.local.parallel, 1), tuple(unknown))
