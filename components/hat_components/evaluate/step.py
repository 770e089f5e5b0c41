"""The evaluate step: plays and asks what the suites say, writes `evaluation.json` and `traces.jsonl`.

Inputs: `model` (for policy `model`), `items` and `harness` (for suites of rollouts), `held_out` (for suite calls), and
if given `trained_on`, the trajectories that the model was trained on, which must answer none of the items.
Seeds are sealed exactly when the items are a test set, so that published tables never meet a state that anything was
tuned on. Always holds: training items are refused; a suite's states depend on its seed and the items alone, so that all
arms meet the same ones. Not here: comparing evaluations (report, hat compare).
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import IO, Literal

from hat_components.augment.imported import rewritten
from hat_components.data import (
    Trajectory,
    digest_file,
    digest_path,
    read_items,
    read_records,
    require,
    require_path,
    write_text,
)
from hat_components.evaluate import adversarial, answers, public_calls
from hat_components.evaluate.config import Config
from hat_components.evaluate.own import Case, own_cases
from hat_components.evaluate.result import Evaluation, ItemResult, SuiteResult, TraceRecord, TurnResult, mean_values
from hat_components.evaluate.summary import suite_result, turn_result
from hat_components.importer.conversation import Conversation
from hat_components.scenarios import load
from hat_components.sessions import Played, States, play_scored, read_harness
from hat_components.step import InputError, Progress, StepResult
from hat_components.suites import Suite, choose
from hat_harness.augment import suite_plan
from hat_harness.augment.engine import base_digest
from hat_harness.digest import decimals, digest_json
from hat_harness.ports import BatchModel
from hat_harness.spec import Harness
from hat_scenarios.base import Item, Scenario

HEADLINES = {
    "rollout": "average",
    "instructions": "followed",
    "ifeval": "prompt_strict",
    "calls": "exact",
    "bfcl": "exact",
}


@dataclass
class _Job:
    """Everything that the suites of one run share."""

    config: Config
    model: BatchModel | None
    """None: the scripted expert."""
    count: Callable[[str], int] | None
    progress: Progress
    traces: IO[str] | None
    seeds: Literal["dev", "sealed"] = "dev"
    scenario: Scenario | None = None
    items: Sequence[Item] = ()
    harness: Harness | None = None
    conversations: list[Conversation] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Run every suite and write the evaluation; raises `InputError` before the first rollout when an input is wrong."""
    chosen = choose(config.suites)
    out.mkdir(parents=True, exist_ok=True)
    part = out / f".traces.part{os.getpid()}"
    with contextlib.ExitStack() as stack:
        job = _prepare(config, chosen, inputs, progress, stack)
        if config.traces and any(suite.kind == "rollout" for suite in chosen):
            stack.callback(part.unlink, missing_ok=True)
            job.traces = stack.enter_context(part.open("w", encoding="utf-8"))
        results = []
        for index, suite in enumerate(chosen):
            progress.progress(index, len(chosen), suite.id)
            result = _suite(job, suite)
            results.append(result)
            for metric, interval in result.scores.items():
                progress.metric(f"{suite.id}.{metric}", interval.mean, index)
        if job.traces is not None:
            job.traces.close()
            part.replace(out / "traces.jsonl")
    evaluation = Evaluation(
        arm=config.arm,
        policy=config.policy if config.policy != "endpoint" else config.endpoint_model,
        model=job.digests.get("model", ""),
        harness=job.digests.get("harness", ""),
        dataset=job.digests.get("items") or job.digests.get("held_out", ""),
        config=digest_json(decimals(config.model_dump(mode="json"))),
        seeds=job.seeds,
        suites=tuple(results),
        environment=environment(config) | job.notes,
    )
    write_text(out / "evaluation.json", evaluation.model_dump_json(indent=1) + "\n")
    progress.progress(len(chosen), len(chosen))
    return _result(evaluation, out, progress)


def _result(evaluation: Evaluation, out: Path, progress: Progress) -> StepResult:
    artifacts = {"evaluation": "evaluation.json"}
    if (out / "traces.jsonl").is_file():
        artifacts["traces"] = "traces.jsonl"
    for name, file in artifacts.items():
        progress.artifact(name, out / file)
    scores = {suite.id: suite.scores for suite in evaluation.suites}
    return StepResult(
        artifacts=artifacts,
        digests={name: digest_file(out / file) for name, file in artifacts.items()},
        metrics={f"{ident}.{metric}": value.mean for ident, found in scores.items() for metric, value in found.items()},
        notes={
            "arm": evaluation.arm,
            "seeds": evaluation.seeds,
            "n": {suite.id: suite.n for suite in evaluation.suites},
        },
    )


def _prepare(
    config: Config, chosen: Sequence[Suite], inputs: Mapping[str, Path], progress: Progress, stack: contextlib.ExitStack
) -> _Job:
    """Check and read every input that the suites need; the model last, since it takes longest."""
    kinds = {suite.kind for suite in chosen}
    job = _Job(config, None, None, progress, None)
    if any(suite.kind == "rollout" and not suite.scenario for suite in chosen):
        job.harness = read_harness(require_path(inputs, "harness"))
        folder, manifest = require(inputs, "items", kind="items", purposes=["evaluation", "evolution", "calibration"])
        job.items = read_items(folder, config.items)
        _refuse_trained_on(inputs, {item.id for item in job.items})
        job.scenario = load(str(manifest.facts.get("scenario", job.items[0].scenario)), manifest.facts.get("settings"))
        job.seeds = "sealed" if set(manifest.splits) == {"test"} else "dev"
        job.digests |= {"harness": base_digest(job.harness), "items": manifest.digest}
    if "calls" in kinds:
        folder, manifest = require(inputs, "held_out", kind="conversations")
        if "held_out" not in manifest.splits:
            raise InputError(
                "these conversations are not the held-out half", place=str(folder), cure="give the import's held_out"
            )
        job.conversations = list(read_records(folder, Conversation))[: config.conversations]
        job.digests["held_out"] = manifest.digest
    if "bfcl" in kinds:
        job.digests.setdefault("held_out", public_calls.digest(config.t5))
        job.notes["t5_training"] = public_calls.trained(_trained_on(inputs))
    if config.policy == "expert":
        if kinds != {"rollout"}:
            raise InputError("the expert plays rollouts only", place="suites", cure="name suites of rollouts")
    elif config.policy == "endpoint":
        job.model = _endpoint(config, stack)
    else:
        job.model, job.count, job.digests["model"] = _local(config, require_path(inputs, "model"))
    return job


def _trained_on(inputs: Mapping[str, Path]) -> Iterator[str] | None:
    """Ids of the items that the training conversations given as `trained_on` answer; None when none are given."""
    if "trained_on" not in inputs:
        return None
    folder, _ = require(inputs, "trained_on", kind="trajectories")
    return (trajectory.item for trajectory in read_records(folder, Trajectory))


def _refuse_trained_on(inputs: Mapping[str, Path], asked: set[str]) -> None:
    """Refuse items that the training conversations answer."""
    for item in _trained_on(inputs) or ():
        if item in asked:
            raise InputError(
                f"item {item} was trained on: its score would say nothing",
                place=str(inputs["trained_on"]),
                cure="evaluate the dev or test items of the same simulate step",
            )


def _local(config: Config, folder: Path) -> tuple[BatchModel, Callable[[str], int], str]:
    """The model of a folder, its token counter and its digest. Imports torch."""
    from hat_components.model.anymodel import policy_from_folder

    model = policy_from_folder(
        folder, temperature=config.temperature, seed=config.seed, precision=config.precision, rows=config.batch
    )
    return model, lambda text: len(model.codec.encode_text(text)), digest_path(folder)


def _endpoint(config: Config, stack: contextlib.ExitStack) -> BatchModel:
    from hat_components.endpoint import Endpoint

    return stack.enter_context(
        Endpoint(
            config.endpoint,
            config.endpoint_model,
            key_variable=config.endpoint_key,
            parallel=config.endpoint_parallel,
            timeout_s=config.endpoint_timeout_s,
            temperature=config.temperature,
            seed=config.seed,
        )
    )


def _suite(job: _Job, suite: Suite) -> SuiteResult:
    config, seed, began = job.config, suite.seed(job.seeds), time.monotonic()

    def tick(done: int) -> None:
        job.progress.progress(done, 0, suite.id)

    if suite.kind == "rollout":
        items = _rollouts(job, suite, seed)
    else:
        assert job.model is not None
        limits = {"batch": config.batch, "max_tokens": config.answer_tokens}
        if suite.kind == "instructions":
            items = answers.run_instructions(job.model, seed, config.instructions, **limits, tick=tick)
        elif suite.kind == "bfcl":
            plan = suite_plan(suite.holdout) if suite.holdout else None
            items = public_calls.run_bfcl(job.model, config.t5, plan, seed, **limits, tick=tick)
        elif suite.kind == "ifeval":
            items = answers.run_ifeval(job.model, config.ifeval, **limits, tick=tick)
        else:
            asked = job.conversations
            if suite.holdout:
                asked = list(rewritten(asked, suite_plan(suite.holdout), seed))
            items = answers.run_calls(job.model, asked, **limits, tick=tick)
    if not items:
        raise InputError(f"suite {suite.id} has nothing to score", place=suite.id, cure="give more items")
    return suite_result(
        suite,
        items,
        headline=HEADLINES[suite.kind],
        seed=seed,
        draws=config.draws,
        boot=config.seed,
        seconds=time.monotonic() - began,
    )


def _rollouts(job: _Job, suite: Suite, seed: int) -> list[ItemResult]:
    """Every item under its states; an item's scores are the means over its turns and states."""
    if suite.scenario:
        scenario, cases = own_cases(suite, seed, job.config.t3)
        return _played(job, suite, scenario, cases)
    assert job.scenario is not None
    assert job.harness is not None
    items = job.items[: max(1, round(len(job.items) * suite.share))]
    attacked = adversarial.targets(job.scenario, items, suite, seed) if suite.attack else None
    if attacked is not None:
        items = [item for item, _ in attacked.values()]
    plan = suite_plan(suite.holdout) if suite.holdout else None
    states = States(job.scenario, job.harness, plan, seed)
    cases = [(item, states.of(item, number)) for item in items for number in range(suite.states)]
    return _played(job, suite, job.scenario, cases, attacked)


def _played(
    job: _Job,
    suite: Suite,
    scenario: Scenario,
    cases: Sequence[Case],
    attacked: Mapping[str, tuple[Item, frozenset[int]]] | None = None,
) -> list[ItemResult]:
    played = play_scored(scenario, cases, job.model, label=f"{suite.id}-", batch=job.config.batch, count=job.count)
    found: dict[str, list[Played]] = {}
    for done, one in enumerate(played, start=1):
        rows = found.setdefault(one.item.id, [])
        if job.traces is not None:
            job.traces.write(_record(suite, one, len(rows)).model_dump_json() + "\n")
        rows.append(one)
        if done % job.config.batch == 0:
            job.progress.progress(done, len(cases), suite.id)
    results = [_item(ident, rows) for ident, rows in found.items()]
    if attacked is None:
        return results
    return [adversarial.with_attacks(scenario, one, found[one.item], attacked) for one in results]


def _record(suite: Suite, one: Played, number: int) -> TraceRecord:
    return TraceRecord(
        suite=suite.id,
        item=one.item.id,
        state=number,
        harness=one.state.digest,
        families=one.state.families,
        trace=one.trace,
    )


def _item(ident: str, rows: Sequence[Played]) -> ItemResult:
    turns = tuple(_turns(rows))
    return ItemResult(
        item=ident,
        values=mean_values([turn.values for turn in turns]),
        turns=turns,
        harness=rows[0].state.digest,
        families=tuple(dict.fromkeys(family for one in rows for family in one.state.families)),
    )


def _turns(rows: Sequence[Played]) -> Iterator[TurnResult]:
    for one in rows:
        for turn, scores in zip(one.item.turns, one.scores, strict=True):
            yield turn_result(turn.intent, scores)


def environment(config: Config) -> dict[str, str]:
    """Versions and machine, as far as a result can depend on them."""
    packages = ["hatstack", "numpy", *(["torch", "transformers"] if config.policy == "model" else [])]
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": str(os.cpu_count() or 0),
        **{package: version(package) for package in packages},
    }
