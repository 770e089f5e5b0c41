"""A real Prometheus scrapes real pods, and what it says promotes a rollout or takes it back."""

from __future__ import annotations

from typing import Any

import pytest

from hat_serving.canary import control
from hat_serving.canary.kube import Kube
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.helpers import answers, runtime, service, until, until_serving
from tests.cluster.rollouts import Load, rollout, start_prometheus, status, until_phase

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
    return start_prometheus(kube, namespace, SCRAPE.format(namespace=namespace))


def measured(
    kube: Kube, cluster: Cluster, namespace: str, address: str, patch: dict[str, Any], metric: dict[str, Any] = ERRORS
) -> dict[str, Any]:
    """Rolls v2 out under load and returns the status at the end of it."""
    kube.apply(runtime())
    kube.apply(service(namespace, replicas=1))
    until_serving(kube, namespace, replicas=1)
    host = f"chat-{namespace}.example.com"
    until(lambda: not answers(cluster.gateway, host, 1)[1], "the gateway leads to v1")
    canary = {"name": "v2", "storageUri": "s3://models/v2", "patch": patch}
    more: dict[str, Any] = {
        "target": {"backend": "httproute", "inferenceService": "chat", "canary": canary},
        "metrics": [metric],
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


@pytest.mark.matrix
def test_what_lies_between_good_and_bad_holds_and_is_not_promoted(
    kube: Kube, cluster: Cluster, namespace: str, prometheus: str
) -> None:
    unclear = {"query": "vector(0.5)", "success": {"atMost": 0.1}, "failure": {"atLeast": 0.9}}
    metric = {"name": "quality", "threshold": unclear, "interval": "0.5s"}
    done = measured(kube, cluster, namespace, prometheus, {}, metric)
    assert (done["phase"], done["reason"]) == ("Paused", "Inconclusive"), done
    assert "quality cannot be concluded" in done["message"]
    assert done["effectiveWeight"] == 50
    control.resume(kube, namespace, "chat-v2")
    until(lambda: status(kube, namespace).get("resumeSeen"), "it is measured again")
    assert until_phase(kube, namespace, "Paused")["reason"] == "Inconclusive"


@pytest.mark.matrix
def test_an_outage_of_prometheus_holds_until_it_is_back(
    kube: Kube, cluster: Cluster, namespace: str, prometheus: str
) -> None:
    metric = {**ERRORS, "consecutiveErrorLimit": 1, "minimumSample": 60}
    steps = [{"setWeight": 50}, {"pause": {}}, {"analysis": {"deadline": "600s"}}]
    kube.apply(runtime())
    kube.apply(service(namespace, replicas=1))
    until_serving(kube, namespace, replicas=1)
    host = f"chat-{namespace}.example.com"
    until(lambda: not answers(cluster.gateway, host, 1)[1], "the gateway leads to v1")
    more: dict[str, Any] = {
        "metrics": [metric],
        "prometheus": {"url": prometheus, "timeout": "1s"},
        "arms": {"stable": "chat-v1-predictor", "canary": "chat-v2-predictor"},
    }
    with Load(cluster.gateway, host) as load:
        control.start(kube, rollout(namespace, steps=steps, **more))
        until_phase(kube, namespace, "Paused")
        path = kube.path("v1", "Pod", "prometheus", namespace)
        kube.request("DELETE", path, {"gracePeriodSeconds": 0})
        until(lambda: kube.get("v1", "Pod", "prometheus", namespace) is None, "Prometheus is gone")
        control.resume(kube, namespace, "chat-v2")
        until(lambda: status(kube, namespace).get("reason") == "Inconclusive", "it holds")
        assert status(kube, namespace)["effectiveWeight"] == 50
        start_prometheus(kube, namespace, SCRAPE.format(namespace=namespace))
        control.resume(kube, namespace, "chat-v2")
        done = until_phase(kube, namespace, "Healthy", "Degraded", seconds=90)
    assert done["reason"] == "Promoted", done
    assert not load.bad
