"""A pipeline's canary step, over a console that has only the chart's rights, rolls a release out on real KServe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hat_components.canary import step
from hat_components.canary.config import Config
from hat_components.step import NullProgress
from hat_console.app import ConsoleSettings
from hat_registry.registry import Registry
from hat_serving.canary.kube import Kube
from tests.cluster.charts import render, values
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.controlplane.supervisor import kubeconfig
from tests.cluster.helpers import answers
from tests.cluster.rollouts import Load
from tests.console.conftest import serve

pytestmark = [pytest.mark.cluster, pytest.mark.matrix]
DIGEST = "sha256:" + "3f9c" * 16
ACCOUNT = "live-hatstack-console"
RBAC = "rbac.authorization.k8s.io/v1"


@pytest.fixture
def console(
    kube: Kube, cluster: Cluster, controller: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A console outside the cluster that speaks to it with the account of the chart's console."""
    made = render("hatstack", values("hatstack", "default"), namespace=controller)
    rights = [entry for entry in made if entry["apiVersion"] == RBAC and ACCOUNT in entry["metadata"]["name"]]
    assert len(rights) == 2
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": controller}}
    for entry in (account, *rights):
        kube.apply(entry)
    file = tmp_path / "kubeconfig"
    server = next(line.split()[-1] for line in cluster.kubeconfig.read_text().splitlines() if "server:" in line)
    file.write_text(kubeconfig(server, cluster.folder / "pki" / "ca.crt", kube.token(controller, ACCOUNT)))
    # The client reads KUBECONFIG once, when it is imported.
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    registry = Registry.open(f"sqlite:///{tmp_path}/registry.db", tmp_path / "blobs")
    settings = ConsoleSettings(session_key=b"k" * 32, rollouts="cluster", open_access=True)
    running, thread, url = serve(registry, settings)
    yield url
    running.should_exit = True
    thread.join(20)
    registry.close()


def test_the_step_ends_with_the_promotion_and_uses_every_right(
    kube: Kube, cluster: Cluster, namespace: str, stable: str, console: str, tmp_path: Path
) -> None:
    file = tmp_path / "proposal.json"
    release = {"name": "chat", "model": "sha256:" + "aa" * 32, "harness": "sha256:" + "bb" * 32}
    file.write_text(json.dumps({"release": release, "digest": DIGEST, "proposal": "p", "sent": True}))
    canary = {"name": "r-<short>", "storageUri": "s3://models/<short>"}
    target = {"backend": "httproute", "inferenceService": "chat", "canary": canary}
    spec: dict[str, Any] = {"target": target, "steps": [{"setWeight": 50}], "progressDeadline": "60s"}
    config = Config(registry=console, namespace=namespace, spec=spec, interval_s=0.3, timeout_s=120)
    with Load(cluster.gateway, stable) as load:
        result = step.run(config, {"proposal": file}, tmp_path, NullProgress())
    assert result.metrics == {"started": 1.0, "promoted": 1.0, "taken_back": 0.0}
    assert not load.bad
    assert set(answers(cluster.gateway, stable, 10)[0]) == {f"s3://models/{'3f9c' * 3}"}
    later = {**target, "canary": {"name": "later", "storageUri": "s3://models/later"}}
    waiting = {**spec, "target": later, "steps": [{"setWeight": 1}, {"pause": {}}]}
    bad = config.model_copy(update={"name": "bad", "timeout_s": 1.0, "spec": waiting})
    with pytest.raises(step.NotPromotedError):
        step.run(bad, {"proposal": file}, tmp_path, NullProgress())
    given = {
        (rule["resources"][0], verb)
        for entry in kube.list(RBAC, "ClusterRole")
        if ACCOUNT in entry["metadata"]["name"]
        for rule in entry["rules"]
        for verb in rule["verbs"]
    }
    mine = [entry for entry in cluster.audit() if entry["user"]["username"].endswith(f":{ACCOUNT}")]
    used = {(entry["objectRef"]["resource"], entry["verb"]) for entry in mine if "objectRef" in entry}
    assert used <= given, "it asks for nothing else"
    assert given - used <= {("canaryrollouts", "list")}, "the list is the page's"
