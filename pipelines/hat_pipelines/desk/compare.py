"""Two runs side by side: what was set differently, what came out, curves, some conversations.

Always holds: values are compared in the resolved profiles, so a default that changed shows too. Not here: markup.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from hat_components.evaluate.result import TraceRecord
from hat_harness.trace import turns
from hat_pipelines.desk import look
from hat_pipelines.runs import RunFolder

SAMPLES = 6
"""Conversations that are shown of both."""
MISSING = object()


def compare(root: Path, a: str, b: str, *, samples: bool) -> dict[str, Any]:
    """Everything that two runs differ in. `samples`: show conversations, for those who may read traces."""
    left, right = look.find(root, a), look.find(root, b)
    return {
        "a": look.summary(root, left.record),
        "b": look.summary(root, right.record),
        "config": config_difference(left, right),
        "versions": _changed(left.record.versions, right.record.versions),
        "metrics": _metrics(left, right),
        "curves": _curves(root, left, right),
        "samples": _samples(left, right) if samples else [],
    }


def config_difference(left: RunFolder, right: RunFolder) -> list[dict[str, Any]]:
    """Keys of the resolved profiles that differ, with both values; None where one lacks the key."""
    rows = [
        {"key": key, "a": None if one is MISSING else one, "b": None if other is MISSING else other}
        for key, one, other in _leaves(_profile(left), _profile(right))
    ]
    for name in sorted(left.record.inputs.keys() | right.record.inputs.keys()):
        one, other = left.record.inputs.get(name), right.record.inputs.get(name)
        if (one and one.digest) != (other and other.digest):
            rows.append({"key": f"input {name}", "a": one and one.digest, "b": other and other.digest})
    if left.record.code != right.record.code:
        rows.append({"key": "code", "a": left.record.code, "b": right.record.code})
    return rows


def _profile(folder: RunFolder) -> Any:
    try:
        return yaml.safe_load(folder.profile.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        return {}


def _leaves(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys(), key=str):
            below = f"{path}.{key}" if path else str(key)
            yield from _leaves(old.get(key, MISSING), new.get(key, MISSING), below)
    elif old != new:
        yield path, old, new


def _changed(old: dict[str, str], new: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {"key": key, "a": old.get(key), "b": new.get(key)}
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _metrics(left: RunFolder, right: RunFolder) -> list[dict[str, Any]]:
    rows = []
    for name in [*left.record.steps, *(name for name in right.record.steps if name not in left.record.steps)]:
        one, other = (_measured(side, name) for side in (left, right))
        for metric in sorted(one.keys() | other.keys()):
            a, b = one.get(metric), other.get(metric)
            gap = b - a if a is not None and b is not None and math.isfinite(a) and math.isfinite(b) else None
            rows.append({"step": name, "metric": metric, "a": a, "b": b, "difference": gap})
    return rows


def _measured(folder: RunFolder, step: str) -> dict[str, float]:
    result = folder.step(step).read_result() if step in folder.record.steps else None
    return result.metrics if result else {}


def _curves(root: Path, left: RunFolder, right: RunFolder) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Step and curve → run → points, where both runs have the curve."""
    one, other = look.curves(root, left.id), look.curves(root, right.id)
    return {
        f"{step} {curve}": {left.id: one[curve][step], right.id: other[curve][step]}
        for curve in one
        for step in one[curve]
        if step in other.get(curve, {})
    }


def _samples(left: RunFolder, right: RunFolder) -> list[dict[str, Any]]:
    """The first conversations that both runs played on the same items, by step."""
    rows: list[dict[str, Any]] = []
    for name, record in left.record.steps.items():
        if record.component != "evaluate" or len(rows) >= SAMPLES:
            continue
        one, other = (_played(side, name) for side in (left, right))
        for key in [key for key in one if key in other][: SAMPLES - len(rows)]:
            pairs = [
                {"event": asked, "a": said, "b": other[key][index][1] if index < len(other[key]) else ""}
                for index, (asked, said) in enumerate(one[key])
            ]
            rows.append({"step": name, "suite": key[0], "item": key[1], "turns": pairs})
    return rows


def _played(folder: RunFolder, step: str) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """(suite, item) → (asked, answered) per turn, of the first conversations in a step's traces."""
    path = folder.step(step).artifact("traces") if step in folder.record.steps else None
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    if path is None:
        return found
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    for file in files:
        with file.open("rb") as lines:
            for line in lines:
                if len(found) >= SAMPLES * 4:
                    return found
                try:
                    record = TraceRecord.model_validate_json(line)
                except ValueError:
                    continue
                found.setdefault(
                    (record.suite, record.item),
                    [(" / ".join(one.texts) or one.event, one.reply or one.outcome) for one in turns(record.trace)],
                )
    return found
