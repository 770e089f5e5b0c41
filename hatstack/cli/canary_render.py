"""`hat canary render`: from few words to a rollout's manifest, with the weights of a registered model made concrete."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hatstack.cli.canary import Namespace
from hatstack.cli.failure import UsageError
from hatstack.cli.output import Output, RunsDir, emit

Name = Annotated[str, typer.Argument(help="Name of the rollout; its last word names the canary.")]
Release = Annotated[str, typer.Option("--release", help="Digest or name of the release.")]
Baseline = Annotated[str, typer.Option("--baseline", help="Release that it is held against.")]
Workspace = Annotated[str, typer.Option("--workspace", help="Workspace of metrics and events.")]
Service = Annotated[str, typer.Option("--service", help="InferenceService that gets the canary.")]
Stable = Annotated[
    str, typer.Option("--stable", help="Name of its stable predictor; of a group, the member that serves.")
]
Member = Annotated[str, typer.Option("--member", help="Instead: LLMInferenceService that takes over from --stable.")]
Uri = Annotated[str, typer.Option("--uri", help="Concrete URI of the canary's weights, e.g. s3://models/chat/v8.")]
Model = Annotated[
    str, typer.Option("--model", help="Instead of --uri: registered model NAME@VERSION; its weights are compared.")
]
Digest = Annotated[str, typer.Option("--digest", help="Digest of the weights at --uri: its pods compare it first.")]
Mlflow = Annotated[str, typer.Option("--mlflow", help="MLflow's tracking URI.", envvar="MLFLOW_TRACKING_URI")]
Verify = Annotated[
    bool, typer.Option("--verify/--no-verify", help="Read the model's weights and compare their digest.")
]
Replicas = Annotated[int, typer.Option("--replicas", min=1, help="Pods of the canary.")]
Arguments = Annotated[list[str] | None, typer.Option("--arg", help="Argument of the canary's engine; may be repeated.")]
Gateway = Annotated[str, typer.Option("--gateway", help="Instead: administrative address of a gateway.")]
Deployment = Annotated[str, typer.Option("--deployment", help="Name under which its clients ask.")]
Harness = Annotated[str, typer.Option("--harness", help="The canary's harness: NAME, NAME@POINTER or NAME@sha256:….")]
GatewayEngine = Annotated[str, typer.Option("--gateway-engine", help="The gateway's engine with the canary's model.")]
Urgent = Annotated[bool, typer.Option("--urgent", help="Running conversations change over at their next message.")]
Weights = Annotated[str, typer.Option("--steps", help="Weights in percent.")]
Wait = Annotated[str, typer.Option("--pause", help="Time at each weight.")]
Soak = Annotated[str, typer.Option("--soak", help="Time with all traffic on the canary before the old version goes.")]
Gates = Annotated[
    list[str] | None,
    typer.Option("--gate", help="Gate NAME or NAME=BOUND, measured at each weight; may be repeated."),
]
Prometheus = Annotated[str, typer.Option("--prometheus", help="Address of Prometheus; gates need it.")]
Engine = Annotated[str, typer.Option("--engine", help="Whose metric names: sglang or vllm.")]


def add(app: typer.Typer) -> None:
    """Give the noun its verb."""
    app.command("render")(render)


def render(
    name: Name,
    release: Release,
    namespace: Namespace = "default",
    baseline: Baseline = "",
    workspace: Workspace = "default",
    service: Service = "",
    stable: Stable = "",
    member: Member = "",
    uri: Uri = "",
    model: Model = "",
    digest: Digest = "",
    mlflow: Mlflow = "",
    verify: Verify = True,
    replicas: Replicas = 1,
    argument: Arguments = None,
    gateway: Gateway = "",
    deployment: Deployment = "",
    harness: Harness = "",
    gateway_engine: GatewayEngine = "",
    urgent: Urgent = False,
    weights: Weights = "1,10,50",
    wait: Wait = "10m",
    soak: Soak = "0s",
    gate: Gates = None,
    prometheus: Prometheus = "",
    engine: Engine = "sglang",
    runs_dir: RunsDir = None,
    output: Output = None,
) -> None:
    """Write a rollout's manifest, for kubectl, GitOps or hat canary start."""
    from hat_serving.canary import plan

    if sum(map(bool, (service, gateway, member))) != 1:
        raise UsageError(
            "give one of --service, --member and --gateway", place="hat canary render", cure="--service with --uri"
        )
    if model and uri:
        raise UsageError("give either --uri or --model", place="hat canary render")
    if model:
        from hatstack.cli import handover

        uri, digest = handover.weights(model, runs_dir, mlflow, verify=verify)
    target = (
        plan.gateway_target(gateway, deployment, harness, gateway_engine, urgent)
        if gateway
        else plan.group_target(stable, member)
        if member
        else plan.service_target(name, service, uri, replicas, argument or [], digest)
    )
    about = {"release": release, "baseline": baseline, "workspace": workspace, "target": target, "soak": soak}
    measured = plan.measured(weights, wait, gate or [], engine)
    asked = {"prometheus": {"url": prometheus}} if prometheus else {}
    _write(name, namespace, {**about, **plan.arms(target, stable), **measured, **asked})


def _write(name: str, namespace: str, raw: dict[str, Any]) -> None:
    import yaml

    from hat_serving.canary import control
    from hat_serving.canary.spec import read_spec

    manifest = control.render(name, namespace, read_spec(raw))
    emit(manifest, lambda: yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True, width=120))
