"""Rollouts on a real API server with KServe's controllers and real traffic: no request is lost, the way back works."""

from __future__ import annotations

from typing import Any

import pytest

from hat_serving.canary import control
from hat_serving.canary.backends.routes import GATEWAY_API
from hat_serving.canary.kube import Kube
from hat_serving.canary.spec import API_VERSION, KIND
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.helpers import KSERVE, answers, exact, until
from tests.cluster.rollouts import Load, rollout, status, until_phase

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("controller")]
QUICK: list[dict[str, Any]] = [
    {"setWeight": 10},
    {"pause": {"duration": "1s"}},
    {"setWeight": 50},
    {"pause": {"duration": "1s"}},
]
LONG: list[dict[str, Any]] = [{"setWeight": 50}, {"pause": {"duration": "600s"}}]


def test_a_release_is_promoted_and_no_request_fails(kube: Kube, cluster: Cluster, namespace: str, stable: str) -> None:
    with Load(cluster.gateway, stable) as load:
        control.start(kube, rollout(namespace, steps=QUICK))
        done = until_phase(kube, namespace, "Healthy", "Degraded")
    assert done["phase"] == "Healthy", done
    assert not load.bad
    assert load.good["s3://models/v2"] > 0
    assert set(answers(cluster.gateway, stable, 20)[0]) == {"s3://models/v2"}
    assert [window["weight"] for window in done["windows"]][:1] == [10]
    found = kube.get(KSERVE, "InferenceService", "chat", namespace)
    assert found is not None
    assert found["spec"]["predictor"]["name"] == "v2"
    assert "canary" not in found["spec"]
    names = {entry["metadata"]["name"] for entry in kube.list(GATEWAY_API, "HTTPRoute", namespace)}
    assert names == {"chat", "chat-v2-predictor"}
    scalers = {entry["metadata"]["name"] for entry in kube.list("autoscaling/v2", "HorizontalPodAutoscaler", namespace)}
    assert scalers == {"chat-v2-predictor"}


def test_an_abort_gives_all_traffic_back_and_leaves_nothing(
    kube: Kube, cluster: Cluster, namespace: str, stable: str
) -> None:
    control.start(kube, rollout(namespace, steps=[{"setWeight": 50}, {"pause": {}}]))
    until_phase(kube, namespace, "Paused")
    assert exact(cluster.gateway, stable, {"s3://models/v1": 10, "s3://models/v2": 10})
    for arm, source in (("stable", "s3://models/v1"), ("canary", "s3://models/v2")):
        assert set(answers(cluster.gateway, stable, 10, **{"x-hatstack-arm": arm})[0]) == {source}
    with Load(cluster.gateway, stable) as load:
        assert control.abort(kube, namespace, "chat-v2")
        done = until_phase(kube, namespace, "Degraded")
        answers(cluster.gateway, stable, 20)
    assert not load.bad
    assert done["reason"] == "AbortRequested"
    assert kube.get(GATEWAY_API, "HTTPRoute", "chat-arms", namespace) is None
    assert set(answers(cluster.gateway, stable, 10, **{"x-hatstack-arm": "canary"})[0]) == {"s3://models/v1"}
    assert set(answers(cluster.gateway, stable, 20)[0]) == {"s3://models/v1"}
    assert kube.get("apps/v1", "Deployment", "chat-v2-predictor", namespace) is None
    scalers = {entry["metadata"]["name"] for entry in kube.list("autoscaling/v2", "HorizontalPodAutoscaler", namespace)}
    assert scalers == {"chat-v1-predictor"}


@pytest.mark.matrix
def test_deleting_a_rollout_aborts_it_first(kube: Kube, cluster: Cluster, namespace: str, stable: str) -> None:
    control.start(kube, rollout(namespace, steps=[{"setWeight": 50}, {"pause": {}}]))
    until_phase(kube, namespace, "Paused")
    kube.delete(API_VERSION, KIND, "chat-v2", namespace)
    until(lambda: kube.get(API_VERSION, KIND, "chat-v2", namespace) is None, "the rollout is gone")
    assert set(answers(cluster.gateway, stable, 20)[0]) == {"s3://models/v1"}
    assert kube.get("apps/v1", "Deployment", "chat-v2-predictor", namespace) is None


def test_weights_that_kserve_wipes_come_back_and_the_clock_starts_anew(
    kube: Kube, cluster: Cluster, namespace: str, stable: str
) -> None:
    control.start(kube, rollout(namespace, steps=LONG))
    until(
        lambda: status(kube, namespace).get("step") == 1 and status(kube, namespace).get("clockStarted"),
        "the clock runs",
    )
    begun = status(kube, namespace)["clockStarted"]
    kube.patch(KSERVE, "InferenceService", "chat", namespace, {"metadata": {"annotations": {"changed": "yes"}}})
    until(lambda: status(kube, namespace).get("clockStarted") not in (None, begun), "the clock starts anew")
    # The gateway starts its turn anew whenever the route changes, so the last few requests may tip over.
    assert answers(cluster.gateway, stable, 40)[0]["s3://models/v2"] in range(18, 23)


def test_another_replica_takes_over_when_the_leader_is_killed(
    kube: Kube, cluster: Cluster, namespace: str, stable: str
) -> None:
    control.start(kube, rollout(namespace, steps=[{"setWeight": 20}, {"pause": {}}]))
    until_phase(kube, namespace, "Paused")
    lease = kube.get("coordination.k8s.io/v1", "Lease", "hatstack-canary-controller", "hatstack-system")
    assert lease is not None
    leader = lease["spec"]["holderIdentity"]
    kube.request("DELETE", kube.path("v1", "Pod", leader, "hatstack-system"), {"gracePeriodSeconds": 0})

    def other() -> bool:
        found = kube.get("coordination.k8s.io/v1", "Lease", "hatstack-canary-controller", "hatstack-system")
        return found is not None and found["spec"]["holderIdentity"] not in ("", leader)

    until(other, "another leader")
    control.resume(kube, namespace, "chat-v2")
    assert until_phase(kube, namespace, "Healthy", "Degraded")["phase"] == "Healthy"


def test_kserves_own_canary_is_refused_where_it_splits_nothing(kube: Kube, namespace: str, stable: str) -> None:
    canary = {"name": "v2", "storageUri": "s3://models/v2"}
    target = {"backend": "isvc-canary", "inferenceService": "chat", "canary": canary}
    control.start(kube, rollout(namespace, steps=QUICK, target=target))
    until(lambda: status(kube, namespace).get("reason") == "PreflightFailed", "preflight says no")
    said = status(kube, namespace)["message"]
    assert "sends them no traffic" in said
    assert "use backend httproute" in said
    assert "canary" not in (kube.get(KSERVE, "InferenceService", "chat", namespace) or {})["spec"]


@pytest.mark.matrix
def test_a_change_of_arguments_alone_is_promoted_by_rewriting(
    kube: Kube, cluster: Cluster, namespace: str, stable: str
) -> None:
    patch = {"model": {"args": ["--served-model-name=faster"]}}
    canary = {"name": "fast", "storageUri": "s3://models/v1", "patch": patch}
    target = {"backend": "httproute", "inferenceService": "chat", "canary": canary}
    with Load(cluster.gateway, stable) as load:
        control.start(kube, rollout(namespace, steps=QUICK[2:], target=target))
        done = until_phase(kube, namespace, "Healthy", "Degraded")
    assert done["phase"] == "Healthy", done
    assert not load.bad
    found = kube.get(KSERVE, "InferenceService", "chat", namespace)
    assert found is not None
    assert found["spec"]["predictor"]["name"] == "v1"
    assert found["spec"]["predictor"]["model"]["args"] == patch["model"]["args"]
    assert kube.get("apps/v1", "Deployment", "chat-fast-predictor", namespace) is None
