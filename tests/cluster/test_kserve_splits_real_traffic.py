"""KServe's own controllers run, its services answer through the gateway, and weights that we write are exact."""

from __future__ import annotations

import pytest

from hat_serving.canary.errors import ClusterError
from hat_serving.canary.kube import Kube
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.helpers import GATEWAY_API, KSERVE, answers, condition, exact, runtime, service, until

pytestmark = pytest.mark.cluster


def test_a_service_gets_ready_and_a_written_split_is_exact(kube: Kube, cluster: Cluster, namespace: str) -> None:
    kube.apply(runtime())
    kube.apply(service(namespace, canaries=()))
    until(lambda: condition(kube.get(KSERVE, "InferenceService", "chat", namespace), "Ready"), "the service is ready")
    kube.apply(service(namespace, canaries=(("v2", "s3://models/v2", 10, 1),)))
    until(
        lambda: condition(kube.get(KSERVE, "InferenceService", "chat", namespace), "CanaryPredictorReady"),
        "the canary is ready",
    )
    host = f"chat-{namespace}.example.com"
    route = kube.get(GATEWAY_API, "HTTPRoute", "chat", namespace)
    assert route is not None
    (stable,) = route["spec"]["rules"][0]["backendRefs"]
    refs = [{**stable, "weight": 90}, {**stable, "name": "chat-v2-predictor", "weight": 10}]
    change = [{"op": "replace", "path": "/spec/rules/0/backendRefs", "value": refs}]
    kube.patch(GATEWAY_API, "HTTPRoute", "chat", namespace, change)
    until(lambda: answers(cluster.gateway, host, 20)[0]["s3://models/v2"] == 2, "the gateway has the weights")
    assert exact(cluster.gateway, host, {"s3://models/v1": 180, "s3://models/v2": 20})


def test_kserves_webhook_refuses_what_it_cannot_split(kube: Kube, namespace: str) -> None:
    kube.apply(runtime())
    canaries = (("v2", "s3://models/v2", 60, 1), ("v3", "s3://models/v3", 50, 1))
    with pytest.raises(ClusterError, match="must be <= 100"):
        kube.create(service(namespace, canaries=canaries))
