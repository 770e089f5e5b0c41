"""Derives an Argo WorkflowTemplate from a `Dag`, by hera: one template for each step, one DAG over them.

A step's pod runs `python -m hat_pipelines.pod`; step folders travel as artifacts of the cluster's default artifact
repository, where the run's inputs lie under the keys that the parameters name. A task runs only when all that it needs
has succeeded, so what depends on a skipped step is skipped too. Not here: submitting, the YAML files (compiler).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hera.workflows import DAG, Artifact, Container, Parameter, S3Artifact, Task, WorkflowTemplate
from hera.workflows import Resources as PodResources
from hera.workflows import models as argo

from hat_pipelines.cluster import about, command, config_text, image, measured, mounts, parameter, resources, train_job
from hat_pipelines.dag import ENTRY, INPUT, Dag, Step, parents, source
from hat_pipelines.profile import Profile
from hat_pipelines.train_job import OWN

INFRASTRUCTURE = (
    "lastRetry.status == 'Error' || lastRetry.exitCode == '5' || "
    "(lastRetry.exitCode in ['137', '143'] && !(lastRetry.message contains 'OOM'))"
)
"""When a failed step is tried again, in Argo's expression language."""
OUT, METRIC_FILE = "/hatstack/out", "/hatstack/metric"


def to_hera(dag: Dag, profile: Profile, configs: Mapping[str, Mapping[str, Any]]) -> WorkflowTemplate:
    """The WorkflowTemplate of an expanded DAG. Parameters: one key for each input, one JSON config for each step."""
    steps = list(dag.every())
    metrics = measured(dag.steps)
    arguments = [
        Parameter(name=f"{name}-key", description=f"where {name} lies in the repository") for name in dag.inputs
    ]
    arguments += [
        Parameter(
            name=_dashed(parameter(step.name)),
            value=config_text(configs[step.name]),
            description=about(step, configs[step.name]),
        )
        for step in steps
    ]
    with WorkflowTemplate(
        name=f"hatstack-{dag.name}",
        entrypoint=ENTRY,
        arguments=arguments,
        on_exit=dag.on_exit.name if dag.on_exit else None,
        labels={"app.kubernetes.io/part-of": "hatstack"},
        annotations={"workflows.argoproj.io/description": dag.description} if dag.description else None,
        service_account_name=profile.cluster.service_account or None,
        parallelism=profile.cluster.parallel or None,
        volumes=_claims(steps, profile) or None,
    ) as template:
        made = {step.name: _template(step, profile, metrics.get(step.name, "")) for step in steps}
        with DAG(name=ENTRY):
            for step in dag.steps:
                _task(step, made[step.name], metrics)
    return template


def _template(step: Step, profile: Profile, metric: str) -> Container:
    """The container template of one step."""
    asked = resources(step, profile)
    inputs: list[Any] = [Parameter(name="config", value=f"{{{{workflow.parameters.{_dashed(parameter(step.name))}}}}}")]
    arguments = ["--component", step.component, "--config", "{{inputs.parameters.config}}", "--out", OUT]
    for index, (name, need) in enumerate(step.needs.items()):
        origin, artifact = source(need)
        path = f"/hatstack/in/{index}"
        key = f"{{{{workflow.parameters.{artifact}-key}}}}"
        inputs.append(
            S3Artifact(name=f"i{index}", path=path, key=key)
            if origin == INPUT
            else Artifact(name=f"i{index}", path=path)
        )
        arguments += ["--input", f"{name}={path}" if origin == INPUT else f"{name}={path}:{artifact}"]
    outputs: list[Any] = [Artifact(name="out", path=OUT)]
    if metric:
        arguments += ["--metric", metric, "--metric-file", METRIC_FILE]
        outputs.append(Parameter(name="metric", value_from=argo.ValueFrom(path=METRIC_FILE)))
    memory = f"{asked.memory_gib:g}Gi"
    return Container(
        name=step.name,
        image=image(step, profile),
        command=command(step, profile),
        args=arguments,
        inputs=inputs,
        outputs=outputs,
        resources=PodResources(
            cpu_request=f"{asked.cpu:g}",
            cpu_limit=f"{asked.cpu:g}",
            memory_request=memory,
            memory_limit=memory,
            gpus=asked.gpus or None,
        ),
        node_selector=asked.selector or None,
        tolerations=[argo.Toleration(key=key, operator="Exists") for key in asked.tolerations] or None,
        env=_environment(step, profile) or None,
        volume_mounts=[
            argo.VolumeMount(name=_claim(one.claim), mount_path=one.path, read_only=one.read_only or None)
            for one in mounts(step, profile)
        ]
        or None,
        retry_strategy=_retries(step, profile),
        active_deadline_seconds=int(step.time_limit_s) if step.time_limit_s else None,
        labels={"hatstack.dev/step": step.name},
    )


def _environment(step: Step, profile: Profile) -> list[Any]:
    """Variables of a step's pod, plain ones first."""
    plain = [argo.EnvVar(name=name, value=value) for name, value in profile.cluster.environment.items()]
    secret = [
        argo.EnvVar(
            name=one.variable,
            value_from=argo.EnvVarSource(secret_key_ref=argo.SecretKeySelector(name=one.name, key=one.key)),
        )
        for one in (*profile.cluster.secrets, *step.secrets)
    ]
    if train_job(step, profile):
        return [*plain, *(_own(name, path) for name, path in OWN.items())]
    return [*plain, *secret]


def _own(name: str, path: str) -> argo.EnvVar:
    """A variable that holds a field of the pod itself."""
    return argo.EnvVar(name=name, value_from=argo.EnvVarSource(field_ref=argo.ObjectFieldSelector(field_path=path)))


def _claims(steps: list[Step], profile: Profile) -> list[Any]:
    """The workflow's volumes: every claim that a step mounts, once."""
    claims = [one.claim for step in steps for one in mounts(step, profile)]
    return [
        argo.Volume(name=_claim(name), persistent_volume_claim=argo.PersistentVolumeClaimVolumeSource(claim_name=name))
        for name in dict.fromkeys(claims)
    ]


def _claim(name: str) -> str:
    return f"claim-{name}"


def _retries(step: Step, profile: Profile) -> argo.RetryStrategy | None:
    """Retries for infrastructure faults: a lost pod or node (`Error`, or ended from outside), and exit code 5, the pod's
    `unavailable`. A step that ran out of memory is ended from outside too, but would be again: it is not tried."""
    limit = max(step.retries, profile.cluster.retries)
    if not limit:
        return None
    return argo.RetryStrategy(
        limit=argo.IntOrString(str(limit)),
        retry_policy="Always",
        expression=INFRASTRUCTURE,
        backoff=argo.Backoff(duration="10s", factor=argo.IntOrString("2")),
    )


def _task(step: Step, template: Container, metrics: Mapping[str, str]) -> Task:
    """The DAG's task for one step."""
    handed: list[Any] = []
    for index, need in enumerate(step.needs.values()):
        origin, _ = source(need)
        if origin != INPUT:
            handed.append(Artifact(name=f"i{index}", from_=f"{{{{tasks.{origin}.outputs.artifacts.out}}}}"))
    when = None
    if step.when:
        assert step.when.step in metrics, "every condition's step writes its metric"
        when = f"{{{{tasks.{step.when.step}.outputs.parameters.metric}}}} {step.when.op} {step.when.value:g}"
    depends = " && ".join(f"{name}.Succeeded" for name in sorted(parents(step))) or None
    return Task(name=step.name, template=template, arguments=handed or None, when=when, depends=depends)


def _dashed(name: str) -> str:
    return name.replace("_", "-")
