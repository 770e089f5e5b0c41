"""`hat release render`: a release's manifests for a cluster. Not here: list and show (ledger), rolling it out (canary)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hatstack.cli.failure import ConflictError
from hatstack.cli.output import DryRun, Output, emit
from hatstack.cli.remote import DEFAULT, RegistryUrl, Remote, part


def add(app: typer.Typer) -> None:
    """Give the noun its verb."""
    app.command("render")(render)


def render(
    digest: Annotated[str, typer.Argument(help="Digest of the release.")],
    profile: Annotated[Path, typer.Option("--profile", help="File of its serving profile; the digest is compared.")],
    storage: Annotated[str, typer.Option("--storage-uri", help="Concrete URI of the weights, never an alias.")],
    chart: Annotated[
        Path | None,
        typer.Option("--chart", help="Folder of the chart hatstack-serving.", show_default="none: its values alone"),
    ] = None,
    values: Annotated[
        list[Path] | None, typer.Option("--values", help="Further values, later ones win; may be repeated.")
    ] = None,
    service: Annotated[str, typer.Option("--service", help="Name of the InferenceService.")] = "chat",
    group: Annotated[
        str, typer.Option("--group", help="Route group: makes an LLMInferenceService that is a member of it.")
    ] = "",
    weight: Annotated[
        int, typer.Option("--weight", min=0, max=100, help="Percent of the group's traffic; a rollout moves it.")
    ] = 0,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the objects.")] = "default",
    workspace: Annotated[str, typer.Option("--workspace", help="Workspace, a label of the objects.")] = "default",
    target: Annotated[Path | None, typer.Option("--to", help="File to write instead of standard output.")] = None,
    registry: RegistryUrl = DEFAULT,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Write a release's InferenceService or LLMInferenceService and what belongs to it, with the release in a ConfigMap."""
    import yaml

    from hat_serving.sglang.profile import read_profile
    from hat_serving.sglang.render import chart_values, manifests, release_map

    if target is not None and target.exists():
        raise ConflictError("it exists already", place=str(target), cure="choose another file")
    found = Remote(registry).get(f"/releases/{part(digest)}")
    chosen = chart_values(
        found, read_profile(profile), storage, service=service, workspace=workspace, group=group, weight=weight
    )
    for file in values or ():
        chosen = _over(chosen, _read(file))
    told: dict[str, Any] = {"values": chosen}
    text: str = yaml.safe_dump(chosen, sort_keys=False)
    if chart is not None:
        made = manifests(chart, chosen, name=found["name"], namespace=namespace)
        made.append(release_map(found, namespace, workspace))
        told, text = {"manifests": made}, yaml.safe_dump_all(made, sort_keys=False)
    if target is None:
        emit({**told, "changed": False}, text)
        return
    if not dry_run:
        temporary = target.with_name(f".{target.name}.new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
    verb = "would write" if dry_run else "wrote"
    emit({**told, "file": str(target), "changed": not dry_run}, f"{verb} {target}")


def _over(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Values as Helm merges them: mappings by key, everything else replaced."""
    merged = dict(base)
    for key, value in more.items():
        present = merged.get(key)
        merged[key] = _over(present, value) if isinstance(present, dict) and isinstance(value, dict) else value
    return merged


def _read(file: Path) -> dict[str, Any]:
    import yaml

    from hatstack.cli.failure import InputError

    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"cannot read the values: {reason}", place=str(file)) from None
    if not isinstance(found, dict):
        raise InputError("the values are no mapping", place=str(file))
    return found
