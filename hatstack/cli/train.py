"""`hat train plan`: what a training job needs, by stage and component, and whether it fits."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from hatstack.cli.output import Output, as_json, emit, table

if TYPE_CHECKING:
    from hat_components.plan.memory import Need

app = typer.Typer(no_args_is_help=True, help="Training jobs.")


class Kind(StrEnum):
    """What is trained."""

    LORA = "lora"
    FULL = "full"


@app.callback()
def _noun() -> None:
    """Training jobs."""


@app.command("plan")
def plan(
    profile: Annotated[str, typer.Option("--profile", help="Name of a shipped training plan, or a file.")] = "h20",
    gpus: Annotated[int | None, typer.Option("--gpus", min=1, help="GPUs that share the training state.")] = None,
    method: Annotated[Kind | None, typer.Option("--method", help="Adapters, or every weight.")] = None,
    sequence: Annotated[int | None, typer.Option("--sequence", min=1, help="Tokens of a packed row.")] = None,
    output: Output = None,
) -> None:
    """Print the memory of every stage by component; end with an error where one does not fit."""
    from hat_components.plan.config import load_plan
    from hat_components.plan.memory import advice, needs, with_changes
    from hat_components.plan.shape import measure
    from hat_components.step import InputError

    chosen = with_changes(load_plan(profile), gpus=gpus, method=method and method.value, sequence=sequence)
    shape = measure(chosen.model, chosen.method)
    found = needs(chosen, shape)
    over = [need for need in found if not need.fits]
    head = (
        f"{chosen.model.kind}: {shape.total / 1e9:.2f} billion parameters, {chosen.method.kind}"
        f"{f', {shape.adapters / 1e6:.1f} million trained' if shape.adapters else ''}; {chosen.gpu.count} x "
        f"{chosen.gpu.product} with {chosen.gpu.memory_gib:g} GiB"
    )
    data = {
        "plan": chosen.model_dump(mode="json", by_alias=True),
        "parameters": shape.total,
        "trained": shape.adapters or shape.total,
        "stages": [
            {"stage": n.stage, "gib": {k: round(v, 3) for k, v in n.parts.items()}, "total_gib": round(n.total, 3),
             "fits": n.fits}
            for n in found
        ],
        "fits": not over,
    }  # fmt: skip
    if over and as_json():
        data["cure"] = advice(chosen, shape)
    emit(data, lambda: f"{head}\n\n{_table(found)}\n\nGiB on each GPU; activations, logits and reserve are estimates")
    if over:
        raise InputError(
            f"does not fit: {', '.join(f'{need.stage} needs {need.total:.1f} GiB' for need in over)} of "
            f"{chosen.gpu.memory_gib:g}",
            place=f"plan {chosen.name}",
            cure=advice(chosen, shape),
        )


def _table(found: tuple[Need, ...]) -> str:
    parts = list(found[0].parts)
    rows = [
        (need.stage, *(f"{need.parts[part]:.1f}" for part in parts), f"{need.total:.1f}", "yes" if need.fits else "NO")
        for need in found
    ]
    return table(("stage", *parts, "total", "fits"), rows)
