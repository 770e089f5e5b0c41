"""Plain Services, LLMInferenceService groups and Knative: each backend reads what its own controllers really do."""

from __future__ import annotations

import collections
import copy
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import helm_python
import pytest
import urllib3

from hat_serving.canary import control, plan
from hat_serving.canary.backends import Reading, TrafficBackend, backend_for
from hat_serving.canary.backends.gateway import Gateway
from hat_serving.canary.backends.knative import STABLE, traffic_of
from hat_serving.canary.backends.llmisvc import LlmGroup
from hat_serving.canary.backends.routes import GATEWAY_API, not_in_force, percent_of
from hat_serving.canary.errors import BackendError
from hat_serving.canary.kube import Kube, Manifest
from hat_serving.canary.spec import LlmGroupTarget, read_spec
from tests.cluster.charts import folder, rights
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.helpers import KSERVE, answers, pod, runtime, service, state, until
from tests.cluster.rollouts import rollout, until_phase, written

LLM = "serving.kserve.io/v1alpha2"


def route(*rules: list[tuple[str, int | None]], **status: Any) -> Manifest:
    def refs(rule: list[tuple[str, int | None]]) -> list[dict[str, Any]]:
        return [{"name": name} | ({} if weight is None else {"weight": weight}) for name, weight in rule]

    spec = {"parentRefs": [{"name": "gateway"}], "rules": [{"backendRefs": refs(rule)} for rule in rules]}
    return {"metadata": {"name": "r", "generation": 3}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("rules", "percent"),
    [
        ([[("s", None)]], 0),
        ([[("s", 90), ("c", 10)]], 10),
        ([[("s", 9), ("c", 1)]], 10),
        ([[("s", 2), ("c", 1)]], None),
        ([[("s", 0), ("c", 0)]], None),
        ([[("c", 1)]], 100),
        ([[("s", 90), ("c", 10)], [("s", 1)]], None),
        ([[("s", 90), ("c", 10)], [("other", 1)]], 10),
        ([[("other", 1)]], 0),
        ([[("s", 40), ("other", 50), ("c", 10)]], 10),
    ],
)
def test_the_share_is_read_from_what_the_route_really_does(
    rules: list[list[tuple[str, int | None]]], percent: int | None
) -> None:
    assert percent_of(route(*rules), "s", "c")[0] == percent


def parent(**conditions: tuple[str, int]) -> dict[str, Any]:
    entries = [
        {"type": kind, "status": value, "observedGeneration": seen} for kind, (value, seen) in conditions.items()
    ]
    return {"conditions": entries}


def test_the_header_route_is_the_more_specific_twin_of_the_split_one() -> None:
    from hat_serving.canary.backends.arms import arm_route
    from hat_serving.canary.backends.routes import RouteSplit

    path = {"path": {"type": "PathPrefix", "value": "/v1"}}
    refs = [{"name": "old", "port": 80, "weight": 90}, {"name": "new", "port": 80, "weight": 10}]
    other = {"backendRefs": [{"name": "docs", "port": 80}]}
    base: dict[str, Any] = {
        "metadata": {"name": "chat", "namespace": "live", "uid": "u1"},
        "spec": {
            "parentRefs": [{"name": "g"}],
            "hostnames": ["chat.test"],
            "rules": [{"name": "main", "matches": [path], "timeouts": {"request": "9s"}, "backendRefs": refs}, other],
        },
    }
    made = arm_route(base, "chat-arms", RouteSplit(None, "live", "chat", "old", "new"))  # type: ignore[arg-type]
    assert made["spec"]["hostnames"] == ["chat.test"]
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u1"
    assert [rule["backendRefs"] for rule in made["spec"]["rules"]] == [
        [{"name": "new", "port": 80}],
        [{"name": "old", "port": 80}],
    ]
    for rule, arm in zip(made["spec"]["rules"], ("canary", "stable"), strict=True):
        header = {"name": "x-hatstack-arm", "type": "Exact", "value": arm}
        assert rule["matches"] == [{**path, "headers": [header]}]
        assert rule["timeouts"] == {"request": "9s"}
        assert "name" not in rule
    assert base["spec"]["rules"][0]["matches"] == [path], "the route beside it is left as it is"


@pytest.mark.parametrize(
    ("parents", "said"),
    [
        ([], "no gateway has taken"),
        ([parent(Accepted=("True", 3))], "has not seen"),
        ([parent(Accepted=("True", 3), ResolvedRefs=("True", 2))], "has not seen"),
        ([parent(Accepted=("True", 3), ResolvedRefs=("False", 3))], "not ResolvedRefs"),
        ([parent(Accepted=("True", 3), ResolvedRefs=("True", 3))], ""),
    ],
)
def test_a_route_is_in_force_only_once_its_gateway_says_so(parents: list[dict[str, Any]], said: str) -> None:
    found = not_in_force(route([("s", 1)], parents=parents))
    assert said in found if said else found == ""


def knative(percent: int, ready: str, generation: int = 2) -> Manifest:
    traffic = [
        {"revisionName": "chat-2", "latestRevision": True, "percent": percent},
        {"revisionName": "chat-1", "percent": 100 - percent},
    ]
    component = {"latestCreatedRevision": "chat-2", "latestReadyRevision": ready, "traffic": traffic}
    status = {"observedGeneration": 2, "components": {"predictor": component}}
    return {"metadata": {"generation": generation}, "status": status, "spec": {"predictor": {}}}


def test_knatives_share_is_that_of_the_newest_revision() -> None:
    assert traffic_of(knative(20, "chat-2")) == (20, True, "")
    assert traffic_of(knative(0, "chat-1"))[:2] == (0, False)
    assert traffic_of(knative(20, "chat-2", generation=3))[0] is None


class Admin:
    """A gateway's administrative side, kept in memory: what the interface asks for, and nothing else."""

    def __init__(self) -> None:
        self.percent, self.known, self.adopted = 0, False, False

    def split(self) -> Reading:
        return Reading(self.percent, self.known, promoted=self.adopted, retired=not self.known)

    def set_split(self, percent: int) -> None:
        self.percent = percent

    def start_arm(self) -> None:
        self.known = True

    def adopt(self) -> None:
        self.adopted = True

    def drop_arm(self) -> None:
        self.known = False


def test_the_gateway_backend_never_drops_an_arm_that_is_used() -> None:
    admin = Admin()
    backend: TrafficBackend = Gateway(admin)
    backend.prepare()
    backend.set_weight(20)
    with pytest.raises(BackendError, match="still gets traffic"):
        backend.retire()
    backend.set_weight(0)
    backend.retire()
    assert backend.read().retired


@pytest.mark.cluster
def test_plain_services_are_split_and_handed_over(kube: Kube, cluster: Cluster, namespace: str) -> None:
    for name in ("old", "new"):
        program = "python3 -m sglang.launch_server --host 0.0.0.0 --port 8080 --model-path"
        made = pod(
            name, namespace, [*program.split(), name], readinessProbe={"httpGet": {"path": "/health", "port": 8080}}
        )
        made["spec"]["containers"][0]["image"] = "lmsysorg/sglang:v0.5.19"
        made["metadata"]["labels"] = {"app": name}
        kube.create(made)
        spec = {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]}
        kube.create(
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
        )
        until(lambda name=name: state(kube, namespace, name)["main"].get("ready"), f"{name} is ready")  # type: ignore[misc]
    host = f"{namespace}.example.com"
    rules = [{"backendRefs": [{"name": "old", "port": 80}]}]
    spec = {
        "parentRefs": [{"name": "kserve-ingress-gateway", "namespace": "kserve"}],
        "hostnames": [host],
        "rules": rules,
    }
    kube.create(
        {
            "apiVersion": GATEWAY_API,
            "kind": "HTTPRoute",
            "metadata": {"name": "chat", "namespace": namespace},
            "spec": spec,
        }
    )
    target = {"backend": "httproute", "route": "chat", "stableService": "old", "canaryService": "new"}
    backend = backend_for(
        read_spec(rollout(namespace, steps=[{"setWeight": 5}], target=target)["spec"]), kube, namespace
    )
    until(
        lambda: backend.read().effective == 0 and backend.read().ready, "the route is in force and the canary is ready"
    )
    backend.set_weight(30)
    until(lambda: backend.read().effective == 30, "30 % in force")
    until(lambda: answers(cluster.gateway, host, 50)[0] == {"old": 35, "new": 15}, "the gateway splits 35 to 15")
    backend.set_weight(100)
    until(lambda: backend.read().effective == 100, "all of it")
    assert not backend.read().promoted
    backend.promote()
    until(lambda: backend.read().promoted, "the route leads to the new service alone")
    # A gateway reports a route a moment before its proxies follow it; that moment is the backend's `settle`.
    until(lambda: answers(cluster.gateway, host, 20) == ({"new": 20}, {}), "only the new service answers")


@pytest.mark.cluster
def test_knative_objects_fit_kserves_schema_and_can_be_taken_back(kube: Kube, namespace: str) -> None:
    """Knative's controllers are not here; what is written is checked by the API server and KServe's webhooks."""
    kube.apply(runtime())
    stable = service(namespace)
    stable["metadata"]["annotations"] = {"serving.kserve.io/deploymentMode": "Knative"}
    stable["spec"]["predictor"].pop("name")
    before = kube.create(stable)["spec"]["predictor"]
    target = {
        "backend": "knative",
        "inferenceService": "chat",
        "canary": {"name": "v2", "storageUri": "s3://models/v2"},
    }
    backend = backend_for(
        read_spec(rollout(namespace, steps=[{"setWeight": 5}], target=target)["spec"]), kube, namespace
    )
    until(lambda: written(backend.prepare), "the new revision is written")
    until(lambda: written(lambda: backend.set_weight(20)), "20 % is written")
    found = kube.get(KSERVE, "InferenceService", "chat", namespace)
    assert found is not None
    assert found["spec"]["predictor"]["canaryTrafficPercent"] == 20
    assert found["spec"]["predictor"]["model"]["storageUri"] == "s3://models/v2"
    assert json.loads(found["metadata"]["annotations"][STABLE]) == before
    assert backend.read().effective is None, "nothing is in force before Knative says so"
    with pytest.raises(BackendError, match="still gets traffic"):
        backend.retire()
    status = copy.deepcopy(knative(0, "chat-2")["status"])
    status["observedGeneration"] = found["metadata"]["generation"]
    kube.patch(KSERVE, "InferenceService", "chat", namespace, {"status": status}, status=True)
    until(lambda: written(backend.retire), "the stable predictor is back")
    restored = kube.get(KSERVE, "InferenceService", "chat", namespace)
    assert restored is not None
    assert restored["spec"]["predictor"] == before
    assert STABLE not in restored["metadata"]["annotations"]


@pytest.fixture(scope="module")
def llm_cluster() -> Iterator[Cluster]:
    """A cluster of its own, because LLMInferenceServices double the API server's memory."""
    running = Cluster.start(llm=True, backoff=0.2)
    yield running
    running.stop()


def member(name: str, weight: int) -> Manifest:
    probe = {"httpGet": {"path": "/health", "port": 8000, "scheme": "HTTP"}}
    program = ["python3", "-m", "sglang.launch_server"]
    container = {
        "name": "main",
        "image": "lmsysorg/sglang:v0.5.19",
        "command": program,
        "args": ["--model-path", name, "--host", "0.0.0.0", "--port", "8000", "--served-model-name", "chat"],
        "readinessProbe": probe,
        "livenessProbe": probe,
        "startupProbe": probe,
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    return {
        "apiVersion": LLM,
        "kind": "LLMInferenceService",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "model": {"uri": f"s3://models/{name}", "name": "chat"},
            "replicas": 1,
            "router": {"route": {"group": "chat", "weight": weight}, "gateway": {}},
            "template": {"containers": [container]},
        },
    }


@pytest.mark.cluster
@pytest.mark.matrix
def test_a_group_of_llm_services_is_split_promoted_and_taken_back(llm_cluster: Cluster) -> None:
    kube = Kube.from_kubeconfig(llm_cluster.kubeconfig)
    for made in (member("llm-a", 100), member("llm-b", 0)):
        kube.apply(made)
    backend = LlmGroup(kube, "default", LlmGroupTarget(stable="llm-a", canary_member="llm-b"))

    until(lambda: backend.read().ready, "both members are ready", 120)
    until(lambda: settled(backend, 0), "the canary gets nothing")
    backend.set_weight(20)
    until(lambda: settled(backend, 20), "20 % in every member's route")
    assert by_path(llm_cluster.gateway, 50) == {"llm-a": 40, "llm-b": 10}
    backend.set_weight(100)
    until(lambda: settled(backend, 100), "all of it")
    until(lambda: after(backend.promote, backend).promoted, "the old member has left and stopped")
    assert backend.read().ready
    assert by_path(llm_cluster.gateway, 20) == {"llm-b": 20}
    back = LlmGroup(kube, "default", LlmGroupTarget(stable="llm-b", canary_member="llm-a"))
    back.prepare()
    until(lambda: back.read().ready and settled(back, 0), "the old member is back without traffic")
    until(lambda: after(back.retire, back).retired, "and goes again")
    assert by_path(llm_cluster.gateway, 20) == {"llm-b": 20}


@pytest.mark.cluster
@pytest.mark.matrix
def test_a_rollout_hands_a_group_over_to_a_member_of_the_chart(llm_cluster: Cluster) -> None:
    """Both members are installed by Helm where only restricted pods are admitted, and the chart's controller decides."""
    kube, namespace = Kube.from_kubeconfig(llm_cluster.kubeconfig), "members"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    for name in (namespace, "hatstack-system"):
        kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    install(llm_cluster, "hatstack", "hatstack", "hatstack-system", CONTROLLER)
    for name, weight in (("llm-old", 100), ("llm-new", 0)):
        chosen = {
            "engine": {
                "kind": "LLMInferenceService",
                "name": name,
                "group": {"name": "chat", "model": "chat", "weight": weight},
                "model": {"storageUri": f"s3://models/{name}"},
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
                "preStopSeconds": 1,
            },
            "gateway": {"enabled": False},
        }
        install(llm_cluster, "hatstack-serving", name, namespace, chosen)
    until(
        lambda: by_path(llm_cluster.gateway, 5, namespace) == {"s3://models/llm-old": 5}, "the first member serves", 120
    )
    target = plan.group_target("llm-old", "llm-new")
    control.start(kube, rollout(namespace, steps=[{"setWeight": 50}], target=target, progressDeadline="180s"))
    done = until_phase(kube, namespace, "Healthy", "Degraded", seconds=240)
    assert done["reason"] == "Promoted", done
    assert by_path(llm_cluster.gateway, 20, namespace) == {"s3://models/llm-new": 20}
    asked = [entry for entry in llm_cluster.audit() if entry["user"]["username"].endswith(":hatstack-canary")]
    used = {entry["verb"] for entry in asked if entry.get("objectRef", {}).get("resource") == "llminferenceservices"}
    assert used == {verb for _, resource, verb in rights(kube, "canary") if resource == "llminferenceservices"}


CONTROLLER = {"console": {"enabled": False}, "controller": {"interval": 0.5, "leaseSeconds": 3, "replicas": 1}}


def install(cluster: Cluster, chart: str, name: str, namespace: str, chosen: dict[str, Any]) -> None:
    with helm_python.Config(kubeconfig_path=cluster.kubeconfig, namespace=namespace) as helm:
        helm.install(folder(chart), name, chosen, namespace=namespace)


def settled(backend: LlmGroup, percent: int) -> bool:
    """The split holds for two seconds; a group that oscillates shows another one within that time."""
    end = time.monotonic() + 2
    while time.monotonic() < end:
        if backend.read().effective != percent:
            return False
    return True


def after(verb: Callable[[], None], backend: LlmGroup) -> Reading:
    """What is in force after one more try of a verb, as the driver tries it at every look."""
    written(verb)
    return backend.read()


def by_path(gateway: str, count: int, namespace: str = "default") -> collections.Counter[str]:
    """Who answers on the group's shared path."""
    found: collections.Counter[str] = collections.Counter()
    for _ in range(count):
        url = f"{gateway}/publishers/{namespace}/models/chat/v1/chat/completions"
        answer = urllib3.request("POST", url, body=b"{}", timeout=10, retries=False)
        found[json.loads(answer.data)["source"] if answer.status == 200 else str(answer.status)] += 1
    return found
