"""The scene of the whole story: dev engines with the micro model, tools, a gateway, Prometheus and a console, as pods.

The chart hatstack-serving brings the gateway, the chart hatstack console and controller; engines and tools are plain
pods. Not here: what happens on it (test_the_whole_story_with_traffic).
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import helm_python
import urllib3

from hat_registry import accounts
from hat_registry.registry import Registry
from hat_serving.canary.kube import Kube, Manifest
from tests.cluster.controlplane.cluster import REPOSITORY, Cluster
from tests.cluster.controlplane.pods.images import STAND_INS
from tests.cluster.helpers import pod, state, until
from tests.cluster.rollouts import start_prometheus

MODEL = REPOSITORY / "components" / "hat_components" / "base" / "shipped" / "micro-2" / "model"
HARNESS = REPOSITORY / "harness-registry" / "harnesses" / "live-commerce"
SYSTEM = "hatstack-system"
PASSWORD = "ada-has-a-long-password"
SCRAPE = """
global: {{scrape_interval: 500ms}}
scrape_configs:
  - job_name: gateway
    static_configs: [{{targets: ["live-hatstack-serving-gateway.{namespace}.svc:80"]}}]
"""


@dataclass(slots=True)
class Scene:
    """Where everything is."""

    cluster: Cluster
    kube: Kube
    namespace: str
    registry: Registry
    """The console's own database, opened a second time."""
    prometheus: str = ""

    @property
    def gateway(self) -> str:
        """The agent gateway through Traefik, as viewers reach it."""
        return f"http://localhost:{urlsplit(self.cluster.gateway).port}"

    @property
    def admin(self) -> str:
        """The gateway's administrative address inside the cluster."""
        return f"http://live-hatstack-serving-gateway.{self.namespace}.svc"

    @property
    def console(self) -> str:
        """The console through Traefik; a browser needs `console.example.com` mapped to loopback."""
        return f"http://console.example.com:{urlsplit(self.cluster.gateway).port}"


def engine(name: str) -> list[str]:
    """Command of a CPU engine with the shipped micro model."""
    command = [sys.executable, "-m", "hat_serving.engine", "--model-path", str(MODEL), "--host", "0.0.0.0"]
    return [*command, "--port", "8080", "--served-model-name", "default", "--enable-metrics"]


def broken() -> list[str]:
    """Command of an engine that fails every request."""
    return [sys.executable, str(STAND_INS / "broken_engine.py"), "8080"]


def serve(kube: Kube, namespace: str, name: str, command: list[str], port: int, path: str = "/health") -> None:
    """A pod with a Service on port 80."""
    probe: dict[str, Any] = {"httpGet": {"path": path, "port": port}} if path else {"tcpSocket": {"port": port}}
    made = pod(name, namespace, command, readinessProbe={**probe, "periodSeconds": 1})
    made["metadata"]["labels"] = {"app": name}
    kube.create(made)
    spec = {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": port}]}
    service: Manifest = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}}
    kube.apply({**service, "spec": spec})


@contextmanager
def scene(cluster: Cluster, kube: Kube, namespace: str) -> Iterator[Scene]:
    """Everything up; console and controller go back to what they were at the end."""
    token = secrets.token_urlsafe(24)
    hashes = hashlib.sha256(token.encode()).hexdigest()
    secret(kube, namespace, "hatstack-pseudonym", key=secrets.token_hex(16))
    secret(kube, namespace, "hatstack-gateway-admin", hashes=hashes)
    secret(kube, SYSTEM, "hatstack-gateway-admin", token=token)
    for name, command in (("engine", engine("engine")), ("next", engine("next")), ("broken", broken())):
        serve(kube, namespace, name, command, 8080)
    tools = [sys.executable, "-m", "hat_scenarios.live_commerce.server", str(HARNESS), "--host", "0.0.0.0"]
    serve(kube, namespace, "tools", tools, 8740, path="")
    with helm_python.Config(kubeconfig_path=cluster.kubeconfig, namespace=SYSTEM) as helm:
        before = {"console": {"enabled": False}, "controller": {"interval": 0.2, "leaseSeconds": 3}}
        console = _console(cluster, kube, helm, before)
        try:
            _gateway(cluster, namespace)
            address = start_prometheus(kube, namespace, SCRAPE.format(namespace=namespace))
            made = Scene(cluster, kube, namespace, console, address)
            for name in ("engine", "next", "broken", "tools"):
                until(lambda name=name: state(kube, namespace, name)["main"].get("ready"), f"{name} is ready", 120)
            until(lambda: _ready(kube, namespace), "the gateway is up", 120)
            until(lambda: _refused_by_the_gateway(made.gateway), "viewers reach the gateway", 60)
            yield made
        finally:
            console.close()
            helm.upgrade(REPOSITORY / "charts" / "hatstack", "hatstack", before, namespace=SYSTEM)


def secret(kube: Kube, namespace: str, name: str, **values: str) -> None:
    """A Secret."""
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    kube.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "data": data})


def _console(cluster: Cluster, kube: Kube, helm: Any, before: dict[str, Any]) -> Registry:
    """The console on its volume; then the controller with a token of its registry."""
    route = {"parentRefs": [{"name": "kserve-ingress-gateway", "namespace": "kserve"}]}
    shown = {"behindTls": False, "httpRoute": {"enabled": True, "hostnames": ["console.example.com"], **route}}
    chart = REPOSITORY / "charts" / "hatstack"
    helm.upgrade(chart, "hatstack", {**before, "console": shown}, namespace=SYSTEM)
    until(lambda: _answers(f"{cluster.gateway}/readyz", "console.example.com"), "the console answers", 120)
    data = cluster.folder / "claims" / f"{SYSTEM}_hatstack-console"
    registry = Registry.open(f"sqlite:///{data}/registry.db", data / "blobs")
    with registry.database.write() as tx:
        for name, role in (("ada", "approver"), ("controller", "editor"), ("root", "admin")):
            accounts.create(tx, accounts.SYSTEM, name, password=PASSWORD)
            accounts.give(tx, accounts.SYSTEM, name, role)  # type: ignore[arg-type]  # the tuple loses the literal
        actor = accounts.actor_of(tx, "controller", "default")
        _, told = accounts.issue_token(tx, actor, label="canary", scopes=["read", "evidence"])
    secret(kube, SYSTEM, "hatstack-registry-token", token=told)
    controller = {
        **before["controller"],
        "registry": {"tokenSecretName": "hatstack-registry-token"},
        "gateway": {"tokenSecretName": "hatstack-gateway-admin"},
    }
    helm.upgrade(chart, "hatstack", {"controller": controller, "console": shown}, namespace=SYSTEM)
    return registry


def _gateway(cluster: Cluster, namespace: str) -> None:
    chosen: dict[str, Any] = {
        "engine": {"enabled": False},
        "gateway": {
            "engineUrl": f"http://engine.{namespace}.svc",
            "engineModel": "default",
            "engines": {name: f"http://{name}.{namespace}.svc" for name in ("next", "broken")},
            "adminSecretName": "hatstack-gateway-admin",
            "harnesses": {"live": str(HARNESS)},
            "toolsUrl": f"http://tools.{namespace}.svc/mcp",
            "replicas": 1,
            "databaseSecretName": "",
            "httpRoute": {"hostnames": ["localhost"]},
        },
    }
    with helm_python.Config(kubeconfig_path=cluster.kubeconfig, namespace=namespace) as helm:
        helm.install(REPOSITORY / "charts" / "hatstack-serving", "live", chosen, namespace=namespace)


def _ready(kube: Kube, namespace: str) -> bool:
    found = kube.get("apps/v1", "Deployment", "live-hatstack-serving-gateway", namespace) or {}
    return int(found.get("status", {}).get("availableReplicas", 0)) == 1


def _refused_by_the_gateway(url: str) -> bool:
    """An empty request is refused by the gateway itself, in JSON; before it is there, Traefik answers in plain text."""
    try:
        answer = urllib3.request("POST", f"{url}/v1/chat/completions", body=b"{}", timeout=5, retries=False)
    except urllib3.exceptions.HTTPError:
        return False
    return answer.status == 400 and "json" in answer.headers.get("Content-Type", "")


def _answers(url: str, host: str = "") -> bool:
    headers = {"Host": host} if host else {}
    try:
        return bool(urllib3.request("GET", url, headers=headers, timeout=5, retries=False).status == 200)
    except urllib3.exceptions.HTTPError:
        return False


def folder(path: Path, name: str) -> Path:
    """A new folder for one load."""
    made = path / name
    made.mkdir()
    return made
