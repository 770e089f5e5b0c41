"""The register step: one MLflow run for each arm, and one model version for the arm that does better on dev seeds.

Always holds: an arm is only registered with an evaluation of that very model (by digest); arms are never compared on
sealed seeds; only safetensors weights are taken. Inputs, with the arm's name after a hyphen where there are several:
`model`, `evaluation`, and if given `curves` (a step's progress.jsonl). Not here: MLflow itself (tracking).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hat_components.data import digest_path, write_text
from hat_components.evaluate.result import Evaluation, load_evaluation
from hat_components.progress_file import read_curves
from hat_components.register.config import Config
from hat_components.register.tracking import Tracking, Version, locate
from hat_components.step import InputError, Progress, StepResult

_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib")


@dataclass(frozen=True)
class Arm:
    """One trained arm with its evidence."""

    name: str
    model: Path
    digest: str
    evaluation: Evaluation
    evidence: Path
    curves: Path | None
    score: float
    """Weighted headline score, what arms are compared by."""


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Log every arm, register the best; raises InputError before anything is sent, TrackingError when MLflow fails."""
    arms = gather(config, inputs)
    best = choose(arms)
    uri = locate(config.uri, out / "mlflow")
    tracking = Tracking(
        uri,
        f"{config.workspace}.{config.experiment}",
        config.artifact_root,
        timeout_s=config.timeout_s,
        retries=config.retries,
    )
    version: Version | None = None
    for index, arm in enumerate(arms):
        tags = _tags(config, arm)
        with tracking.run(f"{config.name}-{arm.name}", {**tags, "hatstack.run": config.run}) as run_id:
            _log(tracking, run_id, arm)
            if arm is best:
                name = f"{config.workspace}.{config.name}"
                version = tracking.register(run_id, name, config.alias, tags)
        progress.progress(index + 1, len(arms), arm.name)
    assert version is not None
    record = {
        "arm": best.name,
        "model": f"model:{version.name}@{best.digest}",
        "version": version.version,
        "alias": config.alias,
        "source": version.source,
        "changed": version.created,
        "tracking_uri": uri.split("@")[-1],
        "experiment": tracking.experiment,
        "scores": {arm.name: arm.score for arm in arms},
        "select": dict(config.select),
    }
    write_text(out / "registration.json", json.dumps(record, indent=2) + "\n")
    progress.artifact("registration", out / "registration.json")
    return StepResult(
        artifacts={"registration": "registration.json"},
        digests={"registration": digest_path(out / "registration.json"), "model": best.digest},
        metrics={**{f"score_{arm.name}": arm.score for arm in arms}, "version": float(version.version)},
        notes=record,
    )


def gather(config: Config, inputs: Mapping[str, Path]) -> list[Arm]:
    """The arms among the inputs, checked; in order of name."""
    names = sorted(name.removeprefix("model").lstrip("-_") for name in inputs if name.split("-")[0] == "model")
    if not names:
        raise InputError("there is no model", place="inputs", cure="give the input model, or model-ARM for each arm")
    return [_arm(config, inputs, name) for name in names]


def _arm(config: Config, inputs: Mapping[str, Path], name: str) -> Arm:
    suffix = f"-{name}" if name else ""
    model, evidence = (inputs.get(f"{kind}{suffix}") for kind in ("model", "evaluation"))
    if model is None or evidence is None:
        raise InputError(
            f"arm {name or 'model'!r} has no evaluation", place="inputs", cure=f"give the input evaluation{suffix}"
        )
    _check_weights(Path(model))
    evaluation, digest = load_evaluation(Path(evidence)), digest_path(Path(model))
    if evaluation.model != digest:
        raise InputError(
            f"the evaluation is of another model ({evaluation.model[:19]}), not of {digest[:19]}",
            place=str(evidence),
            cure="evaluate this model",
        )
    curves = inputs.get(f"curves{suffix}")
    return Arm(
        name=name or evaluation.arm,
        model=Path(model),
        digest=digest,
        evaluation=evaluation,
        evidence=Path(evidence),
        curves=Path(curves) if curves is not None else None,
        score=weigh(evaluation, config.select, str(evidence)),
    )


def weigh(evaluation: Evaluation, select: Mapping[str, float], place: str = "") -> float:
    """Weighted mean of the headline scores of the suites in `select`."""
    total = 0.0
    for ident, weight in select.items():
        suite = evaluation.suite(ident)
        if suite is None:
            raise InputError(
                f"the evaluation has no suite {ident!r}, which decides between arms",
                place=place,
                cure=f"evaluate it, or select among {', '.join(suite.id for suite in evaluation.suites)}",
            )
        total += weight * suite.scores[suite.headline].mean
    return total / sum(select.values())


def choose(arms: list[Arm]) -> Arm:
    """The arm with the highest score; of equals the first by name. Refuses to choose on sealed seeds."""
    sealed = [arm.name for arm in arms if arm.evaluation.seeds == "sealed"]
    if len(arms) > 1 and sealed:
        raise InputError(
            f"arms {', '.join(sealed)} were evaluated on sealed seeds: choosing by them would spoil the final table",
            place="evaluation",
            cure="compare arms by an evaluation with seeds=dev",
        )
    sets = {(arm.evaluation.dataset, arm.evaluation.harness) for arm in arms}
    if len(sets) > 1:
        raise InputError(
            "the arms were evaluated on different items or harnesses",
            place="evaluation",
            cure="evaluate all arms with the same dataset and harness",
        )
    return max(arms, key=lambda arm: arm.score)


def _check_weights(model: Path) -> None:
    if not model.is_dir() or not any(model.glob("*.safetensors")):
        raise InputError("there are no safetensors weights", place=str(model), cure="give a model folder")
    for path in sorted(model.rglob("*")):
        if path.suffix in _PICKLES:
            raise InputError(
                "pickled weights are refused: loading them runs code", place=str(path), cure="convert it to safetensors"
            )


def _tags(config: Config, arm: Arm) -> dict[str, str]:
    evaluation = arm.evaluation
    return {
        "hatstack.workspace": config.workspace,
        "hatstack.arm": arm.name,
        "hatstack.model": arm.digest,
        "hatstack.harness": evaluation.harness,
        "hatstack.dataset": evaluation.dataset,
        "hatstack.config": evaluation.config,
        "hatstack.code": config.code or evaluation.environment.get("hatstack", ""),
        "hatstack.profile": config.profile,
    }


def _log(tracking: Tracking, run_id: str, arm: Arm) -> None:
    evaluation = arm.evaluation
    metrics = {"selection": arm.score}
    for suite in evaluation.suites:
        for metric, interval in suite.scores.items():
            metrics[f"{suite.id}.{metric}"] = interval.mean
    params = {
        "arm": arm.name,
        "policy": evaluation.policy,
        "seeds": evaluation.seeds,
        **{f"environment.{key}": value for key, value in evaluation.environment.items()},
        **{f"n.{suite.id}": suite.n for suite in evaluation.suites},
    }
    tracking.log(run_id, params=params, metrics=metrics, curves=read_curves(arm.curves) if arm.curves else ())
    tracking.upload(run_id, arm.model, "model")
    evidence = arm.evidence / "evaluation.json" if arm.evidence.is_dir() else arm.evidence
    tracking.upload(run_id, evidence, "evidence")
    if arm.curves:
        tracking.upload(run_id, arm.curves, "evidence")
