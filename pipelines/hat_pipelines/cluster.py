"""What both forms for a cluster derive in the same way: names of parameters, images, resources, metrics of conditions.

Not here: KFP (to_kfp) and Argo (to_hera) themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from hat_pipelines.dag import Dag, Resources, Step, When, source
from hat_pipelines.errors import DagError
from hat_pipelines.profile import Profile
from hat_pipelines.worker import HEAVY


def parameter(step: str) -> str:
    """Name of the pipeline parameter that holds a step's config as JSON."""
    return f"config_{step.replace('-', '_')}"


def config_text(config: Mapping[str, Any]) -> str:
    """A step's config as JSON in which no `{{` stands, since Argo and KFP would take it for a placeholder of theirs."""
    return json.dumps(config, sort_keys=True).replace("{{", "{\\u007b")


def image(step: Step, profile: Profile) -> str:
    """The image that has what the step imports."""
    return profile.cluster.trainer_image if step.component in HEAVY else profile.cluster.control_image


def resources(step: Step, profile: Profile) -> Resources:
    """What the profile asks for this step, for its base name, or what the pipeline asks; for all its processes."""
    chosen = profile.cluster.resources
    asked = chosen.get(step.name) or chosen.get(step.base) or step.resources
    return asked.times(step.processes)


def command(step: Step) -> list[str]:
    """What a pod starts; several processes of one step are torchrun's."""
    if step.processes == 1:
        return ["python", "-m", "hat_pipelines.pod"]
    return [
        *("python", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={step.processes}"),
        *("-m", "hat_pipelines.pod"),
    ]


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
