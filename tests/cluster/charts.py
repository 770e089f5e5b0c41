"""Helpers of the chart tests: scenarios, rendering, and the parts of manifests that rules are checked on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python
import yaml

from hat_serving.canary.kube import Kube
from tests.cluster.controlplane.cluster import REPOSITORY

Manifest = dict[str, Any]
CHARTS = ("hatstack", "hatstack-serving")
OPERATOR = "monitoring.coreos.com/v1"
"""Kinds of the Prometheus operator, whose definitions the test cluster does not have."""


def folder(chart: str) -> Path:
    """The chart's folder."""
    return REPOSITORY / "charts" / chart


def scenarios() -> list[tuple[str, str]]:
    """(chart, scenario) of every ci/*-values.yaml."""
    return [
        (chart, path.name.removesuffix("-values.yaml"))
        for chart in CHARTS
        for path in sorted((folder(chart) / "ci").glob("*-values.yaml"))
    ]


def values(chart: str, scenario: str) -> dict[str, Any]:
    """The values of a scenario."""
    loaded: dict[str, Any] = yaml.safe_load((folder(chart) / "ci" / f"{scenario}-values.yaml").read_text()) or {}
    return loaded


def render(chart: str, chosen: dict[str, Any], namespace: str = "live") -> list[Manifest]:
    """Every object that the chart makes of these values."""
    with helm_python.Chart.load(folder(chart)) as loaded:
        texts = loaded.render(chosen, name="live", namespace=namespace)
    return [
        entry for name, text in texts.items() if name.endswith(".yaml") for entry in yaml.safe_load_all(text) if entry
    ]


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """(name, pod template) of every workload."""
    for entry in manifests:
        if entry["kind"] in ("Deployment", "StatefulSet", "DaemonSet", "Job"):
            yield entry["metadata"]["name"], entry["spec"]["template"]


def rules() -> Manifest:
    """The alerts of chart hatstack-serving."""
    rendered = render("hatstack-serving", values("hatstack-serving", "gpu"))
    (found,) = [entry for entry in rendered if entry["kind"] == "PrometheusRule"]
    return found


def rights(kube: Kube, account: str) -> set[tuple[str, str, str]]:
    """(group, resource, verb) that the chart's roles give an account, as the API server holds them."""
    given = set()
    for kind in ("ClusterRole", "Role"):
        for entry in kube.list("rbac.authorization.k8s.io/v1", kind):
            if account in entry["metadata"]["name"] and entry["metadata"]["name"].startswith("hatstack"):
                given |= {
                    (group, resource, verb)
                    for rule in entry["rules"]
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                    for verb in rule["verbs"]
                }
    return given
