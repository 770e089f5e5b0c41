"""The gate step: holds the scores of an evaluation against bounds; its metric `passed` is 1 or 0.

Inputs: `evaluation`, and `baseline` (an evaluation) where a bound speaks of a drop. Always holds: a score that is
missing breaks its bound. Not here: what follows from it (a condition of the pipeline, or the registry's own gates).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hat_components.data import digest_path, require_path, write_text
from hat_components.evaluate.result import Evaluation, load_evaluation
from hat_components.gate.config import Bound, Config
from hat_components.step import InputError, Progress, StepError, StepResult
from hat_harness.errors import Kind


class GateBrokenError(StepError):
    """A bound is broken and the config asks for an alarm."""

    kind: Kind = "check_failed"


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Write `gate.json` with one row for each bound. Raises GateBrokenError where an alarm is asked for."""
    evaluation = load_evaluation(require_path(inputs, "evaluation"))
    baseline = load_evaluation(inputs["baseline"]) if "baseline" in inputs else None
    rows = [_row(name, bound, evaluation, baseline) for name, bound in sorted(config.bounds.items())]
    broken = [row for row in rows if not row["passed"]]
    for row in broken:
        progress.warning(str(row["says"]))
    write_text(out / "gate.json", json.dumps({"model": evaluation.model, "rows": rows}, indent=2) + "\n")
    if broken and config.alarm:
        told = "; ".join(str(row["says"]) for row in broken)
        raise GateBrokenError(told, place="gate", cure="see the evaluation; roll back if production is at fault")
    return StepResult(
        artifacts={"gate": "gate.json"},
        digests={"gate": digest_path(out / "gate.json")},
        metrics={"passed": float(not broken), "broken": float(len(broken))},
    )


def _row(name: str, bound: Bound, evaluation: Evaluation, baseline: Evaluation | None) -> dict[str, Any]:
    found, before = _score(evaluation, name), _score(baseline, name) if baseline else None
    row: dict[str, Any] = {"score": name, "mean": None, "low": None, "baseline": before and before.mean}
    if found is None:
        return {**row, "passed": False, "says": f"{name} was not measured"}
    row |= {"mean": found.mean, "low": found.low}
    if bound.drop is not None and before is None:
        raise InputError(f"the bound of {name} needs a baseline", place="baseline", cure="bring the input baseline")
    if bound.least is not None and found.low < bound.least:
        return {
            **row,
            "passed": False,
            "says": f"{name} is {found.mean:.3f} (from {found.low:.3f}), below {bound.least:g}",
        }
    if bound.drop is not None and before is not None and found.mean < before.mean - bound.drop:
        return {**row, "passed": False, "says": f"{name} fell from {before.mean:.3f} to {found.mean:.3f}"}
    return {**row, "passed": True, "says": ""}


def _score(evaluation: Evaluation, name: str) -> Any:
    suite, _, score = name.partition(".")
    found = evaluation.suite(suite)
    return found.scores.get(score or found.headline) if found else None
