"""Derives a KFP pipeline from a `Dag`: one thin lightweight component for each step, conditions, exit handler.

A component is a generated function of a few lines that calls `pod.perform`; whole step folders travel as artifacts and
configs as JSON strings, since KFP turns integers inside lists into floats. Always holds: the same DAG and profile give
the same pipeline. Not here: running it here (local_kfp), the YAML files (compiler).
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kfp import dsl

from hat_pipelines.cluster import (
    about,
    conditions,
    config_text,
    image,
    measured,
    mounts,
    parameter,
    resources,
    train_job,
)
from hat_pipelines.dag import INPUT, Dag, Resources, Step, When, source
from hat_pipelines.profile import Profile
from hat_pipelines.train_job import OWN

SOURCE = '''\
def {name}({parameters}){returns}:
    """Run the step `{step}`: see {component}."""
    from hat_pipelines.pod import in_kfp

    {answer}in_kfp({step!r}, {component!r}, config, {inputs}, out.path, {metric!r}{more})
'''
"""What every component is made of. KFP stores the text in the compiled pipeline, so it must stand by itself."""


def to_kfp(dag: Dag, profile: Profile, configs: Mapping[str, Mapping[str, Any]], *, retries: bool = True) -> Any:
    """The KFP pipeline of an expanded DAG. Parameters: one URI for each input, one JSON config for each step.

    Without `retries` no step is tried twice: KFP retries whatever the failure was, which helps nobody at a desk.
    """
    steps = list(dag.every())
    metrics = measured(steps)
    made = {step.name: component(step, metrics.get(step.name, ""), profile) for step in steps}
    defaults = {parameter(step.name): config_text(configs[step.name]) for step in steps}
    builder = _Builder(dag, profile, made, retries)

    def body(arguments: Mapping[str, Any]) -> None:
        builder.build(arguments)

    function = _pipeline_function(dag.name, dag.inputs, defaults, body)
    told = {name: f"URI of the {name} that the run brings" for name in dag.inputs}
    told |= {parameter(step.name): about(step, configs[step.name]) for step in steps}
    arguments = "\n".join(f"    {name}: {text}" for name, text in told.items())
    function.__doc__ = f"{dag.description or dag.name}\n\nArgs:\n{arguments}\n"
    return dsl.pipeline(name=dag.name, description=dag.description)(function)


def component(step: Step, metric: str, profile: Profile) -> Any:
    """The KFP component of one step; `metric` is the figure that conditions read of it, "" for none.

    It is the component's return value, since KFP's local runner resolves no other output in a condition.
    """
    needs = list(step.needs.items())
    job, count = train_job(step, profile), profile.processes(step)
    more = f", job={job.model_dump_json(exclude_defaults=True)!r}" if job else f", processes={count}"
    parameters = ["config: str"]
    parameters += [f"i{index}: dsl.Input[dsl.Artifact]" for index in range(len(needs))]
    parameters += ["out: dsl.Output[dsl.Artifact]"]
    inputs = ", ".join(
        f"{name!r}: (i{index}.path, {'' if source(need)[0] == INPUT else source(need)[1]!r})"
        for index, (name, need) in enumerate(needs)
    )
    text = SOURCE.format(
        name=step.name.replace("-", "_"),
        parameters=", ".join(parameters),
        step=step.name,
        component=step.component,
        inputs="{" + inputs + "}",
        metric=metric,
        more=more if count > 1 else "",
        returns=" -> float" if metric else "",
        answer="return " if metric else "",
    )
    made = _function(step.name.replace("-", "_"), text)
    return dsl.component(made, base_image=image(step, profile), install_kfp_package=False)


def _function(name: str, text: str) -> Callable[..., Any]:
    """A function from its source, in such a way that `inspect.getsource` finds it, as KFP needs it to."""
    place = f"<hatstack component {name}>"
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    space: dict[str, Any] = {"dsl": dsl}
    exec(compile(text, place, "exec", dont_inherit=True), space)  # noqa: S102  # our own template filled with names that Dag has checked
    function: Callable[..., Any] = space[name]
    return function


def _pipeline_function(
    name: str, inputs: Sequence[str], defaults: Mapping[str, str], body: Callable[[Mapping[str, Any]], None]
) -> Callable[..., Any]:
    """The function with one parameter for each input and each step that `dsl.pipeline` reads its signature from."""
    names = [*inputs, *defaults]
    parameters = [*(f"{one}: str" for one in inputs), *(f"{key}: str = {value!r}" for key, value in defaults.items())]
    gathered = ", ".join(f"{one!r}: {one}" for one in names)
    text = f"def pipeline({', '.join(parameters)}):\n    body({{{gathered}}})\n"
    space: dict[str, Any] = {"body": body}
    exec(compile(text, f"<hatstack pipeline {name}>", "exec", dont_inherit=True), space)  # noqa: S102  # as above
    function: Callable[..., Any] = space["pipeline"]
    return function


class _Builder:
    """Places tasks inside the conditions that hold for them."""

    def __init__(self, dag: Dag, profile: Profile, components: Mapping[str, Any], retries: bool) -> None:
        self._retries = retries
        self._dag = dag
        self._profile = profile
        self._components = components
        self._conditions = conditions(dag)

    def build(self, arguments: Mapping[str, Any]) -> None:
        """Make every task; called by KFP while it traces the pipeline."""
        self._arguments = arguments
        self._tasks: dict[str, Any] = {}
        self._brought: dict[str, Any] = {}
        if self._dag.on_exit is None:
            self._group(self._dag.steps, 0)
            return
        last = self._task(self._dag.on_exit)
        with dsl.ExitHandler(last):
            self._group(self._dag.steps, 0)

    def _group(self, steps: Iterable[Step], depth: int) -> None:
        inner: dict[When, list[Step]] = {}
        for step in steps:
            held = self._conditions[step.name]
            if len(held) == depth:
                self._task(step)
            else:
                inner.setdefault(held[depth], []).append(step)
        for when, members in inner.items():
            with dsl.If(_compare(self._tasks[when.step].outputs["Output"], when)):
                self._group(members, depth + 1)

    def _task(self, step: Step) -> Any:
        values: dict[str, Any] = {"config": self._arguments[parameter(step.name)]}
        for index, need in enumerate(step.needs.values()):
            origin, artifact = source(need)
            values[f"i{index}"] = self._input(artifact) if origin == INPUT else self._tasks[origin].outputs["out"]
        task = self._components[step.name](**values)
        task.set_display_name(step.name)
        _demand(task, resources(step, self._profile))
        _surround(task, step, self._profile)
        if step.retries and self._retries:
            task.set_retry(num_retries=step.retries, backoff_duration="30s", backoff_factor=2.0)
        if not step.cache:
            task.set_caching_options(False)
        if step.time_limit_s:
            from kfp import kubernetes

            kubernetes.set_timeout(task, seconds=int(step.time_limit_s))
        self._tasks[step.name] = task
        return task

    def _input(self, name: str) -> Any:
        if name not in self._brought:
            task = dsl.importer(artifact_uri=self._arguments[name], artifact_class=dsl.Artifact, reimport=False)
            self._brought[name] = task.set_display_name(name).output
        return self._brought[name]


def _compare(observed: Any, when: When) -> Any:
    return {
        ">=": lambda: observed >= when.value,
        ">": lambda: observed > when.value,
        "<=": lambda: observed <= when.value,
        "<": lambda: observed < when.value,
        "==": lambda: observed == when.value,
        "!=": lambda: observed != when.value,
    }[when.op]()


def _demand(task: Any, asked: Resources) -> None:
    """Ask the cluster for what the step needs; requests equal limits."""
    cpu, memory = f"{asked.cpu:g}", f"{asked.memory_gib:g}Gi"
    task.set_cpu_request(cpu).set_cpu_limit(cpu).set_memory_request(memory).set_memory_limit(memory)
    if asked.gpus:
        task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(asked.gpus)
    from kfp import kubernetes

    for key, value in asked.selector.items():
        kubernetes.add_node_selector(task, label_key=key, label_value=value)
    for key in asked.tolerations:
        kubernetes.add_toleration(task, key=key, operator="Exists")


def _surround(task: Any, step: Step, profile: Profile) -> None:
    """Variables, secrets and claims of a step."""
    from kfp import kubernetes

    for name, value in profile.cluster.environment.items():
        task.set_env_variable(name, value)
    if train_job(step, profile):
        for name, path in OWN.items():
            kubernetes.use_field_path_as_env(task, env_name=name, field_path=path)
    else:
        for secret in (*profile.cluster.secrets, *step.secrets):
            kubernetes.use_secret_as_env(task, secret_name=secret.name, secret_key_to_env={secret.key: secret.variable})
    for volume in mounts(step, profile):
        kubernetes.mount_pvc(task, pvc_name=volume.claim, mount_path=volume.path)
