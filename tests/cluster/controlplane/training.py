"""Kubeflow Trainer and JobSet in a running cluster: CRDs, webhooks, and both controllers as pods with their Services.

Both make their webhooks' certificates themselves, put them into a Secret and wait until the volume of their pod shows
it. The node agent writes volumes once, when a pod begins, so each pod is replaced when its Secret has been filled.
Not here: the programs (trainer_build), what is trained.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hat_serving.canary.kube import Kube

Until = Callable[[Callable[[], object], str, float], object]
"""Waits: (fact, what it is, seconds)."""
MANAGERS: dict[str, dict[str, Any]] = {
    "trainer": {
        "namespace": "kubeflow-system",
        "image": "ghcr.io/kubeflow/trainer/trainer-controller-manager:v2.0.0",
        "command": ["/bin/trainer-controller-manager"],
        "service": "kubeflow-trainer-controller-manager",
        "secret": "kubeflow-trainer-webhook-cert",
        "hooks": {"ValidatingWebhookConfiguration": "validator.trainer.kubeflow.org"},
    },
    "jobset": {
        "namespace": "jobset-system",
        "image": "registry.k8s.io/jobset/jobset:v0.8.2",
        "command": ["/bin/jobset", "--leader-elect=false"],
        "service": "jobset-webhook-service",
        "secret": "jobset-webhook-server-cert",
        "hooks": {
            "MutatingWebhookConfiguration": "jobset-mutating-webhook-configuration",
            "ValidatingWebhookConfiguration": "jobset-validating-webhook-configuration",
        },
    },
}
"""Names are those that the programs look for."""
CERTIFICATES = "/tmp/k8s-webhook-server/serving-certs"
"""Where both programs look, in a container of their own."""
OF_JOBSETS = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}


def install(kube: Kube, build: Path, until: Until) -> None:
    """Everything, until both controllers are ready and their webhooks answer."""
    for entry in json.loads((build / "crds.json").read_text()):
        kube.apply(entry)
    for name, one in MANAGERS.items():
        for entry in (*_objects(name, one), *_hooks(name, one, build)):
            kube.apply(entry)
    for name, one in MANAGERS.items():
        until(lambda one=one: _filled(kube, one), f"{name} has made its certificates", 90)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        for pod in kube.list("v1", "Pod", one["namespace"]):
            kube.delete("v1", "Pod", pod["metadata"]["name"], one["namespace"])
    for name, one in MANAGERS.items():
        until(lambda one=one: _ready(kube, one), f"{name} is ready", 90)  # type: ignore[misc]  # as above


def _objects(name: str, one: dict[str, Any]) -> list[dict[str, Any]]:
    namespace, labels = one["namespace"], {"app.kubernetes.io/name": name}
    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    container = {
        "name": "manager",
        "image": one["image"],
        "command": one["command"],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 1},
        "volumeMounts": [{"name": "cert", "mountPath": CERTIFICATES, "readOnly": True}],
    }
    pod = {
        "serviceAccountName": name,
        "containers": [container],
        "volumes": [{"name": "cert", "secret": {"secretName": one["secret"]}}],
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": one["secret"], "namespace": namespace}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{name}-controller"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [account],
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": one["service"], "namespace": namespace},
            "spec": {"selector": labels, "ports": [{"port": 443, "targetPort": 9443}]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
    ]


def _hooks(name: str, one: dict[str, Any], build: Path) -> list[dict[str, Any]]:
    """Upstream's registrations with the names that its installation gives them."""
    found = []
    for entry in json.loads((build / f"{name}-webhooks.json").read_text()):
        entry["metadata"]["name"] = one["hooks"][entry["kind"]]
        for hook in entry["webhooks"]:
            hook["clientConfig"]["service"] |= {"name": one["service"], "namespace": one["namespace"]}
            if hook["rules"][0]["resources"] == ["pods"]:  # upstream's installation narrows these by a patch
                hook["objectSelector"] = OF_JOBSETS
        found.append(entry)
    return found


def _filled(kube: Kube, one: dict[str, Any]) -> bool:
    secret = kube.get("v1", "Secret", one["secret"], one["namespace"]) or {}
    return bool(base64.b64decode((secret.get("data") or {}).get("tls.crt", "")))


def _ready(kube: Kube, one: dict[str, Any]) -> bool:
    hooks = [
        kube.get("admissionregistration.k8s.io/v1", kind, name) or {"webhooks": [{"clientConfig": {}}]}
        for kind, name in one["hooks"].items()
    ]
    if not all(hook["clientConfig"].get("caBundle") for entry in hooks for hook in entry["webhooks"]):
        return False
    pods = [pod for pod in kube.list("v1", "Pod", one["namespace"]) if not pod["metadata"].get("deletionTimestamp")]
    conditions = [condition for pod in pods for condition in pod.get("status", {}).get("conditions") or ()]
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
