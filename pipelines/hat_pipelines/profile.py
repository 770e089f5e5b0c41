"""Profiles: one YAML file says everything that a run depends on (`hatstack.profile/1`).

Always holds: a `Profile` is checked against the pipeline it names and against every step's own config class; an
unknown key is an error with file, line and the nearest known key. `resolved` writes every default out, and reads back
as the same profile. Not here: which profiles ship (hatstack.paths), the files that a run brings (run).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hat_components.step import StepConfig
from hat_harness.errors import Problem
from hat_pipelines import components, dags
from hat_pipelines.dag import Dag, Resources, Secret, Step, Volume, suggest
from hat_pipelines.dags.train import BRANCHES
from hat_pipelines.errors import DagError, ProfileError
from hat_pipelines.yamltext import Document, parse

FORMAT = "hatstack.profile/1"


class Part(BaseModel):
    """Base of everything in a profile: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Local(Part):
    """How the local runner uses this machine."""

    threads: Annotated[int, Field(ge=1)] = 1
    """Compute threads of each step."""
    parallel: Annotated[int, Field(ge=1)] = 1
    """Steps that may run at the same time."""


class TrainJobs(Part):
    """How Kubeflow Trainer v2 runs the steps of several processes."""

    claim: str
    """Claim of a volume that all pods of the namespace may write to: inputs and results of the processes pass there."""
    nodes: Annotated[int, Field(ge=1)] = 1
    """Pods that the processes of a step are spread over, evenly."""


class Cluster(Part):
    """What the compiled pipelines ask of a cluster."""

    control_image: str = "hatstack/control:0.1.0"
    """Image of the steps that need no torch."""
    trainer_image: str = "hatstack/trainer:0.1.0"
    """Image of the steps that train or evaluate a model."""
    resources: dict[str, Resources] = Field(default_factory=dict)
    """Step → resources, where the pipeline's own are not right for this profile."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """Further tries of a step whose pod or node was lost; a step that fails by itself is not tried again."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Variables of every step: MLFLOW_TRACKING_URI."""
    secrets: tuple[Secret, ...] = ()
    """Secrets of every step."""
    volumes: tuple[Volume, ...] = ()
    """Claims of every step."""
    service_account: str = ""
    """Account of the steps' pods; empty: the namespace's default."""
    parallel: Annotated[int, Field(ge=0)] = 0
    """Steps at the same time; 0: as many as the cluster has room for."""
    processes: dict[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """Step → processes that train one model together, each with the step's resources."""
    train_jobs: TrainJobs | None = None
    """Start several processes as a TrainJob, where the cluster has Kubeflow Trainer v2; null: by torchrun in one pod."""


class Profile(Part):
    """Everything a run depends on, apart from the content of the files that it brings."""

    format: Literal["hatstack.profile/1"] = "hatstack.profile/1"
    name: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=40)]
    description: str = ""
    pipeline: str = "train"
    scenario: str = "live_commerce"
    harness: str = "live-commerce"
    """Name of a shipped harness, or a folder."""
    seed: int = 1
    arms: tuple[Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*$")], ...] = ("naive", "hsa")
    branches: tuple[str, ...] = ()
    """Optional stages of the pipeline: opd, rl, mtp."""
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Seeds that a pipeline which loops over seeds plays; a step of one seed has that seed."""
    local: Local = Local()
    cluster: Cluster = Cluster()
    steps: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Step → its config. `sft` holds for every arm, `sft-hsa` is laid over it for one."""

    def dag(self, *, imported: bool = False) -> Dag:
        """The pipeline's DAG for this profile's arms, expanded; `imported`: conversations come from a file."""
        built = dags.build(self.pipeline, self.arms, imported=imported, branches=self.branches, seeds=self.seeds)
        return built.expand()

    def processes(self, step: Step) -> int:
        """Processes that run the step together: what is said for it or for its base name, else what the pipeline says."""
        chosen = self.cluster.processes
        return chosen.get(step.name) or chosen.get(step.base) or step.processes

    def config(self, step: Step) -> StepConfig:
        """The checked config of one step of the expanded DAG."""
        cls = components.config_class(step.component)
        return cls.model_validate(_merged(self, step, cls))

    def resolved(self, dag: Dag) -> Profile:
        """The same with every default of every step of `dag` written out, one section for each step."""
        sections = {step.name: self.config(step).model_dump(mode="json") for step in dag.every()}
        return self.model_copy(update={"steps": sections})


def dump(profile: Profile) -> str:
    """A profile as YAML that `load` reads back."""
    return yaml.safe_dump(profile.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)


def load(path: Path, overrides: Sequence[str] = (), *, imported: bool = False) -> Profile:
    """Read and check a profile; `overrides` are `a.b=c` with `c` in YAML. Raises ProfileError with all findings."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ProfileError(str(path), [Problem(path.name, 0, f"cannot be read: {reason}")]) from None
    return loads(text, path, overrides, imported=imported)


def loads(text: str, path: Path, overrides: Sequence[str] = (), *, imported: bool = False) -> Profile:
    """`load` from a text; errors call it `path`."""
    document = parse(text, path.name)
    if isinstance(document, Problem):
        raise ProfileError(str(path), [document])
    places = _override(document, overrides, path)
    finder = _Finder(path.name, document, places)
    try:
        profile = Profile.model_validate(document.data)
    except ValidationError as error:
        raise ProfileError(str(path), finder.problems(error, Profile, ())) from None
    if ("pipeline",) in places and ("branches",) not in places and not dags.has_branches(profile.pipeline):
        profile = profile.model_copy(update={"branches": ()})  # those of the file are of its own pipeline
    problems = _check_steps(profile, finder, imported)
    if problems:
        raise ProfileError(str(path), sorted(problems, key=lambda problem: (problem.path, problem.line)))
    return profile


class _Finder:
    """Turns a pydantic error into problems that point at a line of the profile or at the `--set` that did it."""

    def __init__(self, name: str, document: Document, places: Mapping[tuple[str, ...], str]) -> None:
        self._name = name
        self._document = document
        self._places = places

    def at(self, path: Sequence[object], message: str, cure: str = "") -> Problem:
        keys = tuple(str(part) for part in path)
        for length in range(len(keys), 0, -1):
            if keys[:length] in self._places:
                return Problem(self._places[keys[:length]], 0, message, cure)
        return Problem(self._name, self._document.line(keys), message, cure)

    def problems(self, error: ValidationError, model: type[BaseModel], prefix: tuple[str, ...]) -> list[Problem]:
        found = []
        for item in error.errors():
            path = (*prefix, *item["loc"])
            key = ".".join(str(part) for part in path)
            if item["type"] == "extra_forbidden":
                cure = suggest(str(item["loc"][-1]), _known(model, item["loc"][:-1]))
                found.append(self.at(path, f"unknown key {key}", cure))
            elif item["type"] == "missing":
                found.append(self.at(path, f"key {key} is missing"))
            else:
                found.append(self.at(path, f"{key}: {item['msg'][:1].lower()}{item['msg'][1:]}", _given(item)))
        return found


def _given(item: Mapping[str, Any]) -> str:
    value = item.get("input")
    return f"given: {value!r}" if isinstance(value, str | int | float | bool) else ""


def _known(model: type[BaseModel], location: Sequence[object]) -> list[str]:
    """Keys that the model at `location` below `model` knows."""
    for part in location:
        field = model.model_fields.get(str(part))
        annotation = field.annotation if field else None
        inner = [value for value in (annotation, *get_args(annotation)) if isinstance(value, type)]
        models = [value for value in inner if issubclass(value, BaseModel)]
        if not models:
            return []
        model = models[0]
    return list(model.model_fields)


def _override(document: Document, overrides: Sequence[str], path: Path) -> dict[tuple[str, ...], str]:
    """Lay `a.b=c` over the document; returns key path → the option that set it."""
    places: dict[tuple[str, ...], str] = {}
    for text in overrides:
        place = f"--set {text}"
        key, sign, value = text.partition("=")
        keys = tuple(key.strip().split("."))
        if not sign or not all(keys):
            raise ProfileError(str(path), [Problem(place, 0, "an override is written key.key=value")])
        try:
            parsed = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ProfileError(str(path), [Problem(place, 0, "the value is not YAML", "quote it")]) from None
        target = document.data
        for name in keys[:-1]:
            below = target.setdefault(name, {})
            if not isinstance(below, dict):
                raise ProfileError(str(path), [Problem(place, 0, f"{name} holds no keys")])
            target = below
        target[keys[-1]] = parsed
        places[keys] = place
    return places


def _check_steps(profile: Profile, finder: _Finder, imported: bool) -> list[Problem]:
    try:
        dag = profile.dag(imported=imported)
        every = [step for some in (False, True) for step in profile.dag(imported=some).every()]
        for name in dags.names():  # a profile may have sections for pipelines and branches that it is not run by
            branches = BRANCHES if name == "train" else ()
            every += dags.build(name, profile.arms, imported=True, branches=branches).expand().every()
    except DagError as error:
        place = error.place if error.place in ("pipeline", "arms", "branches", "seeds") else "arms"
        return [finder.at((place,), error.message, error.cure)]
    known = {step.name for step in every} | {step.base for step in every}
    sections = [
        *(("steps", name) for name in profile.steps),
        *(("cluster", "resources", n) for n in profile.cluster.resources),
        *(("cluster", "processes", n) for n in profile.cluster.processes),
    ]
    problems = [
        finder.at(path, f"unknown step {path[-1]!r}", suggest(path[-1], known))
        for path in sections
        if path[-1] not in known
    ]
    nodes = profile.cluster.train_jobs.nodes if profile.cluster.train_jobs else 1
    for step in dag.every():
        count = profile.processes(step)
        if count > 1 and count % nodes:
            told = f"{count} processes of {step.name} are not the same number on each of {nodes} nodes"
            problems.append(finder.at(("cluster", "train_jobs", "nodes"), told, f"a multiple of {nodes} processes"))
        cls = components.config_class(step.component)
        try:
            cls.model_validate(_merged(profile, step, cls))
        except ValidationError as error:
            section = step.name if step.name in profile.steps else step.base
            problems += finder.problems(error, cls, ("steps", section))
    return list(dict.fromkeys(problems))


def _merged(profile: Profile, step: Step, cls: type[StepConfig]) -> dict[str, Any]:
    """The raw config of a step: what the profile says for all, the section of its base name, its own, the pipeline's."""
    shared: dict[str, Any] = {
        "seed": profile.seed,
        "scenario": profile.scenario,
        "threads": profile.local.threads,
    }
    if step.item.isdecimal():
        shared["seed"] = int(step.item)
    elif step.item:
        shared["arm"] = step.item
    fields = {key: value for key, value in shared.items() if key in cls.model_fields}
    sections = [profile.steps.get(name, {}) for name in dict.fromkeys((step.base, step.name))]
    for section in (*sections, step.config):
        fields |= section
    return fields
