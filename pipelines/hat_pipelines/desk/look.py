"""Runs as pages and programs see them: the list, one run with its graph, curves, logs, artifacts.

Always holds: nothing is changed; a run whose record says `running` while nobody holds its lock is shown as interrupted;
records are only read again when their file changed. Not here: orders (store), markup (hat_console).
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hat_harness.errors import PlatformError
from hat_pipelines import profile as profiles
from hat_pipelines.dag import Dag, parents
from hat_pipelines.errors import RunNotFoundError
from hat_pipelines.profile import Profile
from hat_pipelines.progress import Tail
from hat_pipelines.runs import FINISHED, RUN_ID, RunFolder, RunRecord, open_run

POINTS = 400
"""Most points of one curve; longer ones are thinned."""
LOG_BYTES = 64 * 1024
"""How much of a log's end is shown at first."""


@lru_cache(maxsize=4096)
def record_of(path: Path, changed: int, size: int) -> RunRecord | None:
    """The record in a file of this time of change and size; None when it cannot be read."""
    try:
        return RunRecord.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def records(root: Path) -> list[RunRecord]:
    """Every run below `root`, the newest first; folders that cannot be read are left out."""
    found: list[tuple[str, RunRecord]] = []
    if not root.is_dir():
        return []
    for path in root.glob("*/run.json"):
        try:
            stat = path.stat()
        except OSError:
            continue
        record = record_of(path, stat.st_mtime_ns, stat.st_size)
        if record is not None:
            found.append((record.started, record))
    found.sort(key=lambda pair: (pair[0], pair[1].id), reverse=True)
    return [record for _, record in found]


def alive(root: Path, run: str) -> bool:
    """Whether a process works in the run."""
    try:
        with (root / run / ".lock").open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def state(root: Path, record: RunRecord) -> str:
    """The run's state; `interrupted` where its process is gone without a word."""
    if record.state == "running" and not alive(root, record.id):
        return "interrupted"
    return record.state


def summary(root: Path, record: RunRecord) -> dict[str, Any]:
    """A row of the list."""
    done = sum(step.state in FINISHED or step.state == "skipped" for step in record.steps.values())
    return {
        "run": record.id,
        "pipeline": record.pipeline,
        "profile": record.profile,
        "runner": record.runner,
        "state": state(root, record),
        "done": done,
        "steps": len(record.steps),
        "started": record.started,
        "ended": record.ended,
        "seconds": record.seconds,
        "config": record.config,
        "code": record.code,
    }


def find(root: Path, run: str) -> RunFolder:
    """The folder of a run; RunNotFoundError, also for what is no run name."""
    if not RUN_ID.match(run):
        raise RunNotFoundError(f"no run {run[:64]!r}", place="runs", cure="see /runs")
    return open_run(root, run)


def profile_of(folder: RunFolder) -> Profile | None:
    """The run's resolved profile; None when it is no longer understood."""
    try:
        return profiles.load(folder.profile, imported=folder.record.imported)
    except PlatformError:
        return None


@dataclass(frozen=True, slots=True)
class Node:
    """A step in the graph's grid."""

    name: str
    column: int
    row: int
    needs: tuple[str, ...]


def layout(dag: Dag) -> list[Node]:
    """Steps by their longest way from the start (column), in the DAG's order within a column (row)."""
    columns: dict[str, int] = {}
    rows: dict[int, int] = {}
    nodes = []
    for name in dag.order():
        step = dag.step(name)
        column = 1 + max((columns[parent] for parent in parents(step)), default=-1)
        columns[name] = column
        rows[column] = rows.get(column, -1) + 1
        nodes.append(Node(name, column, rows[column], tuple(sorted(parents(step)))))
    return nodes


def detail(root: Path, run: str) -> dict[str, Any]:
    """One run with its steps: state, share done, metrics, artifacts, fault."""
    folder = find(root, run)
    whole = state(root, folder.record)
    loaded = profile_of(folder)
    dag = loaded.dag(imported=folder.record.imported) if loaded else None
    nodes = layout(dag) if dag else []
    order = [node.name for node in nodes] or list(folder.record.steps)
    return {
        **summary(root, folder.record),
        "origin": loaded.pipeline if loaded else folder.record.pipeline,
        "resumable": whole in ("failed", "interrupted", "partial"),
        "report": folder.report.exists(),
        "experiment": _experiment(folder),
        "remote": folder.record.remote,
        "inputs": {name: one.model_dump(mode="json") for name, one in folder.record.inputs.items()},
        "versions": folder.record.versions,
        "host": folder.record.host,
        "graph": [
            {"name": node.name, "column": node.column, "row": node.row, "needs": list(node.needs)} for node in nodes
        ],
        "steps_detail": [_step(folder, name, whole) for name in order if name in folder.record.steps],
    }


def _experiment(folder: RunFolder) -> str:
    """Id of the MLflow experiment that the run wrote to; "" before its register step is done."""
    for name, record in folder.record.steps.items():
        result = folder.step(name).read_result() if record.component == "register" else None
        if result is not None:
            return str(result.notes.get("experiment", ""))
    return ""


def _step(folder: RunFolder, name: str, whole: str) -> dict[str, Any]:
    record = folder.record.steps[name]
    files = folder.step(name)
    shown = "interrupted" if record.state == "running" and whole == "interrupted" else record.state
    watched = Tail(files.progress).read()
    result = files.read_result() if record.state in FINISHED else None
    return {
        "step": name,
        "component": record.component,
        "state": shown,
        "seconds": record.seconds,
        "started": record.started,
        "ended": record.ended,
        "tries": record.tries,
        "key": record.key,
        "share": watched.share if shown == "running" else None,
        "note": watched.note if shown == "running" else "",
        "warnings": watched.warnings[:20],
        "metrics": result.metrics if result else dict(watched.metrics),
        "artifacts": [
            {"name": key, "path": path, "digest": result.digests.get(key, "")} for key, path in result.artifacts.items()
        ]
        if result
        else [],
        "fault": record.fault.model_dump(mode="json") if record.fault else None,
        "log": files.log.exists(),
    }


def curves(root: Path, run: str, steps: Sequence[str] = ()) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Curve name → step → points (x, value), while the steps run and afterwards."""
    folder = find(root, run)
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name in steps or folder.record.steps:
        for curve, points in points_of(folder.step(name).progress).items():
            found.setdefault(curve, {})[name] = points
    return found


def points_of(path: Path) -> dict[str, list[tuple[float, float]]]:
    """The curves in one progress file; a later try takes the place of an earlier one at the same x."""
    series: dict[str, dict[float, float]] = {}
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return {}
    for line in lines:
        if b'"metric"' not in line:
            continue
        try:
            record = json.loads(line)
            if record.get("kind") == "metric":
                series.setdefault(str(record["name"]), {})[float(record["step"])] = float(record["value"])
        except (ValueError, KeyError, TypeError):
            continue
    return {name: _thin(sorted(points.items())) for name, points in series.items()}


def _thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    step = -(-len(points) // POINTS)
    return points if step <= 1 else [*points[:-1:step], points[-1]]


def read_log(path: Path, offset: int | None) -> tuple[str, int]:
    """Whole lines of a log from `offset` (None: from near its end) and the offset behind them."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            begin = max(0, size - LOG_BYTES) if offset is None or offset > size else offset
            stream.seek(begin)
            block = stream.read(LOG_BYTES * 4)
    except OSError:
        return "", 0
    if offset is None and begin:
        cut = block.find(b"\n") + 1
        begin, block = begin + cut, block[cut:]
    whole = block[: block.rfind(b"\n") + 1]
    return whole.decode(errors="replace"), begin + len(whole)
