"""Whatever happens on the way (aborts, kills, outages, edits, lost nodes), a rollout ends whole: promoted or taken back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hat_serving.canary import control
from hat_serving.canary.backends.routes import GATEWAY_API
from hat_serving.canary.kube import Kube
from hat_serving.canary.spec import API_VERSION, KIND
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.helpers import KSERVE, answers, runtime, service, until, until_serving
from tests.cluster.rollouts import Load, rollout, status, until_phase

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("controller")]
Steps = list[dict[str, Any]]
WAY: Steps = [
    {"setWeight": 1}, {"pause": {}}, {"setWeight": 10}, {"pause": {}}, {"setWeight": 50}, {"pause": {}},
]  # fmt: skip
LEASE = ("coordination.k8s.io/v1", "Lease", "hatstack-canary-controller", "hatstack-system")


def at_step(kube: Kube, namespace: str, step: int, name: str = "chat-v2") -> bool:
    """Whether the rollout rests at a pause step, resuming it until it does."""
    now = status(kube, namespace, name)
    if now.get("phase") == "Paused" and now["step"] < step:
        control.resume(kube, namespace, name)
    return now.get("phase") == "Paused" and bool(now["step"] == step)


def whole(kube: Kube, cluster: Cluster, namespace: str, host: str, source: str) -> None:
    """One version answers, alone, and nothing is left of the other."""
    assert set(answers(cluster.gateway, host, 20)[0]) == {source}
    name = f"chat-{source.rpartition('/')[2]}-predictor"
    for api_version, kind in (("autoscaling/v2", "HorizontalPodAutoscaler"), (GATEWAY_API, "HTTPRoute")):
        found = {entry["metadata"]["name"] for entry in kube.list(api_version, kind, namespace)} - {"chat"}
        assert found == {name}, kind


@pytest.mark.matrix
def test_an_abort_at_every_step_gives_everything_back(
    kube: Kube, cluster: Cluster, namespace: str, stable: str
) -> None:
    with Load(cluster.gateway, stable) as load:
        for number, step in enumerate((1, 3, 5)):
            name = f"chat-{number}"
            control.start(kube, rollout(namespace, steps=WAY, name=name))
            until(lambda step=step, name=name: at_step(kube, namespace, step, name), f"step {step}")
            control.abort(kube, namespace, name)
            done = until_phase(kube, namespace, "Degraded", name=name)
            assert done["reason"] == "AbortRequested"
            whole(kube, cluster, namespace, stable, "s3://models/v1")
        control.start(kube, rollout(namespace, steps=[{"setWeight": 50}], name="chat-soak", soak="600s"))
        until(lambda: status(kube, namespace, "chat-soak").get("reason") == "Soaking", "the soak")
        assert status(kube, namespace, "chat-soak")["effectiveWeight"] == 100
        assert kube.get("apps/v1", "Deployment", "chat-v1-predictor", namespace) is not None
        control.abort(kube, namespace, "chat-soak")
        until_phase(kube, namespace, "Degraded", name="chat-soak")
    assert not load.bad
    whole(kube, cluster, namespace, stable, "s3://models/v1")


def test_the_old_version_is_warm_in_the_soak_and_gone_after_it(
    kube: Kube, cluster: Cluster, namespace: str, stable: str
) -> None:
    with Load(cluster.gateway, stable) as load:
        control.start(kube, rollout(namespace, steps=[{"setWeight": 50}], soak="3s"))
        until(lambda: status(kube, namespace).get("reason") == "Soaking", "the soak")
        old = kube.get("apps/v1", "Deployment", "chat-v1-predictor", namespace)
        assert old is not None
        assert old["status"]["availableReplicas"] >= 1
        assert set(answers(cluster.gateway, stable, 20)[0]) == {"s3://models/v2"}
        done = until_phase(kube, namespace, "Healthy", "Degraded")
    assert done["reason"] == "Promoted", done
    assert not load.bad
    until(lambda: kube.get("apps/v1", "Deployment", "chat-v1-predictor", namespace) is None, "the old version is gone")
    whole(kube, cluster, namespace, stable, "s3://models/v2")
    held = {entry["type"]: entry["status"] for entry in done["conditions"]}
    assert held == {"Promoted": "True", "SplitInForce": "True", "Held": "False"}


@pytest.mark.matrix
def test_the_controller_is_killed_at_every_step(kube: Kube, cluster: Cluster, namespace: str, stable: str) -> None:
    def kill() -> None:
        lease = kube.get(*LEASE)
        assert lease is not None
        leader = lease["spec"]["holderIdentity"]
        path = kube.path("v1", "Pod", leader, "hatstack-system")
        kube.request("DELETE", path, {"gracePeriodSeconds": 0})
        until(lambda: (kube.get(*LEASE) or {})["spec"]["holderIdentity"] not in ("", leader), "another leader")

    with Load(cluster.gateway, stable) as load:
        control.start(kube, rollout(namespace, steps=WAY, progressDeadline="120s", soak="2s"))
        kill()
        for step in (1, 3, 5):
            until(lambda step=step: at_step(kube, namespace, step), f"step {step}", 90)
            kill()
        control.resume(kube, namespace, "chat-v2")
        until(lambda: status(kube, namespace).get("phase") in ("Promoting", "Healthy"), "promotion")
        kill()
        done = until_phase(kube, namespace, "Healthy", "Degraded", seconds=90)
    assert done["reason"] == "Promoted", done
    assert not load.bad
    assert [window["weight"] for window in done["windows"]] == sorted(window["weight"] for window in done["windows"])
    whole(kube, cluster, namespace, stable, "s3://models/v2")


@pytest.mark.matrix
def test_the_api_server_goes_away_and_comes_back(kube: Kube, cluster: Cluster, namespace: str, stable: str) -> None:
    control.start(kube, rollout(namespace, steps=[{"setWeight": 50}, {"pause": {"duration": "4s"}}, {"setWeight": 60}]))
    until(lambda: status(kube, namespace).get("clockStarted"), "the clock runs")
    with Load(cluster.gateway, stable) as load:
        cluster.restart("kube-apiserver", 3.0)
        until(lambda: _answers_again(kube), "the API server answers")
        done = until_phase(kube, namespace, "Healthy", "Degraded", seconds=90)
    assert done["reason"] == "Promoted", done
    assert not load.bad
    whole(kube, cluster, namespace, stable, "s3://models/v2")


def _answers_again(kube: Kube) -> bool:
    from hat_serving.canary.errors import ClusterError

    try:
        return bool(kube.list("v1", "Namespace"))
    except ClusterError:
        return False


@pytest.mark.matrix
def test_weights_written_by_hand_are_noticed_and_put_right(
    kube: Kube, cluster: Cluster, namespace: str, stable: str
) -> None:
    control.start(kube, rollout(namespace, steps=[{"setWeight": 20}, {"pause": {"duration": "600s"}}]))
    until(lambda: status(kube, namespace).get("step") == 1 and status(kube, namespace).get("clockStarted"), "the clock")
    begun = status(kube, namespace)["clockStarted"]
    route = kube.get(GATEWAY_API, "HTTPRoute", "chat", namespace)
    assert route is not None
    refs = [{**ref, "weight": 50} for ref in route["spec"]["rules"][0]["backendRefs"]]
    change = [{"op": "replace", "path": "/spec/rules/0/backendRefs", "value": refs}]
    kube.patch(GATEWAY_API, "HTTPRoute", "chat", namespace, change)
    until(lambda: status(kube, namespace).get("clockStarted") not in (None, begun), "the clock starts anew")
    assert status(kube, namespace)["effectiveWeight"] == 20
    reasons = [event["reason"] for event in control.events(kube, namespace, "chat-v2")]
    assert "WaitingForSplit" in reasons[reasons.index("Progressing") if "Progressing" in reasons else 0 :]


def test_a_second_canary_on_one_target_waits_for_the_first(kube: Kube, namespace: str, stable: str) -> None:
    control.start(kube, rollout(namespace, steps=[{"setWeight": 50}, {"pause": {}}]))
    until_phase(kube, namespace, "Paused")
    canary = {"name": "v3", "storageUri": "s3://models/v3"}
    target = {"backend": "httproute", "inferenceService": "chat", "canary": canary}
    control.start(kube, rollout(namespace, steps=WAY, name="chat-v3", target=target))
    until(lambda: status(kube, namespace, "chat-v3").get("reason") == "PreflightFailed", "the second one is held")
    assert "rollout chat-v2 works on the same target" in status(kube, namespace, "chat-v3")["message"]
    assert status(kube, namespace)["phase"] == "Paused"
    found = kube.get(KSERVE, "InferenceService", "chat", namespace)
    assert found is not None
    assert [entry["predictor"]["name"] for entry in found["spec"]["canary"]] == ["v2"]
    kube.delete(API_VERSION, KIND, "chat-v3", namespace)


@pytest.fixture
def cordoned(kube: Kube) -> Iterator[list[str]]:
    """The GPU node takes no new pods once something is put into the list; it does again after the test."""
    nodes: list[str] = []
    yield nodes
    for name in nodes:
        kube.patch("v1", "Node", name, "", {"spec": {"unschedulable": None}})


@pytest.mark.matrix
def test_a_canary_whose_node_is_lost_is_taken_back(
    kube: Kube, cluster: Cluster, namespace: str, stable: str, cordoned: list[str]
) -> None:
    control.start(kube, rollout(namespace, steps=[{"setWeight": 50}, {"pause": {}}], progressDeadline="6s"))
    until_phase(kube, namespace, "Paused")
    kube.patch("v1", "Node", "h20-0", "", {"spec": {"unschedulable": True}})
    cordoned.append("h20-0")
    for entry in kube.list("v1", "Pod", namespace, labelSelector="app=isvc.chat-v2-predictor"):
        path = kube.path("v1", "Pod", entry["metadata"]["name"], namespace)
        kube.request("DELETE", path, {"gracePeriodSeconds": 0})
    done = until_phase(kube, namespace, "Degraded")
    assert done["reason"] == "ProgressDeadlineExceeded"
    assert "the canary is not ready" in done["message"]
    with Load(cluster.gateway, stable) as load:
        assert set(answers(cluster.gateway, stable, 20)[0]) == {"s3://models/v1"}
    assert not load.bad


def test_a_pod_that_never_gets_ready_never_gets_traffic(
    kube: Kube, cluster: Cluster, namespace: str, stable: str
) -> None:
    canary = {"name": "v2", "storageUri": "s3://models/v2", "patch": {"model": {"command": ["false"]}}}
    target = {"backend": "httproute", "inferenceService": "chat", "canary": canary}
    with Load(cluster.gateway, stable) as load:
        control.start(kube, rollout(namespace, steps=WAY, target=target, progressDeadline="5s"))
        done = until_phase(kube, namespace, "Degraded")
    assert done["reason"] == "CanaryNotReady"
    assert "0 of 1 replicas" in done["message"]
    assert set(load.good) == {"s3://models/v1"}
    assert not load.bad
    whole(kube, cluster, namespace, stable, "s3://models/v1")


def test_without_room_for_the_canary_nothing_begins(kube: Kube, cluster: Cluster, namespace: str) -> None:
    kube.apply(runtime("test-sglang-wide", gpus=5))
    kube.apply(service(namespace, replicas=1, serving="test-sglang-wide"))
    until_serving(kube, namespace, replicas=1)
    control.start(kube, rollout(namespace, steps=WAY))
    until(lambda: status(kube, namespace).get("reason") == "PreflightFailed", "preflight says no")
    said = status(kube, namespace)["message"]
    assert "1 of 1 pods with 5 nvidia.com/gpu find no place" in said
    assert "add 1 NVIDIA-H20 node" in said or "add 1 GPU node" in said
    assert "canary" not in (kube.get(KSERVE, "InferenceService", "chat", namespace) or {})["spec"]
    held = {entry["type"]: entry["status"] for entry in status(kube, namespace)["conditions"]}
    assert held["Held"] == "True"
