"""A real Prometheus scrapes real pods, and what it says promotes a rollout or takes it back."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from hat_serving.canary import control
from hat_serving.canary.kube import Kube
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.helpers import answers, pod, runtime, service, state, until, until_serving
from tests.cluster.rollouts import Load, rollout, status, until_phase

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("controller")]

SCRAPE = """
global: {{scrape_interval: 500ms}}
scrape_configs:
  - job_name: engines
    static_configs:
      - {{targets: ["chat-v1-predictor.{namespace}.svc:80"], labels: {{predictor: chat-v1-predictor}}}}
      - {{targets: ["chat-v2-predictor.{namespace}.svc:80"], labels: {{predictor: chat-v2-predictor}}}}
"""
ANSWERS = 'sum(increase({__name__="sglang:http_responses_total",predictor="$arm"%s}[$window]))'
ERRORS: dict[str, Any] = {
    "name": "errors",
    "share": {"events": ANSWERS % ',status_code="500"' + " or vector(0)", "total": ANSWERS % "", "margin": 0.2},
    "interval": "0.5s",
    "minimumSample": 20,
}
STEPS: list[dict[str, Any]] = [{"setWeight": 50}, {"analysis": {"deadline": "60s"}}]


@pytest.fixture
def prometheus(kube: Kube, namespace: str) -> str:
    """A Prometheus in the namespace that scrapes both predictors; its address inside the cluster."""
    program = shutil.which("prometheus")
    assert program, "prometheus is missing: install Debian's package prometheus"
    where = {"name": "prometheus", "namespace": namespace}
    config = SCRAPE.format(namespace=namespace)
    kube.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": where, "data": {"prometheus.yml": config}})
    made = pod(
        "prometheus",
        namespace,
        [program, "--config.file=/config/prometheus.yml", "--storage.tsdb.path=/data", "--web.listen-address=:9090"],
        readinessProbe={"httpGet": {"path": "/-/ready", "port": 9090}},
        volumeMounts=[{"name": "config", "mountPath": "/config"}, {"name": "data", "mountPath": "/data"}],
        volumes=[{"name": "config", "configMap": {"name": "prometheus"}}, {"name": "data", "emptyDir": {}}],
    )
    made["metadata"]["labels"] = {"app": "prometheus"}
    kube.create(made)
    spec = {"selector": {"app": "prometheus"}, "ports": [{"port": 9090}]}
    kube.apply({"apiVersion": "v1", "kind": "Service", "metadata": where, "spec": spec})
    until(lambda: state(kube, namespace, "prometheus")["main"].get("ready"), "Prometheus is ready")
    return f"http://prometheus.{namespace}.svc:9090"


def measured(kube: Kube, cluster: Cluster, namespace: str, address: str, patch: dict[str, Any]) -> dict[str, Any]:
    """Rolls v2 out under load and returns the status at the end of it."""
    kube.apply(runtime())
    kube.apply(service(namespace, replicas=1))
    until_serving(kube, namespace, replicas=1)
    host = f"chat-{namespace}.example.com"
    until(lambda: not answers(cluster.gateway, host, 1)[1], "the gateway leads to v1")
    canary = {"name": "v2", "storageUri": "s3://models/v2", "patch": patch}
    more: dict[str, Any] = {
        "target": {"backend": "httproute", "inferenceService": "chat", "canary": canary},
        "metrics": [ERRORS],
        "prometheus": {"url": address},
        "arms": {"stable": "chat-v1-predictor", "canary": "chat-v2-predictor"},
    }
    with Load(cluster.gateway, host):
        control.start(kube, rollout(namespace, steps=STEPS, **more))
        return until_phase(kube, namespace, "Healthy", "Degraded", "Paused")


def test_a_canary_without_errors_is_promoted(kube: Kube, cluster: Cluster, namespace: str, prometheus: str) -> None:
    done = measured(kube, cluster, namespace, prometheus, {})
    assert done["phase"] == "Healthy", done
    (window,) = [window for window in done["windows"] if window["step"] == 1]
    assert window["metrics"] == {"errors": 0}


def test_a_canary_with_errors_is_taken_back(kube: Kube, cluster: Cluster, namespace: str, prometheus: str) -> None:
    failing = {"model": {"env": [{"name": "HATSTACK_FAIL", "value": "500:0.6"}]}}
    done = measured(kube, cluster, namespace, prometheus, failing)
    assert (done["phase"], done["reason"]) == ("Degraded", "AnalysisFailed"), done
    assert "worse" in done["message"]
    host = f"chat-{namespace}.example.com"
    assert set(answers(cluster.gateway, host, 20)[0]) == {"s3://models/v1"}


def test_without_an_answer_of_prometheus_nothing_is_promoted(kube: Kube, cluster: Cluster, namespace: str) -> None:
    kube.apply(runtime())
    kube.apply(service(namespace, replicas=1))
    until_serving(kube, namespace, replicas=1)
    more: dict[str, Any] = {
        "metrics": [ERRORS],
        "prometheus": {"url": f"http://prometheus.{namespace}.svc:9090", "timeout": "1s"},
    }
    control.start(kube, rollout(namespace, steps=STEPS, **more))
    until(lambda: status(kube, namespace).get("reason") == "PreflightFailed", "preflight says no")
    assert "no usable answer" in status(kube, namespace)["message"]
