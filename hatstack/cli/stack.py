"""`hat up|down|status|chat`: the laptop stack, and a talk with what it serves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from hatstack import paths
from hatstack.cli.failure import UnavailableError
from hatstack.cli.output import DryRun, Output, RunsDir, emit, say, table

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Where the stack keeps its data.",
        envvar="HATSTACK_DATA_DIR",
        show_envvar=True,
        show_default="runs/.stack",
    ),
]
HEALTH = {"console": "/healthz", "gateway": "/readyz", "engine": "/health", "mlflow": "/health"}


def add(app: typer.Typer) -> None:
    """Give the application its commands."""
    app.command("up")(up)
    app.command("down")(down)
    app.command("status")(status)
    app.command("chat")(chat)


def up(
    harness: Annotated[str, typer.Option("--harness", help="Harness that the gateway serves.")] = "live-commerce",
    model: Annotated[
        Path | None, typer.Option("--model", help="Model folder for the engine; by default the newest run's.")
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="Address of an engine that runs elsewhere.")] = "",
    serving: Annotated[
        str, typer.Option("--serving", help="Serving profile of the engine: cpu-dev, cpu-dev-exact (MTP), a file.")
    ] = "cpu-dev",
    engine_set: Annotated[
        list[str] | None,
        typer.Option("--engine-set", help="NAME=VALUE over the profile, any option of the engine; may be repeated."),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", help="Leave a service out; may be repeated.")
    ] = None,
    data: Data = None,
    runs_dir: RunsDir = None,
    dry_run: DryRun = False,
    output: Output = None,
) -> None:
    """Start registry, console, MLflow, engine, gateway and room tools on this machine."""
    from hatstack.stack import processes
    from hatstack.stack.engine_flags import engine_flags
    from hatstack.stack.services import Plan, services

    runs = paths.runs_dir(runs_dir)
    place = (data or runs / ".stack").resolve()
    folder = paths.harness(harness)
    chosen = None if engine else (model or newest_model(runs))
    plan = Plan(
        place,
        folder.name,
        folder.resolve(),
        chosen.resolve() if chosen else None,
        paths.mlflow_uri(runs),
        (runs / "artifacts").resolve(),
        engine,
        without=frozenset(without or ()),
        engine_flags=engine_flags(serving, engine_set or (), chosen.resolve()) if chosen else (),
    )
    planned = services(plan, processes.free_ports())
    rows = [(one.name, one.url) for one in planned]
    if dry_run:
        would = [{"name": one.name, "url": one.url, "command": one.command} for one in planned]
        emit({"services": would, "changed": False}, lambda: table(("service", "address"), rows))
        return
    if chosen is None and not engine:
        say("no trained model yet, so no engine and no gateway: hat run --profile micro makes one")
    started = processes.start(planned, place, say)
    body = {"services": [{"name": one.name, "url": one.url, "pid": one.pid} for one in started], "changed": True}
    then = "\nnext  hat chat, or open the console's address; hat down stops it all"
    emit(body, lambda: table(("service", "address"), rows) + then)


def down(data: Data = None, runs_dir: RunsDir = None, dry_run: DryRun = False, output: Output = None) -> None:
    """Stop what `hat up` started."""
    from hatstack.stack import processes

    place = data or paths.runs_dir(runs_dir) / ".stack"
    if dry_run:
        alive = [one.name for one in processes.status(place) if one.state != "gone"]
        emit({"stopped": alive, "changed": False}, f"would stop {', '.join(alive) or 'nothing'}")
        return
    ended = processes.stop(place)
    emit({"stopped": ended, "changed": bool(ended)}, f"stopped {', '.join(ended)}" if ended else "nothing runs")


def status(data: Data = None, runs_dir: RunsDir = None, output: Output = None) -> None:
    """Show what of the laptop stack runs; exit code 5 when something that was started does not answer."""
    from hatstack.stack import processes

    found = processes.status(data or paths.runs_dir(runs_dir) / ".stack", HEALTH)
    rows = [(one.name, one.url, one.state, one.pid, one.log) for one in found]
    body = {
        "services": [
            {"name": one.name, "url": one.url, "state": one.state, "pid": one.pid, "log": one.log} for one in found
        ]
    }
    emit(body, lambda: table(("service", "address", "state", "pid", "log"), rows) if rows else "nothing runs: hat up")
    bad = [one.name for one in found if one.state != "up"]
    if bad:
        raise UnavailableError(
            f"{', '.join(bad)} not up", place="hat status", cure="look into the log; hat down, hat up"
        )


def chat(
    text: Annotated[str | None, typer.Argument(help="One message; without it, lines from standard input.")] = None,
    name: Annotated[str, typer.Option("--name", help="Harness or release to talk to.")] = "live-commerce",
    room: Annotated[str, typer.Option("--room", help="Room id.")] = "demo",
    viewer: Annotated[str, typer.Option("--viewer", help="Who speaks; kept only as a pseudonym.")] = "you",
    gateway: Annotated[
        str, typer.Option("--gateway", help="Address of the gateway.", envvar="HATSTACK_GATEWAY", show_envvar=True)
    ] = "http://127.0.0.1:8710",
    output: Output = None,
) -> None:
    """Talk to what the gateway serves; each reply shows its skills, tools, hooks, arm and timings."""
    import sys

    lines = [text] if text is not None else (line.rstrip("\n") for line in sys.stdin)
    for line in lines:
        if line.strip():
            body = _say(gateway, name, room, viewer, line)
            emit(body, _told(body))


def _say(gateway: str, name: str, room: str, viewer: str, text: str) -> dict[str, Any]:
    from hat_serving.gateway.client import GatewayClient

    client = GatewayClient(gateway, str, reader=lambda: os.environ.get("HATSTACK_TOKEN", ""), timeout_s=60)
    return client.say(room, {"model": name, "viewer": viewer, "text": text, "details": True})


def _told(body: dict[str, Any]) -> str:
    said = "(no reply)" if body["outcome"] == "silence" else body["text"]
    more = body.get("details")
    if more is None:
        return f"{said}\n  [{body['outcome']}; arm {body['arm']}]"
    calls = [f"{call['tool']} ({call['failure']})" if call["failure"] else call["tool"] for call in more["calls"]]
    used = ", ".join([*body["skills"], *calls]) or "no skill or tool"
    fired = ", ".join(hook["hook"] for hook in more["hooks"] if hook["fired"])
    first = f", first text {1000 * more['first_text_s']:.0f} ms" if more["first_text_s"] is not None else ""
    times = f"{1000 * more['seconds']:.0f} ms{first}, {more['model_calls']} model calls"
    parts = [body["outcome"], used, *([f"hooks {fired}"] if fired else []), f"arm {body['arm']}", times]
    return f"{said}\n  [{'; '.join(parts)}]"


def newest_model(runs: Path) -> Path | None:
    """The trained model of the newest run that has one; the harness-aware arm before the naive one."""
    found = sorted(runs.glob("*/steps/sft*/artifacts/model/config.json"), key=lambda path: path.stat().st_mtime)
    aware = [path for path in found if "hsa" in path.parts[-4]]
    chosen = aware or found
    return chosen[-1].parent if chosen else None
