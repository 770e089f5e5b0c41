"""The version before is upgraded to this one and rolled back while a rollout is under way, and the rollout goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from hat_serving.canary import control
from hat_serving.canary.kube import Kube
from tests.cluster.charts import folder
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.helpers import answers, until
from tests.cluster.rollouts import Load, rollout, status, until_phase

pytestmark = [pytest.mark.cluster, pytest.mark.matrix]
VALUES: dict[str, Any] = {"console": {"enabled": False}, "controller": {"interval": 0.2, "leaseSeconds": 3}}
CRD = "canaryrollouts.hatstack.dev"


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The chart as an earlier version would be: another version, a definition without `soak` and conditions."""
    made = tmp_path / "hatstack"
    shutil.copytree(folder("hatstack"), made)
    about = yaml.safe_load((made / "Chart.yaml").read_text())
    (made / "Chart.yaml").write_text(yaml.safe_dump(about | {"version": "0.0.9", "appVersion": "0.0.9"}))
    file = made / "files" / "crds" / "canaryrollouts.yaml"
    definition = yaml.safe_load(file.read_text())
    root = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del root["spec"]["properties"]["soak"]
    del root["status"]["properties"]["conditions"]
    rules = root["spec"]["x-kubernetes-validations"]
    root["spec"]["x-kubernetes-validations"] = [rule for rule in rules if "soak" not in rule["rule"]]
    file.write_text(yaml.safe_dump(definition))
    return made


@pytest.fixture
def helm(cluster: Cluster, controller: str) -> Iterator[helm_python.Config]:
    """Helm in the controller's namespace; this version stands again after the test."""
    with helm_python.Config(kubeconfig_path=cluster.kubeconfig, namespace=controller) as made:
        yield made
        made.upgrade(folder("hatstack"), "hatstack", VALUES, namespace=controller)


def knows_soak(kube: Kube) -> bool:
    found = kube.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", CRD)
    assert found is not None
    schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return "soak" in schema["properties"]


def rolled_out(kube: Kube, namespace: str, version: str) -> bool:
    """Whether both replicas run the version, by the label that the chart gives their pods."""
    pods = kube.list("v1", "Pod", namespace, labelSelector="app.kubernetes.io/component=canary")
    live = [entry for entry in pods if not entry["metadata"].get("deletionTimestamp")]
    return len(live) == 2 and all(
        entry["metadata"]["labels"]["app.kubernetes.io/version"] == version
        and any(one["type"] == "Ready" and one["status"] == "True" for one in entry["status"].get("conditions") or [])
        for entry in live
    )


def test_a_rollout_goes_on_through_upgrade_and_rollback(
    kube: Kube, cluster: Cluster, namespace: str, controller: str, stable: str, before: Path, helm: helm_python.Config
) -> None:
    now = yaml.safe_load((folder("hatstack") / "Chart.yaml").read_text())["appVersion"]
    helm.upgrade(before, "hatstack", VALUES, namespace=controller)
    until(lambda: rolled_out(kube, controller, "0.0.9"), "the version before runs")
    assert not knows_soak(kube)
    steps = [{"setWeight": 10}, {"pause": {}}, {"setWeight": 50}, {"pause": {}}]
    with Load(cluster.gateway, stable) as load:
        control.start(kube, rollout(namespace, steps=steps, progressDeadline="120s"))
        until_phase(kube, namespace, "Paused")
        helm.upgrade(folder("hatstack"), "hatstack", VALUES, namespace=controller)
        until(lambda: rolled_out(kube, controller, now), "this version runs")
        assert knows_soak(kube)
        assert status(kube, namespace)["effectiveWeight"] == 10
        control.resume(kube, namespace, "chat-v2")
        until(lambda: status(kube, namespace).get("step") == 3, "it goes on under the new version")
        until(lambda: status(kube, namespace).get("conditions"), "with what only the new version tells")
        helm.rollback("hatstack")
        until(lambda: rolled_out(kube, controller, "0.0.9"), "the version before runs again")
        until_phase(kube, namespace, "Paused")
        control.resume(kube, namespace, "chat-v2")
        assert until_phase(kube, namespace, "Healthy", "Degraded", seconds=90)["reason"] == "Promoted"
    assert not load.bad
    assert set(answers(cluster.gateway, stable, 20)[0]) == {"s3://models/v2"}
