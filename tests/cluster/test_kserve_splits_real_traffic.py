"""KServe's own controllers run, its services answer through the gateway, and weights that we write are exact."""

from __future__ import annotations

import pytest

from hat_serving.canary.backends import backend_for
from hat_serving.canary.backends.routes import RouteSplit
from hat_serving.canary.errors import BackendError, ClusterError
from hat_serving.canary.kube import Kube
from hat_serving.canary.spec import read_spec
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.helpers import GATEWAY_API, KSERVE, answers, condition, exact, runtime, service, until
from tests.cluster.rollouts import rollout, written

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


@pytest.mark.parametrize("end", ["promoted", "taken back"])
def test_kserves_own_canary_is_written_by_its_schema_and_read_from_the_route(
    kube: Kube, namespace: str, stable: str, end: str
) -> None:
    """KServe 0.21 turns the percentage into weights and 0.20 does not: the test writes them in its place."""
    canary = {"name": "v2", "storageUri": "s3://models/v2"}
    target = {"backend": "isvc-canary", "inferenceService": "chat", "canary": canary}
    spec = read_spec(rollout(namespace, steps=[{"setWeight": 20}], target=target)["spec"])
    backend = backend_for(spec, kube, namespace)
    split = RouteSplit(kube, namespace, "chat", "chat-v1-predictor", "chat-v2-predictor")

    def weigh(percent: int) -> None:
        until(lambda: written(lambda: backend.set_weight(percent)), f"{percent} % is written")
        (entry,) = (kube.get(KSERVE, "InferenceService", "chat", namespace) or {})["spec"]["canary"]
        assert entry["trafficPercent"] == percent

    until(lambda: written(backend.prepare), "the entry is written")
    until(lambda: backend.read().ready, "the canary is ready")
    weigh(20)
    assert backend.read().effective == 0, "a wish splits nothing"
    until(lambda: written(lambda: split.write(20)), "the route is weighed")
    until(lambda: backend.read().effective == 20, "20 % in force")
    with pytest.raises(BackendError, match="still gets traffic"):
        backend.retire()
    last = 100 if end == "promoted" else 0
    weigh(last)
    until(lambda: written(lambda: split.write(last)), "the route is weighed")
    until(lambda: backend.read().effective == last, f"{last} % in force")
    verb = backend.promote if last else backend.retire
    until(lambda: written(verb) and (backend.read().promoted if last else backend.read().retired), end)
    found = kube.get(KSERVE, "InferenceService", "chat", namespace)
    assert found is not None
    assert found["spec"]["predictor"]["name"] == ("v2" if last else "v1")
    assert "canary" not in found["spec"]
