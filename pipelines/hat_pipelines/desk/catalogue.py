"""What may be asked for: profiles, harnesses and pipelines by name; and the way from an order to a job.

Always holds: values of an order are laid over the resolved profile, in which every step has a section of its own, so a
value of `sft` reaches each of its arms and nothing else of the section is lost. Not here: forms (form).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hat_harness.errors import Kind, Problem
from hat_pipelines import dags, plan, runs
from hat_pipelines import profile as profiles
from hat_pipelines.dag import Dag
from hat_pipelines.desk.order import Order
from hat_pipelines.errors import PipelineError, ProfileError
from hat_pipelines.plan import Job
from hat_pipelines.profile import Profile


class UnknownNameError(PipelineError):
    """No profile, harness or pipeline of that name may be asked for."""

    kind: Kind = "invalid_input"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Names that orders may use."""

    profiles: Path
    """Folder of `<name>.yaml`."""
    harnesses: Path
    """Folder of `<name>/harness.yaml`."""
    pipelines: tuple[str, ...] = ()
    """Modules of one's own pipelines, besides those that ship."""

    def pipeline_names(self) -> tuple[str, ...]:
        """Pipelines, shipped ones first."""
        return (*dags.names(), *self.pipelines)

    def profile_names(self) -> tuple[str, ...]:
        """Profiles, by name."""
        return tuple(sorted(path.stem for path in self.profiles.glob("*.yaml")))

    def harness_names(self) -> tuple[str, ...]:
        """Harnesses, by name."""
        return tuple(sorted(path.parent.name for path in self.harnesses.glob("*/harness.yaml")))

    def profile(self, order: Order) -> tuple[Profile, Dag]:
        """The profile of an order with its values, and its DAG. Raises UnknownNameError, ProfileError, DagError."""
        _known("profile", order.profile, self.profile_names())
        _known("pipeline", order.pipeline, self.pipeline_names())
        path = self.profiles / f"{order.profile}.yaml"
        whole = {key: value for key, value in order.values.items() if not key.startswith("steps.")}
        fixed = [f"pipeline={json.dumps(order.pipeline)}"]
        if order.harness:
            fixed.append(f"harness={json.dumps(order.harness)}")
        loaded = profiles.load(path, [*fixed, *_texts(whole)])
        dag = loaded.dag()
        stepwise = {key: value for key, value in order.values.items() if key.startswith("steps.")}
        if not stepwise:
            return loaded, dag
        text = profiles.dump(loaded.resolved(dag))
        return profiles.loads(text, path, _texts(spread(stepwise, dag))), dag

    def harness(self, name: str) -> Path:
        """Folder of a harness."""
        _known("harness", name, self.harness_names())
        return self.harnesses / name

    def brought(self, order: Order, dag: Dag, root: Path) -> dict[str, Path]:
        """What an order's pipeline needs besides a harness, from the runs below `root`. UnknownNameError says what."""
        found: dict[str, Path] = {}
        for name in dag.inputs:
            if name == "harness":
                continue
            choices = self.choices(name, root)
            if name not in order.inputs:
                cure = (
                    f"choose one of: {', '.join(list(choices)[:5])}"
                    if choices
                    else f"run a pipeline that makes a {name}"
                )
                raise UnknownNameError(f"pipeline {order.pipeline} needs the input {name!r}", place=name, cure=cure)
            _known(name, order.inputs[name], choices)
            found[name] = choices[order.inputs[name]]
        return found

    def choices(self, name: str, root: Path) -> dict[str, Path]:
        """What can be brought as an input: harnesses as a `candidate`, else artifacts of that name below `root`."""
        if name == "candidate":
            return {one: self.harnesses / one for one in self.harness_names()}
        return made(root, name)

    def job(self, order: Order, root: Path) -> Job:
        """The job of an order over the runs below `root`."""
        loaded, dag = self.profile(order)
        return plan.job(loaded, {"harness": self.harness(loaded.harness), **self.brought(order, dag, root)})


def made(root: Path, artifact: str) -> dict[str, Path]:
    """`RUN/STEP.ARTIFACT` → path of every artifact of that name below `root`, those of the newest runs first."""
    found: dict[str, Path] = {}
    for run in reversed(runs.list_runs(root)):
        for result in sorted((root / run / "steps").glob("*/result.json")):
            step = runs.StepFolder(result.parent)
            path = step.artifact(artifact)
            if path is not None and path.exists():
                found[f"{run}/{result.parent.name}.{artifact}"] = path
    return found


def spread(values: Mapping[str, Any], dag: Dag) -> dict[str, Any]:
    """Values of a step that stands for several as values of each of them."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        _, name, rest = key.split(".", 2) if key.count(".") > 1 else ("", "", "")
        if not name:
            raise ProfileError("order", [Problem(key, 0, "a value is written steps.STEP.KEY")])
        items = [step.name for step in dag.steps if step.base == name]
        for step in items or [name]:
            found[f"steps.{step}.{rest}"] = value
    return found


def _texts(values: Mapping[str, Any]) -> list[str]:
    return [f"{key}={json.dumps(value)}" for key, value in sorted(values.items())]


def _known(what: str, name: str, names: Iterable[str]) -> None:
    choices = sorted(names)
    if name not in choices:
        near = difflib.get_close_matches(name, choices, n=1)
        cure = f"did you mean {near[0]!r}?" if near else f"one of: {', '.join(choices) or 'none'}"
        raise UnknownNameError(f"no {what} {name[:80]!r}", place=what, cure=cure)
