"""`hat experiment create|start|status|stop`: arms held against each other on a running gateway.

Always holds: every verb may be repeated; what is shown is the gateway's own analysis. Not here: assignment, statistics
(hat_serving.experiment).
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hatstack import paths
from hatstack.cli.failure import InputError
from hatstack.cli.output import DryRun, Output, RunsDir, emit, table

if TYPE_CHECKING:
    from hat_serving.gateway.client import GatewayClient

app = typer.Typer(no_args_is_help=True, help="Experiments over models and harnesses.")
Name = Annotated[str, typer.Argument(help="Name of the experiment.")]
GatewayUrl = Annotated[
    str, typer.Option("--gateway", help="Address of the gateway.", envvar="HATSTACK_GATEWAY", show_envvar=True)
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        help="File with the gateway's admin token; HATSTACK_GATEWAY_TOKEN goes first.",
        envvar="HATSTACK_GATEWAY_TOKEN_FILE",
        show_envvar=True,
        show_default="that of hat up",
    ),
]
DEFAULT = "http://127.0.0.1:8710"


def gateway(url: str, token_file: Path | None, runs_dir: Path | None = None) -> GatewayClient:
    """The gateway, with its admin token."""
    from hat_serving.gateway.client import GatewayClient, admin_token

    file = token_file or paths.runs_dir(runs_dir) / ".stack" / "gateway" / "admin.token"
    return GatewayClient(url, lambda: admin_token(file))


@app.command("create")
def create(
    file: Annotated[Path, typer.Argument(help="YAML or JSON of the experiment; - reads standard input.")],
    gateway_url: GatewayUrl = DEFAULT,
    token_file: TokenFile = None,
    runs_dir: RunsDir = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Create a draft; the same one again changes nothing."""
    from hat_serving.experiment.model import read_experiment

    spec = read_experiment(_read(file))
    if dry_run:
        emit({"name": spec.name, "changed": False}, f"would create {spec.name} on {spec.deployment}")
        return
    told = gateway(gateway_url, token_file, runs_dir).post("/experiments", spec.model_dump(mode="json"))
    emit(told, lambda: f"{told['state']} {spec.name} on {spec.deployment}; hat experiment start {spec.name} begins it")


@app.command("start")
def start(
    name: Name,
    gateway_url: GatewayUrl = DEFAULT,
    token_file: TokenFile = None,
    runs_dir: RunsDir = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Expose units from now on."""
    found = gateway(gateway_url, token_file, runs_dir)
    if dry_run:
        told = found.get(f"/experiments/{name}")
        emit(told | {"changed": False}, lambda: f"would start {name}\n{_arms(told)}")
        return
    told = found.post(f"/experiments/{name}/start")
    emit(told, lambda: f"{told['state']} {name}\n{_arms(told)}")


@app.command("status")
def status(
    name: Annotated[str | None, typer.Argument(help="Name of the experiment; without one all are listed.")] = None,
    gateway_url: GatewayUrl = DEFAULT,
    token_file: TokenFile = None,
    runs_dir: RunsDir = None,
    output: Output = None,
) -> None:
    """Show an experiment: arms, intervals that hold at every look, guardrails, and what to do."""
    found = gateway(gateway_url, token_file, runs_dir)
    if name is not None:
        told = found.get(f"/experiments/{name}")
        emit(told, lambda: _page(told))
        return
    items = found.get("/experiments")["items"]
    rows = [(one["name"], one["spec"]["deployment"], one["state"], _day(one["created"])) for one in items]
    emit(
        {"items": items},
        lambda: (
            table(("experiment", "deployment", "state", "created"), rows)
            if rows
            else "no experiments: hat experiment create makes one"
        ),
    )


@app.command("stop")
def stop(
    name: Name,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the experiment.")] = "",
    keep: Annotated[str, typer.Option("--keep", help="Arm on which running conversations may end.")] = "",
    gateway_url: GatewayUrl = DEFAULT,
    token_file: TokenFile = None,
    runs_dir: RunsDir = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Stop exposing units; everyone goes back to the stable release at the next message."""
    found = gateway(gateway_url, token_file, runs_dir)
    if dry_run:
        told = found.get(f"/experiments/{name}")
        emit(told | {"changed": False}, f"would stop {name}, which is {told['state']}")
        return
    told = found.post(f"/experiments/{name}/stop", {"reason": reason, "keep": keep})
    emit(told, lambda: _page(told))


def _read(file: Path) -> Any:
    import yaml

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        return yaml.safe_load(text)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", place=str(file)) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"is no YAML: {' '.join(str(error).split())}", place=str(file)) from None


def _arms(told: dict[str, Any]) -> str:
    rows = [(arm["name"], arm["weight"], str(arm["harness"])[:19], arm["engine"] or "primary") for arm in told["arms"]]
    return table(("arm", "% of units", "harness", "engine"), rows)


def _page(told: dict[str, Any]) -> str:
    result = told.get("result")
    if result is None:
        return f"{told['name']}: {told['state']}\n{_arms(told)}"
    lines = [f"{told['name']}: {told['state']}, {result['units']} units, decided by {result['metric']}"]
    if told["reason"]:
        lines.append(f"stopped: {told['reason']}")
    ratio = result["sample_ratio"]
    if ratio is not None:
        lines.append(f"sample ratio p = {ratio['p']:.2g}{' BROKEN' if ratio['mismatch'] else ''}")
    priced = any(arm.get("cost_per_reply") is not None for arm in result["arms"])
    heads = ["arm", "% of units", "units", result["metric"], "low", "high", "replies"]
    rows: list[list[object]] = []
    for arm in result["arms"]:
        value = arm["value"]
        row: list[object] = [arm["name"], arm["weight"], arm["units"]]
        row += [_number(value["delta"]), _number(value["low"]), _number(value["high"]), arm["replies"]]
        rows.append([*row, _number(arm["cost_per_reply"])] if priced else row)
    lines.append(table([*heads, "cost per reply"] if priced else heads, rows))
    for contrast in result["contrasts"]:
        for guard in contrast["guardrails"]:
            lines.append(f"guardrail {guard['metric']} on {contrast['arm']}: {guard['state']}")
    lines.append(result["decision"]["text_en"])
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
