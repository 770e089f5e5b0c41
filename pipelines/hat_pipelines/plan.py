"""Decides, before anything runs, what a run will do with each step: keep it, take it from the cache, or run it.

Always holds: a step that is kept has the same key as when it ran. Keys of steps behind one that must run are unknown
until that has finished; the plan says `run` for them. Not here: running (run).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hat_components.data import digest_path
from hat_components.step import StepConfig, StepResult
from hat_pipelines.cache import Cache, step_key
from hat_pipelines.dag import INPUT, Dag, Step, parents, source, suggest
from hat_pipelines.errors import DagError, PipelineError
from hat_pipelines.profile import Profile
from hat_pipelines.runs import FINISHED, RunFolder

Action = Literal["run", "keep", "cached", "leave out"]


@dataclass(frozen=True)
class Brought:
    """A file or folder that the run brings from outside."""

    path: Path
    digest: str


@dataclass(frozen=True)
class Job:
    """One pipeline with everything that fixes its result."""

    dag: Dag
    profile: Profile
    """Resolved: every step's section is complete."""
    configs: Mapping[str, StepConfig]
    inputs: Mapping[str, Brought] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for every step's process; they are not part of a key."""

    def digests(self, step: Step, results: Mapping[str, StepResult]) -> dict[str, str] | None:
        """Input name → digest, or None while an input has not been made yet."""
        found: dict[str, str] = {}
        for name, need in step.needs.items():
            origin, artifact = source(need)
            if origin == INPUT:
                found[name] = self.inputs[artifact].digest
            elif origin not in results:
                return None
            else:
                found[name] = results[origin].digests.get(artifact, "")  # "" for `progress`, which holds times
        return found

    def key(self, step: Step, digests: Mapping[str, str]) -> str:
        """Key of a step under these inputs."""
        config = self.configs[step.name].model_dump(mode="json")
        return step_key(step.component, config, digests, self.profile.local.threads)


@dataclass(frozen=True)
class Planned:
    """What happens to one step."""

    step: str
    component: str
    action: Action
    why: str = ""


def job(profile: Profile, inputs: Mapping[str, Path], *, imported: bool = False) -> Job:
    """Resolve a profile against the files that a run brings. PipelineError when a needed one is missing."""
    dag = profile.dag(imported=imported)
    for name in dag.inputs:
        if name not in inputs:
            raise PipelineError(f"pipeline {dag.name} needs the input {name!r}", place=dag.name)
    for name, path in inputs.items():
        if not path.exists():
            raise DagError(f"input {name!r} does not exist", place=str(path), cure="check the path")
    brought = {name: Brought(path.resolve(), digest_path(path)) for name, path in inputs.items() if name in dag.inputs}
    configs = {step.name: profile.config(step) for step in dag.every()}
    return Job(dag, profile.resolved(dag), configs, brought)


def selection(dag: Dag, only: Sequence[str]) -> frozenset[str]:
    """Steps that may run: all, or with `only` those and what they need. A base name stands for all its items."""
    if not only:
        return frozenset(step.name for step in dag.steps)
    return dag.needed_by(_expand(dag, only))


def forced(dag: Dag, from_step: str) -> frozenset[str]:
    """Steps that must run again although they are done: `from_step` and everything behind it."""
    return dag.after(_expand(dag, [from_step])) if from_step else frozenset()


def _expand(dag: Dag, names: Iterable[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        items = [step.name for step in dag.steps if step.base == name]
        if not items and all(step.name != name for step in dag.steps):
            known = {step.name for step in dag.steps} | {step.base for step in dag.steps}
            raise DagError(f"no step {name!r} in pipeline {dag.name}", place=dag.name, cure=suggest(name, known))
        found += items or [name]
    return found


def finished(folder: RunFolder, job: Job, again: frozenset[str], *, same_code: bool = True) -> dict[str, StepResult]:
    """Results of the steps of a run that stand and still have the key they were made under.

    Without `same_code` the key is not compared: results of older code will do, as for rendering a report again.
    """
    results: dict[str, StepResult] = {}
    for step in job.dag.steps:
        record = folder.record.steps.get(step.name)
        result = folder.step(step.name).read_result()
        if step.name in again or record is None or record.state not in FINISHED or result is None:
            continue
        digests = job.digests(step, results)
        if digests is not None and (not same_code or job.key(step, digests) == record.key):
            results[step.name] = result
    return results


def preview(job: Job, cache: Cache | None, selected: frozenset[str], kept: Mapping[str, StepResult]) -> list[Planned]:
    """One entry per step, in the order in which they would run."""
    results = dict(kept)
    plan: list[Planned] = []
    for step in job.dag.steps:
        if step.name in kept:
            plan.append(Planned(step.name, step.component, "keep", "done under the same key"))
        elif step.name not in selected:
            plan.append(Planned(step.name, step.component, "leave out", "not asked for"))
        else:
            digests = job.digests(step, results)
            hit = cache.find(job.key(step, digests)) if cache and step.cache and digests is not None else None
            if hit is not None:
                results[step.name] = hit
                plan.append(Planned(step.name, step.component, "cached", "an equal step was computed before"))
            else:
                waits = ", ".join(sorted(parents(step)))
                plan.append(Planned(step.name, step.component, "run", f"after {waits}" if waits else "first"))
    return plan
