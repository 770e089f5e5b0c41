"""The judge step: scores the sessions of an evaluation, or calibrates a judge on labelled ones.

Inputs: `evaluation` (folder of an evaluate step, or its evaluation.json); all others optional: `traces` (traces.jsonl,
else the one beside the evaluation), `judge` (folder) in place of a built-in one, `labels` (JSONL), `calibration` (of
this very judge), `history` (JSONL of calibrations), `cache` (folder of earlier answers). Always holds: a calibration of
another judge is refused; calibration takes calibration items or labels, never the test set's own truth. Not here: who
labels, what is decided from the scores.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from hat_components.data import digest_file, require_path, write_text
from hat_components.evaluate.result import TraceRecord, load_evaluation
from hat_components.judge.calibration import JudgeCalibration, calibrate
from hat_components.judge.chat import Budget
from hat_components.judge.config import Config
from hat_components.judge.history import rate_shift, read_history, shift
from hat_components.judge.labels import labels_of, read_labels
from hat_components.judge.panel import Judgement, Panel, open_panel
from hat_components.judge.result import judged_result
from hat_components.judge.spec import Judge, load_judge
from hat_components.judge.subject import Subject, subjects_of_evaluation
from hat_components.step import InputError, Progress, StepResult


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Judge, then score or calibrate; raises `InputError` before the first request when an input is wrong."""
    judge = load_judge(inputs.get("judge", config.judge))
    if config.endpoint:
        judge = judge.at(config.endpoint, config.endpoint_model)
    folder = require_path(inputs, "evaluation")
    beside = folder / "traces.jsonl" if folder.is_dir() else folder.with_name("traces.jsonl")
    traces = require_path(inputs, "traces") if "traces" in inputs else beside
    evaluation = load_evaluation(folder)
    subjects = list(subjects_of_evaluation(evaluation, read_traces(traces), config.suite, judge.rubric))
    subjects = subjects[: config.subjects]
    if not subjects:
        raise InputError("there is nothing to judge", place=str(folder), cure="evaluate with traces: true")
    calibration = _calibration(inputs, judge)
    if calibration is not None and config.mode == "score":
        _refuse_calibrated_on(calibration, subjects)
    history = read_history(inputs["history"]) if "history" in inputs else []
    labels = read_labels(inputs["labels"], judge.rubric) if "labels" in inputs else None
    if config.mode == "calibrate" and labels is None:
        if evaluation.seeds == "sealed":
            raise InputError(
                "a judge is not calibrated on the test set's own truth", place="evaluation",
                cure="evaluate items_calibration, or give labels of people",
            )  # fmt: skip
        labels = labels_of(subjects)
    out.mkdir(parents=True, exist_ok=True)
    with open_panel(judge, cache=inputs.get("cache", out / "cache"), budget=_budget(config)) as panel:
        judgements = _judge(panel, subjects, progress)
        usage = {name: {key: float(value) for key, value in vars(used).items()} for name, used in panel.usage.items()}
    write_text(out / "judgements.jsonl", "".join(one.model_dump_json() + "\n" for one in judgements))
    if config.mode == "calibrate":
        made = calibrate(judge, judgements, labels or [], level=config.level, seed=config.seed, usage=usage)
        return _finish(
            out,
            progress,
            "calibration",
            made.model_dump_json(indent=1),
            _calibrated(config, made, history, out, progress),
        )
    file = folder / "evaluation.json" if folder.is_dir() else folder
    judged = judged_result(
        judge,
        judgements,
        calibration,
        evaluation=digest_file(file),
        suite=config.suite,
        level=config.level,
        draws=config.draws,
        seed=config.seed,
        usage=usage,
    )
    metrics: dict[str, float] = {}
    for name, found in judged.criteria.items():
        metrics |= {f"{name}.raw": found.raw.value or 0.0, f"{name}.missing": float(sum(found.missing.values()))}
        if found.corrected is not None and found.corrected.value is not None:
            metrics[f"{name}.corrected"] = found.corrected.value
    return _finish(out, progress, "judged", judged.model_dump_json(indent=1), metrics)


def read_traces(file: Path) -> Iterator[TraceRecord]:
    """The sessions of a JSONL file; InputError where there are none or one is damaged."""
    if not file.is_file():
        raise InputError("there are no sessions", place=str(file), cure="evaluate with traces: true")
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                yield TraceRecord.model_validate_json(line)
            except ValidationError as error:
                raise InputError("not a session", place=f"{file}:{number}", cure="evaluate again") from error


def _budget(config: Config) -> Budget:
    return Budget(cost=config.cost, requests=config.requests)


def _calibration(inputs: Mapping[str, Path], judge: Judge) -> JudgeCalibration | None:
    """The given calibration, which must be of this judge."""
    if "calibration" not in inputs:
        return None
    path = inputs["calibration"]
    file = path / "calibration.json" if path.is_dir() else path
    try:
        found = JudgeCalibration.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise InputError(
            "there is no calibration", place=str(file), cure="run the judge step in mode calibrate"
        ) from error
    if found.judge != judge.digest:
        raise InputError(
            f"this calibrates {found.name} revision {found.revision}, which is another judge", place=str(file),
            cure="calibrate the judge that scores: rubric, members and voting decide its digest",
        )  # fmt: skip
    return found


def _refuse_calibrated_on(calibration: JudgeCalibration, subjects: Sequence[Subject]) -> None:
    """Refuse to correct scores by error rates that were measured on the same turns."""
    shared = sorted(calibration.truth.keys() & {one.id for one in subjects})
    if shared:
        raise InputError(
            f"{len(shared)} turns were calibrated on, such as {shared[0]!r}", place="calibration",
            cure="score other items than those that the judge was calibrated on",
        )  # fmt: skip


def _judge(panel: Panel, subjects: Sequence[Subject], progress: Progress) -> list[Judgement]:
    judgements = []
    for done, judgement in enumerate(panel.judge_all(subjects), 1):
        judgements.append(judgement)
        if done % 20 == 0 or done == len(subjects):
            progress.progress(done, len(subjects), panel.judge.name)
    return judgements


def _calibrated(
    config: Config, made: JudgeCalibration, history: Sequence[JudgeCalibration], out: Path, progress: Progress
) -> dict[str, float]:
    """Write the history with this calibration at its end, warn of drift since the last, give the metrics."""
    lines = [one.model_dump_json() for one in (*history, made)]
    write_text(out / "history.jsonl", "\n".join(lines) + "\n")
    metrics: dict[str, float] = {}
    for name, found in made.criteria.items():
        metrics[f"{name}.missing"] = float(sum(found.missing.values()))
        if found.agreement is not None:
            metrics[f"{name}.agreement"] = found.agreement
        if found.kappa.value is not None:
            metrics[f"{name}.kappa"] = found.kappa.value
        if not history:
            continue
        alarm, told = _moved(config, history[-1], made, name)
        metrics[f"{name}.drift"] = float(alarm)
        if alarm:
            progress.warning(f"{name}: the judge has moved since revision {history[-1].revision}. {told}")
    return metrics


def _moved(config: Config, before: JudgeCalibration, after: JudgeCalibration, name: str) -> tuple[bool, str]:
    """(alarm, words) against the last calibration: on shared items where there are any, else by error rates."""
    with contextlib.suppress(InputError):  # other items than last time
        moved = shift(before, after, name, alpha=config.drift_alpha, seed=config.seed)
        return moved.alarm, moved.text_en
    if name not in before.criteria:
        return False, ""
    rates = rate_shift(before, after, name, alpha=config.drift_alpha)
    return rates.alarm, f"sensitivity p = {rates.sensitivity_p:.3g}, specificity p = {rates.specificity_p:.3g}"


def _finish(out: Path, progress: Progress, name: str, text: str, metrics: Mapping[str, float]) -> StepResult:
    write_text(out / f"{name}.json", text + "\n")
    files = {name: f"{name}.json", "judgements": "judgements.jsonl"}
    if (out / "history.jsonl").is_file():
        files["history"] = "history.jsonl"
    for key, file in files.items():
        progress.artifact(key, out / file)
    return StepResult(
        artifacts=files, digests={key: digest_file(out / file) for key, file in files.items()}, metrics=dict(metrics)
    )
