"""A pipeline as data: steps, what each needs, and under which conditions it runs (`Dag`).

Always holds: a `Dag` is valid once built (names unique, every need resolves, no cycle), and `expand` gives one without
`foreach`, whose steps stand in a fixed topological order. The runner, `to_kfp` and `to_hera` all derive from it.
Not here: configs (profile), execution (run), what a step does (hat_components).
"""

from __future__ import annotations

import difflib
import graphlib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hat_pipelines.errors import DagError

STEP_NAME = re.compile(r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$")
ENTRY = "dag"
"""Name of the template that holds the whole DAG in an Argo workflow; no step may be called so."""
PROGRESS = "progress"
"""The artifact that every step has beside its own: its progress file, for curves."""
INPUT = "input"
"""The pseudo step of a need that the run itself brings: `input.harness`."""


class Node(BaseModel):
    """Base of the records here: immutable, an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Resources(Node):
    """What a step asks of the node that runs it. The local runner uses `gpus` only to warn."""

    cpu: Annotated[float, Field(gt=0)] = 1.0
    """Cores."""
    memory_gib: Annotated[float, Field(gt=0)] = 2.0
    gpus: Annotated[int, Field(ge=0)] = 0
    gpu_product: str = ""
    """Value of the node label `nvidia.com/gpu.product`, or "" for any."""
    nodes: dict[str, str] = Field(default_factory=dict)
    """Further node labels that must hold."""
    tolerates: tuple[str, ...] = ()
    """Keys of taints that do not keep the step away; a step with GPUs tolerates `nvidia.com/gpu` anyway."""

    def times(self, processes: int) -> Resources:
        """What so many processes on one node ask for."""
        if processes == 1:
            return self
        more = {"cpu": self.cpu * processes, "memory_gib": self.memory_gib * processes, "gpus": self.gpus * processes}
        return self.model_copy(update=more)

    @property
    def selector(self) -> dict[str, str]:
        """Node labels that must hold."""
        return {**self.nodes, **({"nvidia.com/gpu.product": self.gpu_product} if self.gpu_product else {})}

    @property
    def tolerations(self) -> tuple[str, ...]:
        """Keys of taints that are tolerated, each once."""
        return tuple(dict.fromkeys([*self.tolerates, *(["nvidia.com/gpu"] if self.gpus else [])]))


class Secret(Node):
    """A variable of a step's environment that comes from a secret of the cluster; locally it is inherited."""

    variable: str
    name: str
    """Name of the secret."""
    key: str


class Volume(Node):
    """A persistent claim that a step sees on a cluster."""

    claim: str
    path: str
    read_only: bool = False


class When(Node):
    """A condition on a metric of an earlier step; the step and everything that needs it is skipped unless it holds."""

    step: str
    metric: str
    op: Literal[">=", ">", "<=", "<", "==", "!="] = ">="
    value: float

    def holds(self, observed: float) -> bool:
        """Whether `observed` satisfies the condition."""
        return {
            ">=": observed >= self.value,
            ">": observed > self.value,
            "<=": observed <= self.value,
            "<": observed < self.value,
            "==": observed == self.value,
            "!=": observed != self.value,
        }[self.op]


class Step(Node):
    """One step. `needs` maps the step's input names to `step.artifact`, or to `input.name` for what the run brings.

    With `foreach` the step stands once for each item, named `name-item`, and `{item}` in a need is that item.
    A need on a step with the same items is item by item; a need of a step without `foreach` on one with it gathers:
    input `name-item` for each item.
    """

    name: str
    component: str
    """Step name of hat_components (`sft`), or the dotted module of a step package."""
    needs: dict[str, str] = Field(default_factory=dict)
    artifacts: tuple[str, ...] = ()
    """Names of the artifacts that later steps may need."""
    config: dict[str, Any] = Field(default_factory=dict)
    """What makes the step what it is in this pipeline; laid over the profile's section, which gives sizes and rates."""
    foreach: tuple[str, ...] = ()
    item: str = ""
    """Set by `expand`: the item that this instance stands for."""
    when: When | None = None
    resources: Resources = Resources()
    retries: Annotated[int, Field(ge=0, le=10)] = 0
    """Further tries after a failure of kind `unavailable`; other failures are not tried again."""
    time_limit_s: Annotated[float, Field(gt=0)] | None = None
    """None: no limit."""
    secrets: tuple[Secret, ...] = ()
    volumes: tuple[Volume, ...] = ()
    processes: Annotated[int, Field(ge=1)] = 1
    """Processes that train one model together; each gets the step's resources. Locally one does the work."""
    cache: bool = True
    """False for a step with effects outside its folder, which must happen in every run."""

    @property
    def base(self) -> str:
        """The name before `expand` added the item."""
        return self.name.removesuffix(f"-{self.item}") if self.item else self.name


class Dag(Node):
    """A pipeline. `inputs` names what a run must bring from outside."""

    name: str
    description: str = ""
    inputs: tuple[str, ...] = ()
    steps: tuple[Step, ...]
    on_exit: Step | None = None
    """Runs after everything else, whether that succeeded or not; it can need only what the run brings."""

    @model_validator(mode="after")
    def _consistent(self) -> Dag:
        _check_names(self)
        for step in self.every():
            _check_needs(self, step)
        self.order()
        return self

    def every(self) -> tuple[Step, ...]:
        """The steps and, last, the exit handler."""
        return (*self.steps, *((self.on_exit,) if self.on_exit else ()))

    def step(self, name: str) -> Step:
        """The step called `name`; DagError names the nearest one if there is none."""
        for step in self.every():
            if step.name == name:
                return step
        known = [step.name for step in self.every()]
        raise DagError(f"no step {name!r} in pipeline {self.name}", place=self.name, cure=suggest(name, known))

    def order(self) -> tuple[str, ...]:
        """Step names, each after everything it needs; among equals in the order in which they are written."""
        position = {step.name: index for index, step in enumerate(self.steps)}
        sorter = graphlib.TopologicalSorter({step.name: parents(step) for step in self.steps})
        try:
            sorter.prepare()
        except graphlib.CycleError as error:
            cycle = " -> ".join(reversed(error.args[1]))
            raise DagError(f"steps need each other in a circle: {cycle}", place=self.name) from None
        done: list[str] = []
        while sorter.is_active():
            for name in sorted(sorter.get_ready(), key=position.__getitem__):
                done.append(name)
                sorter.done(name)
        return tuple(done)

    def expand(self) -> Dag:
        """The same pipeline with every `foreach` written out, steps in topological order."""
        items = {step.name: step.foreach for step in self.steps}
        flat = [instance for step in self.steps for instance in _instances(step, items)]
        grown = Dag(
            name=self.name, description=self.description, inputs=self.inputs, steps=tuple(flat), on_exit=self.on_exit
        )
        by_name = {step.name: step for step in flat}
        return grown.model_copy(update={"steps": tuple(by_name[name] for name in grown.order())})

    def needed_by(self, names: Iterable[str]) -> frozenset[str]:
        """`names` and every step that they need, directly or not."""
        found: set[str] = set()
        stack = list(names)
        while stack:
            name = stack.pop()
            if name not in found:
                found.add(name)
                stack.extend(parents(self.step(name)))
        return frozenset(found)

    def after(self, names: Iterable[str]) -> frozenset[str]:
        """`names` and every step that needs one of them, directly or not."""
        found = set(names)
        for name in self.order():
            if parents(self.step(name)) & found:
                found.add(name)
        return frozenset(found)


def parents(step: Step) -> set[str]:
    """Names of the steps that `step` waits for."""
    needs = {need.format(item=item) for need in step.needs.values() for item in step.foreach or ("",)}
    names = {source(need)[0] for need in needs} - {INPUT}
    return names | ({step.when.step} if step.when else set())


def source(need: str) -> tuple[str, str]:
    """`step.artifact` as (step, artifact)."""
    step, _, artifact = need.partition(".")
    return step, artifact


def suggest(word: str, known: Iterable[str]) -> str:
    """A cure that names the nearest known word, or all of them."""
    choices = sorted(set(known))
    near = difflib.get_close_matches(word, choices, n=1)
    return f"did you mean {near[0]!r}?" if near else f"one of: {', '.join(choices) or 'none'}"


def _check_names(dag: Dag) -> None:
    seen: set[str] = set()
    for step in dag.every():
        if not STEP_NAME.match(step.name) or step.name in (INPUT, ENTRY):
            raise DagError(f"{step.name!r} is no step name", place=dag.name, cure="lower case words joined by -")
        if step.name in seen:
            raise DagError(f"two steps are called {step.name!r}", place=dag.name)
        seen.add(step.name)
        if len(set(step.foreach)) != len(step.foreach):
            raise DagError(f"step {step.name} has an item twice in foreach", place=dag.name)


def _check_needs(dag: Dag, step: Step) -> None:
    steps = {other.name: other for other in dag.steps}
    place = f"{dag.name}.{step.name}"
    needs = [(name, need.format(item=item)) for name, need in step.needs.items() for item in step.foreach or ("",)]
    for name, need in needs:
        origin, artifact = source(need)
        if origin == INPUT:
            if artifact not in dag.inputs:
                raise DagError(
                    f"input {name}: the run brings no {artifact!r}", place=place, cure=suggest(artifact, dag.inputs)
                )
        elif origin not in steps:
            raise DagError(f"input {name}: no step {origin!r}", place=place, cure=suggest(origin, steps))
        elif artifact not in (*steps[origin].artifacts, PROGRESS):
            cure = suggest(artifact, steps[origin].artifacts)
            raise DagError(f"input {name}: step {origin} makes no {artifact!r}", place=place, cure=cure)
        elif step is dag.on_exit:
            raise DagError(f"input {name}: on_exit may need only what the run brings", place=place)
    if step.when and step.when.step not in steps:
        raise DagError(f"when: no step {step.when.step!r}", place=place, cure=suggest(step.when.step, steps))


def _instances(step: Step, items: Mapping[str, tuple[str, ...]]) -> list[Step]:
    if not step.foreach:
        needs: dict[str, str] = {}
        for name, need in step.needs.items():
            origin, artifact = source(need)
            gathered = items.get(origin, ())
            needs.update({f"{name}-{item}": f"{origin}-{item}.{artifact}" for item in gathered} or {name: need})
        if step.when and items.get(step.when.step):
            raise DagError(f"step {step.name}: when needs one step, {step.when.step} stands for several")
        return [step.model_copy(update={"needs": needs})]
    return [_instance(step, item, items) for item in step.foreach]


def _instance(step: Step, item: str, items: Mapping[str, tuple[str, ...]]) -> Step:
    needs = {}
    for name, need in step.needs.items():
        origin, artifact = source(need.format(item=item))
        others = items.get(origin, ())
        if others and item not in others:
            raise DagError(f"step {step.name}: {origin} does not stand for {item!r}", cure=suggest(item, others))
        needs[name] = f"{origin}-{item}.{artifact}" if others else f"{origin}.{artifact}"
    when = step.when
    if when and items.get(when.step):
        when = when.model_copy(update={"step": f"{when.step}-{item}"})
    update = {"name": f"{step.name}-{item}", "item": item, "foreach": (), "needs": needs, "when": when}
    return step.model_copy(update=update)
