"""What the laptop stack consists of: name, command, port, health route, and what it needs to be up first. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hatstack import paths

ORDER = ("tools", "engine", "mlflow", "console", "gateway")
ENGINE_FLAGS = ("--tool-call-parser", "qwen", "--reasoning-parser", "qwen3", "--enable-metrics")
"""What the gateway and its metrics need of SGLang, and so of the engine."""
BASELINE = "react-baseline"
"""Served beside the harness where it lies beside it: the control arm of experiments on the harness itself."""
PORTS: Mapping[str, int] = {"console": 8700, "gateway": 8710, "engine": 8720, "mlflow": 8730, "tools": 8740}


@dataclass(frozen=True, slots=True)
class Service:
    """One process. `health` is a path that answers 200 once it is up; "" means that the port only has to accept."""

    name: str
    port: int
    command: tuple[str, ...]
    health: str = ""
    start_s: float = 60.0
    """How long a start may take."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"


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


def services(plan: Plan, ports: Mapping[str, int]) -> tuple[Service, ...]:
    """The services of a plan in the order in which they start."""
    python = (sys.executable, "-m")
    made: dict[str, Service] = {}
    made["tools"] = Service(
        "tools",
        ports["tools"],
        (*python, "hat_scenarios.live_commerce.server", str(plan.harness_folder), "--port", str(ports["tools"])),
    )
    if plan.model is not None:
        command = (*python, "hat_serving.engine", "--model", str(plan.model), "--port", str(ports["engine"]))
        made["engine"] = Service("engine", ports["engine"], (*command, *ENGINE_FLAGS), "/health")
    server = ("mlflow", "server", "--host", "127.0.0.1", "--port", str(ports["mlflow"]), "--workers", "1")
    store = ("--backend-store-uri", plan.mlflow_uri, "--artifacts-destination", str(plan.artifacts))
    made["mlflow"] = Service("mlflow", ports["mlflow"], (*python, *server, *store), "/health", 120.0)
    console = ("hat_console", "--data", str(plan.data / "registry"), "--port", str(ports["console"]), "--open")
    runs = plan.artifacts.parent
    shown = ("--runs", str(runs), "--cache", str(paths.cache_dir(runs)), "--profiles", str(paths.shipped("profiles")))
    shown += ("--harnesses", str(paths.shipped("harnesses")), "--tracking", plan.mlflow_uri)
    if "mlflow" not in plan.without:
        shown += ("--mlflow", f"http://127.0.0.1:{ports['mlflow']}")
    engine = plan.engine_url or (f"http://127.0.0.1:{ports['engine']}" if plan.model is not None else "")
    if engine and "gateway" not in plan.without:
        token = plan.data / "gateway" / "admin.token"
        shown += ("--gateway", f"http://127.0.0.1:{ports['gateway']}", "--gateway-token", str(token))
    made["console"] = Service("console", ports["console"], (*python, *console, *shown), "/healthz")
    if engine:
        gateway = ("hat_serving.gateway", "--data", str(plan.data / "gateway"), "--port", str(ports["gateway"]))
        served: tuple[str, ...] = ("--harness", f"{plan.harness}={plan.harness_folder}", "--engine", engine)
        baseline = plan.harness_folder.parent / BASELINE
        if plan.harness != BASELINE and baseline.is_dir():
            served += ("--harness", f"{BASELINE}={baseline}")
        tools = ("--tools", f"http://127.0.0.1:{ports['tools']}/mcp")
        made["gateway"] = Service("gateway", ports["gateway"], (*python, *gateway, *served, *tools), "/readyz")
    return tuple(made[name] for name in ORDER if name in made and name not in plan.without)
