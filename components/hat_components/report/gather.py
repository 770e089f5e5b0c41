"""Collects what a report can show from a step's inputs, and says what is missing and how to make it.

Inputs, each with an arm after a hyphen where there are several: `evaluation`, `traces`, `curves`, `registration`, and
any dataset folder under any name. Always holds: a missing or unreadable input never ends the report; it becomes a line
of `missing`. Not here: how it looks (view, page.html.j2).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hat_components.data import MANIFEST, Dataset, load_manifest
from hat_components.evaluate.result import Evaluation, load_evaluation
from hat_components.progress_file import read_curves
from hat_components.step import InputError

HOW = {
    "evaluation": "run the evaluate step for each arm",
    "traces": "the evaluate step writes traces.jsonl beside the evaluation",
    "curves": "give the progress.jsonl of a training step",
    "registration": "run the register step",
    "dataset": "give the dataset folders that the simulate, import and augment steps wrote",
}


@dataclass
class Material:
    """What there is to show; dictionaries are keyed by arm, in order of name."""

    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    traces: dict[str, Path] = field(default_factory=dict)
    curves: dict[str, list[tuple[str, float, int]]] = field(default_factory=dict)
    registration: dict[str, Any] = field(default_factory=dict)
    datasets: dict[str, Dataset] = field(default_factory=dict)
    missing: list[tuple[str, str]] = field(default_factory=list)
    """(what, how to make it)."""


def gather(inputs: Mapping[str, Path]) -> Material:
    """Read every input; raises `InputError` when not one of them can be shown."""
    material = Material()
    for name in sorted(inputs):
        try:
            _read(material, name, Path(inputs[name]))
        except InputError as error:
            material.missing.append((f"{name}: {error.message}", error.cure))
    found = {
        "evaluation": material.evaluations,
        "traces": material.traces,
        "curves": material.curves,
        "registration": material.registration,
        "dataset": material.datasets,
    }
    if not any(found.values()):
        reasons = "; ".join(what for what, _ in material.missing) or "no inputs were given"
        raise InputError(f"there is nothing to report: {reasons}", place="inputs", cure=HOW["evaluation"])
    given = {name.split("-")[0] for name in inputs}
    material.missing += [(f"no {kind}", HOW[kind]) for kind, value in found.items() if not value and kind not in given]
    return material


def _read(material: Material, name: str, path: Path) -> None:
    kind, _, arm = name.partition("-")
    if not path.exists():
        raise InputError("does not exist", place=str(path), cure=HOW.get(kind, "check the path"))
    if (path / MANIFEST).is_file():
        material.datasets[name] = load_manifest(path)
    elif kind == "evaluation":
        evaluation = load_evaluation(path)
        material.evaluations[arm or evaluation.arm] = evaluation
    elif kind == "traces":
        material.traces[arm] = path / "traces.jsonl" if path.is_dir() else path
    elif kind == "curves":
        material.curves[arm or "training"] = read_curves(path)
    elif kind == "registration":
        file = path / "registration.json" if path.is_dir() else path
        try:
            material.registration = dict(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise InputError("is no registration", place=str(file), cure=HOW["registration"]) from error
