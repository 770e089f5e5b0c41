"""What is installed once into a fresh API server: CRDs, KServe's settings and webhooks, the gateway.

Everything is applied on the server side, so that it may be repeated. The result is what a snapshot keeps.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path

from tests.cluster.controlplane import manifests, processes
from tests.cluster.controlplane.api import Api, Manifest
from tests.cluster.controlplane.errors import ApiError, StartError

AT_ONCE = 4
GATEWAY_CLASS: Manifest = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "GatewayClass",
    "metadata": {"name": "traefik"},
    "spec": {"controllerName": "traefik.io/gateway-controller"},
}
GATEWAY: Manifest = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "Gateway",
    "metadata": {"name": "kserve-ingress-gateway", "namespace": "kserve"},
    "spec": {
        "gatewayClassName": "traefik",
        "listeners": [
            {
                "name": "http",
                "protocol": "HTTP",
                "port": processes.GATEWAY_PORT,
                "allowedRoutes": {"namespaces": {"from": "All"}},
            }
        ],
    },
}


async def crds(api: Api, folder: Path, *, llm: bool) -> None:
    """Applies the CRDs, a few at once, and waits until the server serves all of them."""
    entries = manifests.load(folder, "crds")
    if llm:
        entries += [_with_conversion(entry, api.ca_bundle) for entry in manifests.load(folder, "llm-crds")]
    room = asyncio.Semaphore(AT_ONCE)

    async def one(entry: Manifest) -> None:
        async with room:
            await api.apply(entry, validation="Ignore")

    definitions = [entry for entry in entries if entry["kind"] == "CustomResourceDefinition"]
    await api.path("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    await asyncio.gather(*(one(entry) for entry in entries))
    for entry in definitions:
        await established(api, entry["metadata"]["name"])


async def settings(api: Api, folder: Path) -> None:
    """Namespace, KServe's ConfigMap (Gateway API on, Standard mode), gateway class and gateway."""
    labels = {"control-plane": "kserve-controller-manager"}
    await api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kserve", "labels": labels}})
    (config,) = manifests.load(folder, "settings")
    config["metadata"]["namespace"] = "kserve"
    config["data"].pop("_example", None)
    ingress = json.loads(config["data"]["ingress"])
    ingress.update(enableGatewayApi=True, disableIstioVirtualHost=True)
    config["data"]["ingress"] = json.dumps(ingress)
    config["data"]["deploy"] = json.dumps({"defaultDeploymentMode": "Standard"})
    for entry in (config, GATEWAY_CLASS, GATEWAY, _version_mark()):
        await api.apply(entry)


def _version_mark() -> Manifest:
    """KServe's manager runs outside the cluster; an empty Deployment of its usual name tells which version it is."""
    version = re.findall(r"github.com/kserve/kserve (v\S+)", (Path(__file__).parent / "go.mod").read_text())[0]
    labels = {"control-plane": "kserve-controller-manager"}
    container = {"name": "manager", "image": f"kserve/kserve-controller:{version}"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "kserve-controller-manager", "namespace": "kserve"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def webhook_certificate(pki: Path, temporary: Path) -> None:
    """Puts the webhooks' certificate where KServe's managers look for it."""
    target = temporary / "k8s-webhook-server" / "serving-certs"
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(pki / "webhook.crt", target / "tls.crt")
    shutil.copyfile(pki / "webhook.key", target / "tls.key")


async def webhooks(api: Api, folder: Path, name: str, port: int) -> None:
    """Registers a manager's webhooks by URL, because no Service leads to it."""
    for entry in manifests.load(folder, name):
        for hook in entry["webhooks"]:
            url = f"https://127.0.0.1:{port}{hook['clientConfig']['service']['path']}"
            hook["clientConfig"] = {"url": url, "caBundle": api.ca_bundle}
            hook["admissionReviewVersions"] = ["v1", "v1beta1"]
        await api.apply(entry)


async def llm_settings(api: Api, folder: Path) -> None:
    """The presets that LLMInferenceServices refer to; their webhook may need a moment after it was registered."""
    for entry in manifests.load(folder, "llm-settings"):
        entry["metadata"]["namespace"] = "kserve"
        for attempt in range(100):
            try:
                await api.apply(entry, validation="Ignore")
                break
            except ApiError:
                if attempt == 99:
                    raise
                await asyncio.sleep(0.2)


def _with_conversion(entry: Manifest, bundle: str) -> Manifest:
    """LLMInferenceServices are stored as v1alpha2 and served as v1alpha1 too: their controller converts."""
    if entry["kind"] == "CustomResourceDefinition" and entry["spec"]["group"] == "serving.kserve.io":
        client = {"url": f"https://127.0.0.1:{processes.LLM_WEBHOOK_PORT}/convert", "caBundle": bundle}
        webhook = {"conversionReviewVersions": ["v1", "v1beta1"], "clientConfig": client}
        entry["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return entry


async def established(api: Api, name: str) -> None:
    """Waits until the server serves a custom resource."""
    path = await api.path("apiextensions.k8s.io/v1", "CustomResourceDefinition", name=name)
    for _ in range(600):
        conditions = (await api.request("GET", path)).get("status", {}).get("conditions") or []
        if any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions):
            return
        await asyncio.sleep(0.1)
    raise StartError(f"the server does not serve {name}")
