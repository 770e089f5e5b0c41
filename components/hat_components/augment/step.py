"""The augment step: items and a harness become conversations of the arms `naive` and `hsa`.

Inputs: `harness` and `items` (the scripted expert acts through real sessions) or `conversations` (imported ones,
rewritten with the tools they bring). Always holds: a conversation is kept only when every score of it is 1; both arms
answer the same items and have equal budgets to within one conversation. Not here: training on them (sft).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hat_components.augment.config import Config
from hat_components.augment.imported import imported_arms
from hat_components.data import Dataset, DatasetWriter, Trajectory, kept_until, read_items, require, text_size
from hat_components.scenarios import load
from hat_components.sessions import Played, States, play_scored, read_harness, training_messages
from hat_components.step import InputError, Progress, StepResult
from hat_harness.augment import AugmentPlan, Holdout
from hat_harness.augment.engine import base_digest
from hat_scenarios.base import Item

ARMS = ("naive", "hsa")


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Write the dataset `trajectories` with one split for each arm."""
    plan = Holdout(families=config.held_out).train(config.plan)
    if "conversations" in inputs:
        folder, source = require(inputs, "conversations", kind="conversations", purposes=["training"])
        arms, facts = imported_arms(config, plan, folder, progress)
        facts |= kept_until([source])
        sources = {"conversations": source.digest}
    else:
        folder, source = require(inputs, "items", kind="items", purposes=["training"])
        arms, facts = _played_arms(config, plan, read_items(folder), inputs, progress)
        sources = {"items": source.digest, "harness": facts["harness"]}
    budget = min([*(_size(rows) for rows in arms.values()), *([config.budget] if config.budget else [])])
    fitting = {arm: _within(rows, budget) for arm, rows in arms.items()}
    manifest = _write(out / "trajectories", fitting, config, sources, {**facts, "budget": budget})
    progress.artifact("trajectories", out / "trajectories")
    return StepResult(
        artifacts={"trajectories": "trajectories"},
        digests={"trajectories": manifest.digest},
        metrics={
            **{f"count_{arm}": float(len(rows)) for arm, rows in fitting.items()},
            **{f"size_{arm}": float(_size(rows)) for arm, rows in fitting.items()},
            "kept_share": float(facts["kept_share"]),
        },
        notes=manifest.facts,
    )


def _played_arms(
    config: Config, plan: AugmentPlan, items: Sequence[Item], inputs: Mapping[str, Path], progress: Progress
) -> tuple[dict[str, list[Trajectory]], dict[str, Any]]:
    if "harness" not in inputs:
        raise InputError("input 'harness' was not given", place="inputs", cure="give a harness folder")
    harness = read_harness(Path(inputs["harness"]))
    scenario = load(config.scenario, config.settings)
    plans: dict[str, AugmentPlan | None] = {"naive": None, "hsa": plan}
    kept: dict[str, dict[str, list[Trajectory]]] = {arm: {} for arm in ARMS}
    causes: dict[str, int] = {}
    for turn, arm in enumerate(ARMS):
        states = States(scenario, harness, plans[arm], config.seed)
        cases = [(item, states.of(item)) for item in items]
        for number, played in enumerate(play_scored(scenario, cases, None, label=f"{arm}-", batch=config.batch)):
            if played.perfect:
                kept[arm][played.item.id] = list(_trajectories(arm, played, config.scenario))
            for cause in {cause for score in played.scores for cause in score.causes}:
                causes[cause] = causes.get(cause, 0) + 1
            if number % config.batch == 0:
                progress.progress(turn * len(items) + number, 2 * len(items), arm)
    share = sum(len(found) for found in kept.values()) / (2 * len(items))
    facts = {
        "harness": base_digest(harness),
        "source": "expert",
        "kept_share": round(share, 4),
        "causes": dict(sorted(causes.items())),
    }
    if share < config.least_kept:
        raise InputError(
            f"the expert reached the gold outcome in {share:.1%} of the sessions only; causes: {facts['causes']}",
            place=str(inputs["harness"]),
            cure="the harness lacks a skill, tool or rule that the scenario needs; compare it with the shipped one",
        )
    both = [item.id for item in items if all(item.id in found for found in kept.values())]
    return {arm: [row for ident in both for row in kept[arm][ident]] for arm in ARMS}, facts


def _trajectories(arm: str, played: Played, scenario: str) -> Iterable[Trajectory]:
    for segment in played.trace.segments:
        messages = training_messages(segment)
        yield Trajectory(
            id=f"{arm}/{played.item.id}/{segment.index}",
            arm=arm,
            item=played.item.id,
            scenario=scenario,
            source="expert",
            harness=played.state.digest,
            operators=played.state.families,
            messages=messages,
            tools=segment.tools,
            score=1.0,
            size=text_size(messages, segment.tools),
        )


def _size(rows: Iterable[Trajectory]) -> int:
    return sum(row.size for row in rows)


def _within(rows: Sequence[Trajectory], budget: int) -> list[Trajectory]:
    """The first rows that fit into the budget."""
    kept, used = [], 0
    for row in rows:
        if used + row.size > budget:
            break
        kept.append(row)
        used += row.size
    return kept


def _write(
    folder: Path,
    arms: Mapping[str, Sequence[Trajectory]],
    config: Config,
    sources: dict[str, str],
    facts: dict[str, Any],
) -> Dataset:
    for arm, rows in arms.items():
        if not rows:
            raise InputError(f"arm {arm} has no conversation", place=str(folder), cure="give more items or budget")
    with DatasetWriter(folder, kind="trajectories", splits=arms) as writer:
        for arm, rows in arms.items():
            for row in rows:
                writer.write(arm, row)
        sizes = {
            arm: {"count": len(rows), "size": _size(rows), "states": len({row.harness for row in rows})}
            for arm, rows in arms.items()
        }
        return writer.finish(
            name=f"{config.scenario.replace('_', '-')}-trajectories",
            purpose="training",
            seed=config.seed,
            sources=sources,
            facts={**facts, "arms": sizes},
        )
