"""`hat canary start|status|pause|resume|promote|abort|render`: rollouts on a cluster, or in a folder without one.

Always holds: a verb only writes the wish; the controller carries it out. Not here: how rollouts are decided
(hat_serving.canary), checks of a cluster (doctor).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hatstack.cli.failure import InputError, UsageError
from hatstack.cli.output import DryRun, Output, as_json, emit, table

if TYPE_CHECKING:
    from hat_serving.canary.kube import Objects
    from hat_serving.canary.spec import RolloutSpec
    from hat_serving.canary.state import State

app = typer.Typer(no_args_is_help=True, help="Canary rollouts.")
Name = Annotated[str, typer.Argument(help="Name of the rollout.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the rollout.")]
Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help="Cluster to speak to.", envvar="KUBECONFIG", show_default="~/.kube/config"),
]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig.", show_default="current")]
Rollouts = Annotated[
    Path | None,
    typer.Option(
        "--rollouts",
        help="Folder of rollouts, where there is no cluster.",
        envvar="HATSTACK_ROLLOUTS",
        show_envvar=True,
        show_default="none: a cluster",
    ),
]


def objects(kubeconfig: Path | None, context: str | None, rollouts: Path | None) -> Objects:
    """Where rollouts are: a folder when one is named, else a cluster."""
    if rollouts is not None:
        from hat_serving.canary.folder import Folder

        return Folder(rollouts)
    found: Objects = connect(kubeconfig, context)
    return found


def connect(kubeconfig: Path | None, context: str | None) -> Any:
    """A cluster by its kubeconfig. UsageError when none can be read."""
    from hat_serving.canary.kube import Kube

    try:
        return Kube.from_kubeconfig(kubeconfig, context=context)
    except Exception as error:  # the official client raises its own, yaml's and the system's errors
        raise UsageError(
            f"no cluster: {' '.join(str(error).split())[:200]}",
            place=str(kubeconfig or "~/.kube/config"),
            cure="--kubeconfig or KUBECONFIG name a cluster, --rollouts a folder",
        ) from None


@app.command("start")
def start(
    file: Annotated[Path, typer.Argument(help="Manifest of a CanaryRollout; - reads standard input.")],
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Instead of the manifest's.", show_default=False)
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    rollouts: Rollouts = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Start a rollout; the same one again changes nothing."""
    from dataclasses import asdict

    from hat_serving.canary import control
    from hat_serving.canary.spec import read_spec
    from hat_serving.canary.ways import ways_back

    manifest = read_manifest(file)
    metadata = manifest["metadata"]
    metadata["namespace"] = namespace or metadata.get("namespace") or "default"
    spec = read_spec(manifest["spec"])
    changed = control.start(objects(kubeconfig, context, rollouts), manifest, dry_run=dry_run)
    place = f"{metadata['namespace']}/{metadata['name']}"
    said = "would start" if dry_run and changed else "started" if changed else "runs already:"
    ways = ways_back(spec)
    told = {"name": metadata["name"], "namespace": metadata["namespace"], "changed": changed and not dry_run}
    text = [
        f"{said} {place}: {spec.release} in {len(spec.steps)} steps; hat canary status {metadata['name']} "
        f"-n {metadata['namespace']}",
        *(f"way back {way.when}: {way.how}; {way.cost}" for way in ways),
    ]
    emit({**told, "ways_back": [asdict(way) for way in ways]}, "\n".join(text))


@app.command("status")
def status(
    name: Annotated[str | None, typer.Argument(help="Name of the rollout; without one all are listed.")] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Namespace of the rollout.", show_default="default; a list shows all"),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    rollouts: Rollouts = None,
    output: Output = None,
) -> None:
    """Show a rollout: phase, weights, step, and what was measured."""
    from hat_serving.canary import control

    found = objects(kubeconfig, context, rollouts)
    if name is None:
        rows = control.listing(found, namespace or "")
        emit(
            [{"namespace": place, "name": one, **_told(state)} for place, one, state in rows],
            lambda: (
                table(
                    ("namespace", "rollout", "phase", "step", "wanted %", "in force %", "why"),
                    [
                        (place, one, s.phase, s.step + 1, s.desired_weight, s.effective_weight, s.reason or s.message)
                        for place, one, s in rows
                    ],
                )
                if rows
                else "no rollouts: hat canary render writes a first one"
            ),
        )
        return
    spec, state, _ = control.status(found, namespace or "default", name)
    body = {
        "namespace": namespace or "default",
        "name": name,
        **_told(state),
        "steps": [step.describe() for step in spec.steps],
        "evidence": control.evidence(spec, state),
    }
    emit(body, lambda: _page(name, spec, state))


@app.command("pause")
def pause(
    name: Name,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    rollouts: Rollouts = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Hold a rollout at its present split."""
    _wish("pause", name, namespace, objects(kubeconfig, context, rollouts), dry_run)


@app.command("resume")
def resume(
    name: Name,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    rollouts: Rollouts = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Go on: a pause ends, an inconclusive analysis is measured again."""
    _wish("resume", name, namespace, objects(kubeconfig, context, rollouts), dry_run)


@app.command("promote")
def promote(
    name: Name,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    rollouts: Rollouts = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Go on to the end without waiting; pauses are skipped, measurements are not."""
    _wish("promote", name, namespace, objects(kubeconfig, context, rollouts), dry_run)


@app.command("abort")
def abort(
    name: Name,
    namespace: Namespace = "default",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    rollouts: Rollouts = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Give all traffic back to the stable version and take the canary away; it cannot be taken back."""
    _wish("abort", name, namespace, objects(kubeconfig, context, rollouts), dry_run)


def _wish(verb: str, name: str, namespace: str, found: Objects, dry_run: bool) -> None:
    from hat_serving.canary import control
    from hat_serving.canary.state import TERMINAL
    from hatstack.cli.failure import ConflictError

    spec, state, _ = control.status(found, namespace, name)
    if state.phase in TERMINAL:
        raise ConflictError(f"{name} has ended: {state.phase}, {state.reason}", place=f"{namespace}/{name}")
    changed = True
    if not dry_run:
        changed = control.wish(found, namespace, name, verb)
    told = {"pause": "held", "resume": "goes on", "promote": "goes on to the end", "abort": "is taken back"}[verb]
    said = f"would {verb} {name}" if dry_run else f"{name} {told}" if changed else f"{name}: nothing changed"
    consequence = f"{state.desired_weight} % on {spec.release}, step {state.step + 1} of {len(spec.steps)}"
    emit(
        {"name": name, "namespace": namespace, "asked": verb, "changed": changed and not dry_run},
        f"{said} ({consequence})",
    )


def read_manifest(file: Path) -> dict[str, Any]:
    """A CanaryRollout from a YAML file or, for `-`, from standard input. InputError."""
    import yaml

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        found = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(
            f"no manifest: {' '.join(str(error).split())[:200]}", place=str(file), cure="hat canary render"
        ) from None
    metadata = found.get("metadata") if isinstance(found, dict) else None
    whole = isinstance(metadata, dict) and isinstance(metadata.get("name"), str) and isinstance(found.get("spec"), dict)
    if not whole or found.get("kind") != "CanaryRollout":
        raise InputError("it is no CanaryRollout with a name and a spec", place=str(file), cure="hat canary render")
    return dict(found)


def _told(state: State) -> dict[str, Any]:
    return {
        "phase": state.phase,
        "step": state.step,
        "desired_weight": state.desired_weight,
        "effective_weight": state.effective_weight,
        "clock_started": state.clock_started,
        "reason": state.reason,
        "message": state.message,
    }


def _page(name: str, spec: RolloutSpec, state: State) -> str:
    force = "unknown" if state.effective_weight is None else f"{state.effective_weight} %"
    lines = [
        f"{name}: {state.phase}{f' ({state.reason})' if state.reason else ''}",
        f"  release    {spec.release}" + (f", against {spec.baseline}" if spec.baseline else ""),
        f"  weight     {state.desired_weight} % wanted, {force} in force",
        f"  said       {state.message}",
        "",
    ]
    lines += [
        f"  {'>' if number == state.step else ' '} {number + 1}. {step.describe()}"
        for number, step in enumerate(spec.steps)
    ]
    tallies = [*state.analysis, *state.background]
    if tallies and not as_json():
        rows = [(one.name, one.outcome or "open", one.successes, one.failures, one.message) for one in tallies]
        lines += ["", table(("metric", "outcome", "good", "bad", "last"), rows)]
    return "\n".join(lines)
