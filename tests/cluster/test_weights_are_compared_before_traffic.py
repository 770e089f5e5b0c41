"""A pod whose weights are not those of the release takes no traffic; with the right ones it does, through promotion."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import helm_python
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hat_components.data import digest_path
from hat_serving.canary import control
from hat_serving.canary.kube import Kube
from hat_serving.canary.spec import DIGEST_ANNOTATION
from tests.cluster.charts import folder
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.helpers import KSERVE, answers, until, until_serving
from tests.cluster.rollouts import Load, rollout, until_phase

NAME = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def start() -> ModuleType:
    """The program that the chart puts before the engine."""
    spec = importlib.util.spec_from_file_location("start", folder("hatstack-serving") / "files" / "start.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(files=st.dictionaries(NAME.filter(lambda name: name not in (".", "..")), st.binary(max_size=99), max_size=5))
def test_a_pod_counts_as_the_registry_does(start: ModuleType, files: dict[str, bytes], tmp_path: Path) -> None:
    shutil.rmtree(tmp_path)
    (tmp_path / "deep").mkdir(parents=True)
    for name, content in files.items():
        (tmp_path / "deep" / f"w-{name}").write_bytes(content)
        (tmp_path / f"w-{name}").write_bytes(content[::-1])
    assert start.of_folder(tmp_path) == digest_path(tmp_path)


def test_the_program_survives_what_rewrites_commands(start: ModuleType) -> None:
    """The kubelet replaces `$(NAME)` and `$$`, KServe runs the container through Go's templates."""
    text = (folder("hatstack-serving") / "files" / "start.py").read_text()
    assert not [mark for mark in ("$(", "$$", "{{") if mark in text]


@pytest.mark.cluster
@pytest.mark.usefixtures("controller")
def test_a_changed_byte_keeps_a_canary_from_traffic(kube: Kube, cluster: Cluster, namespace: str) -> None:
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    where = {"name": "weights", "namespace": namespace}
    kube.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": where, "spec": claim})
    weights = cluster.folder / "claims" / f"{namespace}_weights"
    for version in ("v1", "v2"):
        (weights / version).mkdir(parents=True)
        (weights / version / "source.json").write_text(json.dumps({"uri": version}))
        (weights / version / "model.safetensors").write_bytes(version.encode() * 5000)
    digests = {version: digest_path(weights / version) for version in ("v1", "v2")}
    chosen: dict[str, Any] = {
        "engine": {
            "model": {"storageUri": "pvc://weights/v1", "digest": digests["v1"], "fetcher": {"create": False}},
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
            "preStopSeconds": 1,
        },
        "gateway": {"enabled": False},
    }
    with helm_python.Config(kubeconfig_path=cluster.kubeconfig, namespace=namespace) as helm:
        helm.install(folder("hatstack-serving"), "live", chosen, namespace=namespace)
    until_serving(kube, namespace, replicas=1)
    host = f"chat-{namespace}.example.com"
    until(lambda: answers(cluster.gateway, host, 1)[0]["v1"], "v1 answers: its weights are as released")
    canary = {"name": "v2", "storageUri": "pvc://weights/v2", "digest": digests["v2"]}
    target = {"backend": "httproute", "inferenceService": "chat", "canary": canary}
    file = weights / "v2" / "model.safetensors"
    good = file.read_bytes()
    file.write_bytes(good[:7] + b"?" + good[8:])
    with Load(cluster.gateway, host) as load:
        control.start(
            kube, rollout(namespace, name="bad", steps=[{"setWeight": 50}], target=target, progressDeadline="6s")
        )
        until(lambda: said(kube, namespace), "the pod says why it does not start")
        done = until_phase(kube, namespace, "Healthy", "Degraded", name="bad")
        assert done["reason"] == "CanaryNotReady", done
        assert "takes no traffic" in done["message"]
        assert set(load.good) == {"v1"}
        file.write_bytes(good)
        control.start(kube, rollout(namespace, name="good", steps=[{"setWeight": 50}], target=target))
        done = until_phase(kube, namespace, "Healthy", "Degraded", name="good")
    assert done["reason"] == "Promoted", done
    assert not load.bad
    found = kube.get(KSERVE, "InferenceService", "chat", namespace)
    assert found is not None
    assert found["spec"]["predictor"]["annotations"] == {DIGEST_ANNOTATION: digests["v2"]}
    assert set(answers(cluster.gateway, host, 10)[0]) == {"v2"}


def said(kube: Kube, namespace: str) -> bool:
    """Whether a pod of the canary has ended with the digests in its message."""
    for pod in kube.list("v1", "Pod", namespace, labelSelector="app=isvc.chat-v2-predictor"):
        for entry in pod.get("status", {}).get("containerStatuses") or []:
            ended = (entry.get("lastState") or {}).get("terminated") or entry["state"].get("terminated") or {}
            if "takes no traffic" in ended.get("message", ""):
                return True
    return False
