"""A training step's frame: its identity, its courses one after the other, its artifact.

Always holds: a killed run that starts again in the same folder with the same config goes on where its last checkpoint
stands and ends with the same weights; with another config it is refused. Not here: what a course trains on (steps).
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hat_components.data import digest_path
from hat_components.model import parallel
from hat_components.model.artifact import ExistsError
from hat_components.model.batches import Stream
from hat_components.model.checkpoint import Checkpoints
from hat_components.model.folder import Loaded, read_training, save_folder
from hat_components.model.settings import FitConfig
from hat_components.model.train import FitReport, fit
from hat_components.step import Progress, StepConfig, StepResult
from hat_harness.digest import decimals, digest_json

MODEL = "model"
"""Name of the artifact and of its folder."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One course: its name prefixes the curves; `stream` is made when the course begins."""

    name: str
    fit: FitConfig
    stream: Callable[[], Stream]


@dataclass(frozen=True, slots=True)
class Identity:
    """What decides a training's result."""

    step: str
    config: StepConfig
    inputs: Mapping[str, str]
    """Input name → digest."""

    def record(self) -> dict[str, Any]:
        """As JSON, with the versions of what computes."""
        config = self.config.model_dump(mode="json")
        packages = ["torch", "transformers", "tokenizers", "trl"]
        if config.get("large") is None:
            config.pop("large", None)  # as it was before there was such a section
        else:
            packages += ["accelerate", "peft"]
        versions = {name: importlib.metadata.version(name) for name in packages}
        versions["python"] = platform.python_version()
        return {
            "step": self.step,
            "config": config,
            "inputs": dict(self.inputs),
            "versions": versions,
        }

    def digest(self) -> str:
        """Digest of the record."""
        return digest_json(decimals(self.record()))


def earlier(out: Path, identity: Identity, progress: Progress) -> StepResult | None:
    """The result that already stands in `out` (a run that was killed after its last write), or None."""
    folder = out / MODEL
    if not folder.exists():
        return None
    training = read_training(folder)
    if training.get("identity") != identity.digest():
        raise ExistsError("another model stands here", place=str(folder), cure="give a new output folder")
    return _result(out, training, progress)


def run_stages(
    loaded: Loaded,
    stages: Sequence[Stage],
    identity: Identity,
    out: Path,
    progress: Progress,
    dtype: Literal["float32", "bfloat16"],
) -> StepResult:
    """Run the courses, write the model folder, remove the checkpoints; of several processes the first one writes."""
    first = parallel.join().rank == 0
    reports: dict[str, FitReport] = {}
    kept = []
    for stage in stages:
        checkpoints = None
        if stage.fit.checkpoint_every and first:
            checkpoints = Checkpoints(out / "checkpoints" / stage.name, identity.digest())
            kept.append(checkpoints)
        reports[stage.name] = fit(
            loaded.model,
            stage.stream(),
            stage.fit,
            progress,
            name=stage.name,
            checkpoints=checkpoints,
            tokenizer=loaded.codec.tokenizer,
        )
    if not first:
        return StepResult()
    training = {
        **identity.record(),
        "identity": identity.digest(),
        "parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "stages": {name: report.facts() for name, report in reports.items()},
    }
    save_folder(out / MODEL, loaded.model, loaded.codec, training, dtype, loaded.folder)
    for checkpoints in kept:
        checkpoints.clear()
    result = _result(out, training, progress)
    seconds = sum(report.seconds for report in reports.values())
    return result.model_copy(update={"metrics": {**result.metrics, "train_seconds": seconds}})


def _result(out: Path, training: Mapping[str, Any], progress: Progress) -> StepResult:
    progress.artifact(MODEL, out / MODEL)
    metrics = {"parameters": float(training["parameters"])}
    for name, facts in training["stages"].items():
        metrics |= {f"{name}.{key}": float(value) for key, value in facts.items() if isinstance(value, int | float)}
    return StepResult(
        artifacts={MODEL: MODEL},
        digests={MODEL: digest_path(out / MODEL)},
        metrics=metrics,
        notes={"stages": training["stages"], "inputs": training["inputs"], "identity": training["identity"]},
    )
