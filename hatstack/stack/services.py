"""What the laptop stack consists of: name, command, port, health route, and what it needs to be up first. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hatstack import paths

ORDER = ("tools", "engine", "mlflow", "console", "gateway", "canary")
BASELINE = "react-baseline"
"""Served beside the harness where it lies beside it: the control arm of experiments on the harness itself."""
PORTS: Mapping[str, int] = {"console": 8700, "gateway": 8710, "engine": 8720, "mlflow": 8730, "tools": 8740}


@dataclass(frozen=True, slots=True)
class Service:
    """One process. `health` is a path that answers 200 once it is up; "" means that the port only has to accept.

    Port 0: it listens nowhere, and counts as up once it has lived for a moment.
    """

    name: str
    port: int
    command: tuple[str, ...]
    health: str = ""
    start_s: float = 60.0
    """How long a start may take."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where it answers; "" where it does not."""
        return f"http://127.0.0.1:{self.port}" if self.port else ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start. `model` None leaves the engine out, unless `engine_url` names one that runs elsewhere."""

    data: Path
    harness: str
    harness_folder: Path
    model: Path | None
    mlflow_uri: str
    artifacts: Path
    engine_url: str = ""
    seed: int = 1
    without: frozenset[str] = frozenset()
    engine_flags: tuple[str, ...] = ()
    """The engine's flags, its model among them, but for its port (hatstack.stack.engine_flags)."""


def services(plan: Plan, ports: Mapping[str, int]) -> tuple[Service, ...]:
    """The services of a plan in the order in which they start."""
    python = (sys.executable, "-m")
    engine = plan.engine_url or (_at(ports["engine"]) if plan.model is not None else "")
    gateway = bool(engine) and "gateway" not in plan.without
    made: dict[str, Service] = {}
    tools = ("hat_scenarios.live_commerce.server", str(plan.harness_folder), "--port", str(ports["tools"]))
    made["tools"] = Service("tools", ports["tools"], (*python, *tools))
    if plan.model is not None:
        command = ("hat_serving.engine", *plan.engine_flags, "--port", str(ports["engine"]))
        made["engine"] = Service("engine", ports["engine"], (*python, *command), "/health")
    server = ("mlflow", "server", "--host", "127.0.0.1", "--port", str(ports["mlflow"]), "--workers", "1")
    store = ("--backend-store-uri", plan.mlflow_uri, "--artifacts-destination", str(plan.artifacts))
    made["mlflow"] = Service("mlflow", ports["mlflow"], (*python, *server, *store), "/health", 120.0)
    made["console"] = Service("console", ports["console"], (*python, *_console(plan, ports, gateway)), "/healthz")
    if gateway:
        made["gateway"] = Service("gateway", ports["gateway"], (*python, *_gateway(plan, ports, engine)), "/readyz")
        watcher = ("hat_serving.canary", "--folder", str(plan.data / "rollouts"), "--registry", _at(ports["console"]))
        secret = {"HATSTACK_GATEWAY_TOKEN_FILE": str(plan.data / "gateway" / "admin.token")}
        made["canary"] = Service("canary", 0, (*python, *watcher), environment=secret)
    return tuple(made[name] for name in ORDER if name in made and name not in plan.without)


def _at(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _console(plan: Plan, ports: Mapping[str, int], gateway: bool) -> tuple[str, ...]:
    """The console, and what it shows."""
    runs = plan.artifacts.parent
    command = ["hat_console", "--data", str(plan.data / "registry"), "--port", str(ports["console"]), "--open"]
    command += ["--runs", str(runs), "--cache", str(paths.cache_dir(runs))]
    command += ["--profiles", str(paths.shipped("profiles")), "--harnesses", str(paths.shipped("harnesses"))]
    command += ["--tracking", plan.mlflow_uri]
    if "mlflow" not in plan.without:
        command += ["--mlflow", _at(ports["mlflow"])]
    if gateway:
        command += ["--gateway", _at(ports["gateway"])]
        command += ["--gateway-token", str(plan.data / "gateway" / "admin.token")]
        command += ["--rollouts", str(plan.data / "rollouts")]
    return tuple(command)


def _gateway(plan: Plan, ports: Mapping[str, int], engine: str) -> tuple[str, ...]:
    """The gateway over the harness, and over the plain baseline where that lies beside it."""
    command = ["hat_serving.gateway", "--data", str(plan.data / "gateway"), "--port", str(ports["gateway"])]
    command += ["--harness", f"{plan.harness}={plan.harness_folder}", "--engine", engine]
    baseline = plan.harness_folder.parent / BASELINE
    if plan.harness != BASELINE and baseline.is_dir():
        command += ["--harness", f"{BASELINE}={baseline}"]
    return (*command, "--tools", f"{_at(ports['tools'])}/mcp")
