"""The evolve step: measures a base and edits of it with fixed policies, keeps the best, checks it once on held-out items.

Inputs: `harness`; `items` (tagged for evolution). Optional: `candidate-<name>` (harness folders) or `candidates` (a folder
of such), `model` or `model-<policy>`, `held_out` (tagged for evaluation), `calibration` (the judge's items, only to be
told apart), `cache` (answers of the proposer). Always holds: sets that share an item by content are refused, and so are
development items that are tagged for anything else; an edit is held against the stage it was made from on the same items;
what is kept depends on development items alone. Not here: promotion (hat_registry), writing candidates by hand.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from hat_components.data import digest_path, read_items, refuse_overlap, require, write_text
from hat_components.evaluate.result import TraceRecord
from hat_components.evolve import effects
from hat_components.evolve.config import Config
from hat_components.evolve.edits import Edit, base_edit, given_edits, write_files
from hat_components.evolve.measure import Measured, measure, measurement
from hat_components.evolve.policy import Actor, open_policies
from hat_components.evolve.propose import Declined, propose
from hat_components.evolve.result import FILE, Difference, Evolution, HeldOut, Measurement, Stage
from hat_components.judge.chat import Cache, Chat
from hat_components.scenarios import load
from hat_components.step import InputError, Progress, StepResult
from hat_harness.digest import decimals, digest_json
from hat_harness.load import read_folder
from hat_scenarios.base import Item, Scenario


@dataclass
class _Job:
    """Everything that the stages of one run share."""

    config: Config
    out: Path
    progress: Progress
    scenario: Scenario
    items: Sequence[Item]
    held_out: Sequence[Item]
    actors: Sequence[Actor]
    digests: dict[str, str]
    traces: IO[str] | None = None
    measured: dict[str, dict[str, Measured]] = field(default_factory=dict)
    """Stage → policy → development rows."""
    stages: list[Stage] = field(default_factory=list)
    edits: dict[str, Edit] = field(default_factory=dict)
    best: str = "base"
    failed: int = 0
    """Edits in a row that did not become the best."""

    def keep(self, record: TraceRecord) -> None:
        """Write a session where sessions are kept."""
        if self.traces is not None:
            self.traces.write(record.model_dump_json() + "\n")


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Evolve and write the result; raises `InputError` before the first session when an input is wrong."""
    out.mkdir(parents=True, exist_ok=True)
    part = out / f".traces.part{os.getpid()}"
    with contextlib.ExitStack() as stack:
        items, held_out, scenario, digests = _sets(config, inputs)
        refuse_nothing_to_try(config, inputs)
        base = base_edit(inputs, out)
        given = given_edits(config, inputs, base, out)
        actors = stack.enter_context(open_policies(config, inputs))
        job = _Job(config, out, progress, scenario, items, held_out, actors, digests)
        if config.traces:
            stack.callback(part.unlink, missing_ok=True)
            job.traces = stack.enter_context(part.open("w", encoding="utf-8"))
        _stage(job, base, None)
        stopped = _try_all(job, given)
        if not stopped and config.proposals:
            stopped = _propose_all(job, inputs)
        checked = _check(job)
        if job.traces is not None:
            job.traces.close()
            part.replace(out / "traces.jsonl")
    evolution = Evolution(
        scenario=job.scenario.name,
        base=base.digest,
        dataset=digests["items"],
        held_out_dataset=digests.get("held_out", ""),
        config=digest_json(decimals(config.model_dump(mode="json"))),
        objective=config.objective,
        policies={actor.name: actor.digest for actor in actors},
        stages=tuple(job.stages),
        selected=job.best,
        stopped="patience" if stopped else "all_tried",
        held_out=checked[0],
        contrast=checked[1],
    )
    write_text(out / FILE, evolution.model_dump_json(indent=1) + "\n")
    return _result(evolution, job)


def _sets(config: Config, inputs: Mapping[str, Path]) -> tuple[list[Item], list[Item], Scenario, dict[str, str]]:
    """Development and held-out items, told apart by content from each other and from the judge's."""
    folder, manifest = require(inputs, "items", kind="items", purposes=["evolution"])
    every = {"items": read_items(folder)}
    digests = {"items": manifest.digest}
    if "held_out" in inputs:
        place, other = require(inputs, "held_out", kind="items", purposes=["evaluation"])
        every["held_out"] = read_items(place)
        digests["held_out"] = other.digest
    if "calibration" in inputs:
        place, _ = require(inputs, "calibration", kind="items", purposes=["calibration"])
        every["calibration"] = read_items(place)
    refuse_overlap(every)
    name = str(manifest.facts.get("scenario", every["items"][0].scenario))
    scenario = load(name, manifest.facts.get("settings"))
    held_out = every.get("held_out", [])[: config.held_out_items]
    return every["items"][: config.items], held_out, scenario, digests


def _try_all(job: _Job, edits: Sequence[Edit]) -> bool:
    """Measure the given edits in order, each against the one before; True when patience ended it."""
    parent = job.edits["base"]
    for place, edit in enumerate(edits):
        _stage(job, edit, parent)
        parent = edit
        if _enough(job):
            left = edits[place + 1 :]
            for before, one in zip((edit, *left), left, strict=False):
                job.edits[one.name] = one
                job.stages.append(_described(one, before, "not_tried", {}))
            if left:
                job.progress.warning(f"stopped after {edit.name}: {job.failed} edits in a row did not become the best")
            return bool(left)
    return False


def _propose_all(job: _Job, inputs: Mapping[str, Path]) -> bool:
    """Have edits written, each from the best harness so far; True when patience ended it."""
    config = job.config
    assert config.proposer is not None
    with Chat(config.proposer, cache=Cache(inputs.get("cache", job.out / "cache"))) as chat:
        for number in range(1, config.proposals + 1):
            parent = job.edits[job.best]
            history = [f"{one.name}: {one.note} ({one.outcome}; {one.diagnosis})" for one in job.stages]
            rows = job.measured[job.best][job.actors[0].name]
            made = propose(chat, read_folder(parent.folder), rows, history, tries=config.proposal_tries)
            if isinstance(made, Declined):
                job.progress.warning(f"proposal {number} came to nothing: {made.reason}")
                return False
            name = f"proposal-{number}"
            write_files(job.out / "harnesses" / name, made.files)
            _stage(job, Edit(name, "proposal", made.harness, job.out / "harnesses" / name, made.why), parent)
            if _enough(job):
                return number < config.proposals
    return False


def _enough(job: _Job) -> bool:
    return bool(job.config.patience) and job.failed >= job.config.patience


def _stage(job: _Job, edit: Edit, parent: Edit | None) -> None:
    """Measure one harness with every policy, describe it, and decide whether it is the best so far."""
    config = job.config
    rows: dict[str, Measured] = {}
    figures: dict[str, Measurement] = {}
    for actor in job.actors:
        job.progress.progress(len(job.stages), 0, f"{edit.name} with {actor.name}")
        rows[actor.name] = measure(
            actor, job.scenario, edit.harness, job.items,
            seed=config.seed, batch=config.batch, keep=job.keep, label=_label(edit.name, actor, job),
        )  # fmt: skip
        made = measurement(rows[actor.name], draws=config.draws, seed=config.seed)
        figures[actor.name] = made if parent is None else _with_effects(job, made, rows[actor.name], edit, parent)
    job.edits[edit.name] = edit
    job.measured[edit.name] = rows
    first = job.actors[0].name
    job.progress.metric(f"{first}.{config.objective}", figures[first].scores[config.objective].mean, len(job.stages))
    if parent is None:
        job.stages.append(_described(edit, None, "base", figures))
        return
    better = _better(job, figures[first])
    job.stages.append(_described(edit, parent, "kept" if better else "not_kept", figures))
    job.best, job.failed = (edit.name, 0) if better else (job.best, job.failed + 1)


def _label(stage: str, actor: Actor, job: _Job) -> str:
    return stage if len(job.actors) == 1 else f"{stage}.{actor.name}"


def _with_effects(job: _Job, made: Measurement, rows: Measured, edit: Edit, parent: Edit) -> Measurement:
    """The figures with what changed against the parent and against the base."""
    config = job.config
    found = {}
    for key, name in (("effect", parent.name), ("total", "base")):
        found[key] = effects.effect(
            job.measured[name][rows.policy], rows,
            objective=config.objective, against=name, name=edit.name, draws=config.draws, seed=config.seed,
        )  # fmt: skip
    return made.model_copy(update=found)


def _better(job: _Job, made: Measurement) -> bool:
    """Whether a measurement of the deciding policy beats the best so far and keeps to the limit of over-refusal."""
    config, first = job.config, job.actors[0].name
    stages = {stage.name: stage for stage in job.stages}
    best, base = (stages[name].measured[first] for name in (job.best, "base"))
    gain = made.scores[config.objective].mean - best.scores[config.objective].mean
    rise = (made.over_refusal.value or 0.0) - (base.over_refusal.value or 0.0)
    within = config.over_refusal_rise is None or rise <= config.over_refusal_rise + 1e-12
    return gain > config.min_gain + 1e-12 and within


def _described(edit: Edit, parent: Edit | None, outcome: str, figures: Mapping[str, Measurement]) -> Stage:
    return Stage.model_validate(
        {
            "name": edit.name,
            "kind": edit.kind,
            "parent": parent.name if parent else "",
            "harness": edit.digest,
            "folder": f"harnesses/{edit.name}",
            "note": edit.note,
            "changes": edit.changes(parent) if parent else (),
            "tokens": edit.tokens,
            "outcome": outcome,
            "diagnosis": diagnosis(next(iter(figures.values()), None)),
            "measured": dict(figures),
        }
    )


def diagnosis(made: Measurement | None) -> str:
    """One sentence of figures: what the edit did to both scores, to refusals, and where most turns changed."""
    if made is None or made.effect is None:
        return ""
    effect = made.effect
    parts = [
        f"Accuracy {100 * effect.accuracy.delta:+.1f}, Effectiveness {100 * effect.effectiveness.delta:+.1f} points "
        f"against {effect.against}; {effect.fixed} turns fixed, {effect.broken} broken"
    ]
    moved = [(name, one) for name, one in effect.intents.items() if one.fixed or one.broken]
    if moved:
        name, one = moved[0]
        parts.append(f"most in {name} (+{one.fixed}, −{one.broken})")
    over = made.over_refusal
    if over.count:
        parts.append(f"{over.count} of {over.n} answerable turns refused")
    return "; ".join(parts)


def _check(job: _Job) -> tuple[dict[str, HeldOut], dict[str, Difference]]:
    """The selected harness against the base on held-out items, for every policy."""
    if not job.held_out or job.best == "base":
        return {}, {}
    config = job.config
    found: dict[str, HeldOut] = {}
    gained: dict[str, list[float]] = {}
    for actor in job.actors:
        before, after = (_held_out(job, name, actor) for name in ("base", job.best))
        gained[actor.name] = effects.gains(before, after)
        found[actor.name] = _compared(job, before, after)
    first = job.actors[0].name
    contrast = {
        name: effects.gain_contrast(gained[first], gain, a=name, b=first, draws=config.draws, seed=config.seed)
        for name, gain in gained.items()
        if name != first
    }
    return found, contrast


def _held_out(job: _Job, name: str, actor: Actor) -> Measured:
    job.progress.progress(len(job.stages), 0, f"held out: {name} with {actor.name}")
    return measure(
        actor,
        job.scenario,
        job.edits[name].harness,
        job.held_out,
        seed=job.config.seed,
        batch=job.config.batch,
        keep=job.keep,
        label=f"held-out.{_label(name, actor, job)}",
    )


def _compared(job: _Job, before: Measured, after: Measured) -> HeldOut:
    draws, seed = job.config.draws, job.config.seed
    share, low, high = effects.reduction(before, after, draws=draws, seed=seed)
    objective = job.config.objective
    return HeldOut(
        policy=before.policy,
        turns=len(before.rows),
        errors_before=before.errors,
        errors_after=after.errors,
        reduction=share,
        reduction_low=low,
        reduction_high=high,
        effect=effects.effect(
            before, after, objective=objective, against="base", name=job.best, draws=draws, seed=seed
        ),
        before=measurement(before, draws=draws, seed=seed),
        after=measurement(after, draws=draws, seed=seed),
    )


def _result(evolution: Evolution, job: _Job) -> StepResult:
    out, first = job.out, job.actors[0].name
    artifacts = {"evolution": FILE, "selected": f"harnesses/{evolution.selected}"}
    if (out / "traces.jsonl").is_file():
        artifacts["traces"] = "traces.jsonl"
    for name, file in artifacts.items():
        job.progress.artifact(name, out / file)
    metrics = {
        f"{stage.name}.{metric}": stage.measured[first].scores[metric].mean
        for stage in evolution.stages
        if stage.measured
        for metric in ("accuracy", "effectiveness")
    }
    for name, held in evolution.held_out.items():
        metrics |= {f"held_out.{name}.before": held.errors_before, f"held_out.{name}.after": held.errors_after}
    job.progress.progress(len(evolution.stages), len(evolution.stages))
    return StepResult(
        artifacts=artifacts,
        digests={name: digest_path(out / file) for name, file in artifacts.items()},
        metrics=metrics,
        notes={"selected": evolution.selected, "stopped": evolution.stopped},
    )


def refuse_nothing_to_try(config: Config, inputs: Mapping[str, Path]) -> None:
    """InputError when there is neither a candidate nor a proposer."""
    if not config.proposals and not any(name.startswith("candidate") for name in inputs):
        raise InputError("there is no edit to try", place="candidates", cure="give a candidate folder or a proposer")
