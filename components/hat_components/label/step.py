"""The label step: tasks from sessions, ratings by simulated raters or from a file, and what they say together.

Inputs: `evaluation` (with its sessions beside it, or `traces`); for pairs `other` (and `other_traces`); optional `labels`
(JSONL as the label store exports it) and `judge` (a folder, for single ratings). Writes `tasks.jsonl`, which a console
takes for people to label, and once there are ratings `labels.jsonl` and, for pairs, `preference.json`.
Always holds: ratings go through the same store as those of people. Not here: the store of a running console.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hat_components.data import digest_file, require_path, write_text
from hat_components.evaluate.result import Evaluation, TraceRecord, load_evaluation
from hat_components.judge.spec import load_judge
from hat_components.judge.step import read_traces
from hat_components.judge.subject import subjects_of_evaluation
from hat_components.label.config import Config
from hat_components.label.exchange import export, import_labels, tasks_lines
from hat_components.label.model import Project, Task
from hat_components.label.preference import FILE, preference
from hat_components.label.raters import rate_all
from hat_components.label.store import LabelStore
from hat_components.label.tasks import pair_project, pair_tasks, single_project, single_tasks
from hat_components.step import InputError, Progress, StepResult
from hat_registry.accounts import SYSTEM
from hat_registry.store.database import Database


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Make the tasks and, where there are raters or labels, rate them; InputError before anything is written."""
    if config.raters and "labels" in inputs:
        raise InputError("labels come from raters or from a file, not both", place="labels", cure="leave one out")
    project, tasks = _pairs(config, inputs) if config.kind == "pair" else _singles(config, inputs)
    database = Database("sqlite://")
    database.migrate()
    store = LabelStore(database)
    try:
        store.create(SYSTEM, project, tasks)
        if config.raters:
            ratings = rate_all(config.raters, project, tasks)
            store.put_all(SYSTEM, project.name, ratings, {one.name: one.name for one in config.raters})
        elif "labels" in inputs:
            lines = require_path(inputs, "labels").read_text(encoding="utf-8").split("\n")
            import_labels(store, SYSTEM, project.name, lines)
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / "tasks.jsonl", "".join(line + "\n" for line in tasks_lines(project, tasks)))
        return _finish(config, store, project, tasks, out, progress)
    finally:
        database.close()


def _finish(
    config: Config, store: LabelStore, project: Project, tasks: list[Task], out: Path, progress: Progress
) -> StepResult:
    files = {"tasks": "tasks.jsonl"}
    metrics = {"tasks": float(len(tasks))}
    ratings = store.ratings(SYSTEM, project.name)
    if ratings:
        write_text(out / "labels.jsonl", "".join(line + "\n" for line in export(store, SYSTEM, project.name)))
        files["labels"] = "labels.jsonl"
        metrics["ratings"] = float(len(ratings))
        if project.kind == "pair":
            found = preference(project, tasks, ratings, simulated=bool(config.raters))
            write_text(out / FILE, found.model_dump_json(indent=1) + "\n")
            files["preference"] = FILE
            metrics |= {side: float(getattr(found, side).count) for side in ("a", "tie", "b")}
    for name, file in files.items():
        progress.artifact(name, out / file)
    progress.progress(len(tasks), len(tasks))
    return StepResult(
        artifacts=files, digests={name: digest_file(out / file) for name, file in files.items()}, metrics=metrics
    )


def _pairs(config: Config, inputs: Mapping[str, Path]) -> tuple[Project, list[Task]]:
    a, b = (_side(inputs, *names) for names in (("evaluation", "traces"), ("other", "other_traces")))
    tasks = pair_tasks(a, b, config.suite, count=config.count, seed=config.seed)
    arms = (a[0].arm, b[0].arm) if a[0].arm != b[0].arm else ("a", "b")
    return pair_project(config.name, arms, seed=config.seed, ratings_per_item=config.ratings_per_item), tasks


def _singles(config: Config, inputs: Mapping[str, Path]) -> tuple[Project, list[Task]]:
    rubric = load_judge(inputs.get("judge", config.judge)).rubric
    evaluation, records = _side(inputs, "evaluation", "traces")
    subjects = list(subjects_of_evaluation(evaluation, records, config.suite, rubric))[: config.count]
    project = single_project(config.name, rubric, seed=config.seed, ratings_per_item=config.ratings_per_item)
    return project, list(single_tasks(subjects))


def _side(inputs: Mapping[str, Path], name: str, traces: str) -> tuple[Evaluation, list[TraceRecord]]:
    """An evaluation with its sessions."""
    path = require_path(inputs, name)
    beside = path / "traces.jsonl" if path.is_dir() else path.with_name("traces.jsonl")
    file = require_path(inputs, traces) if traces in inputs else beside
    return load_evaluation(path), list(read_traces(file))
