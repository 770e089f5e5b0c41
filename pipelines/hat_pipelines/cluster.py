"""What both forms for a cluster derive in the same way: parameters, images, resources, processes, conditions' metrics.

Always holds: several processes of a step are a TrainJob where the profile asks for one, else torchrun's in one pod.
Not here: KFP (to_kfp) and Argo (to_hera) themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from hat_pipelines.dag import Dag, Resources, Step, Volume, When, source
from hat_pipelines.desk.form import choices
from hat_pipelines.errors import DagError
from hat_pipelines.profile import Profile
from hat_pipelines.train_job import SHARED, TrainJob
from hat_pipelines.worker import HEAVY

WAITING = Resources(cpu=0.25, memory_gib=1)
"""What a pod asks for that only waits for a TrainJob."""


def parameter(step: str) -> str:
    """Name of the pipeline parameter that holds a step's config as JSON."""
    return f"config_{step.replace('-', '_')}"


def config_text(config: Mapping[str, Any]) -> str:
    """A step's config as JSON in which no `{{` stands, since Argo and KFP would take it for a placeholder of theirs.

    Keys stay in the order in which the profile has them: draws between named choices go by it, here as on a cluster.
    """
    return json.dumps(config).replace("{{", "{\\u007b")


def about(step: Step, config: Mapping[str, Any]) -> str:
    """What a step's parameter holds, with the values that its keys are chosen from."""
    told = f"config of step {step.name} ({step.component}) as JSON"
    chosen = [
        f"{key} is one of {', '.join(map(str, values))}" for key, values in choices(step.component, config).items()
    ]
    return "; ".join([told, *chosen])


def image(step: Step, profile: Profile) -> str:
    """The image of the step's own pod; one that waits for a TrainJob needs nothing heavy."""
    return profile.cluster.control_image if train_job(step, profile) else needed_image(step, profile)


def needed_image(step: Step, profile: Profile) -> str:
    """The image that has what the step imports."""
    return profile.cluster.trainer_image if step.component in HEAVY else profile.cluster.control_image


def each(step: Step, profile: Profile) -> Resources:
    """What one process of the step asks for: what the profile says for it or for its base name, else the pipeline."""
    chosen = profile.cluster.resources
    return chosen.get(step.name) or chosen.get(step.base) or step.resources


def resources(step: Step, profile: Profile) -> Resources:
    """What the step's own pod asks for, with all its processes in it or, beside a TrainJob, with none."""
    return WAITING if train_job(step, profile) else each(step, profile).times(profile.processes(step))


def gpus(dag: Dag, profile: Profile) -> dict[str, int]:
    """Step → GPUs that all its processes have together."""
    return {step.name: each(step, profile).gpus * profile.processes(step) for step in dag.steps}


def command(step: Step, profile: Profile) -> list[str]:
    """What the step's own pod starts; several processes of one step are torchrun's, or a TrainJob's."""
    wanted = train_job(step, profile)
    if wanted:
        return ["python", "-m", "hat_pipelines.train_job", "--job", wanted.model_dump_json(exclude_defaults=True)]
    count = profile.processes(step)
    return ["python", "-m", "hat_pipelines.pod", *(("--processes", str(count)) if count > 1 else ())]


def train_job(step: Step, profile: Profile) -> TrainJob | None:
    """The TrainJob that the step becomes; None when it runs in a pod of its own."""
    jobs, count = profile.cluster.train_jobs, profile.processes(step)
    if jobs is None or count == 1:
        return None
    return TrainJob(
        step=step.name,
        image=needed_image(step, profile),
        nodes=jobs.nodes,
        processes=count // jobs.nodes,
        resources=each(step, profile).times(count // jobs.nodes),
        claim=jobs.claim,
        environment=profile.cluster.environment,
        secrets=(*profile.cluster.secrets, *step.secrets),
        volumes=(*profile.cluster.volumes, *step.volumes),
        account=profile.cluster.service_account,
    )


def mounts(step: Step, profile: Profile) -> tuple[Volume, ...]:
    """Claims that the step's own pod mounts; beside a TrainJob only that which the two share."""
    wanted = train_job(step, profile)
    if wanted:
        return (Volume(claim=wanted.claim, path=SHARED),)
    return (*profile.cluster.volumes, *step.volumes)


def conditions(dag: Dag) -> dict[str, tuple[When, ...]]:
    """Step → the conditions that must hold for it, its own last; a step inherits those of what it needs."""
    found: dict[str, tuple[When, ...]] = {}
    for step in dag.steps:
        origins = [source(need)[0] for need in step.needs.values()] + ([step.when.step] if step.when else [])
        inherited = [when for origin in origins if origin in found for when in found[origin]]
        found[step.name] = tuple(dict.fromkeys([*inherited, *([step.when] if step.when else [])]))
    return found


def measured(steps: Iterable[Step]) -> dict[str, str]:
    """Step → the metric that conditions read of it; DagError when they read two."""
    found: dict[str, str] = {}
    for step in steps:
        if step.when and found.setdefault(step.when.step, step.when.metric) != step.when.metric:
            raise DagError(
                f"conditions read two metrics of {step.when.step}: {found[step.when.step]}, {step.when.metric}",
                place=step.name,
                cure="let the step put its verdict into one metric",
            )
    return found
