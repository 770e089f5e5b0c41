"""Charts install, upgrade and roll back by Helm on a real API server, in namespaces that admit only restricted pods."""

from __future__ import annotations

import json
from typing import Any

import helm_python
import pytest
import urllib3

from hat_serving.canary.errors import ClusterError
from hat_serving.canary.kube import Kube
from tests.cluster.charts import OPERATOR, folder, pods, render, rights, scenarios, values
from tests.cluster.controlplane.cluster import REPOSITORY, Cluster
from tests.cluster.helpers import answers, state, until, until_serving

pytestmark = pytest.mark.cluster
RESTRICTED = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}


@pytest.fixture
def restricted(kube: Kube, namespace: str) -> str:
    kube.patch("v1", "Namespace", namespace, "", RESTRICTED)
    return namespace


@pytest.mark.parametrize(("chart", "scenario"), scenarios())
def test_the_api_server_takes_every_object_of_every_scenario(
    kube: Kube, restricted: str, chart: str, scenario: str
) -> None:
    for name in ("live", "live-zh"):
        kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    kube.warnings.clear()
    manifests = render(chart, values(chart, scenario), namespace=restricted)
    hooks = [(entry["metadata"]["name"], entry) for entry in manifests if entry["kind"] == "Pod"]
    for entry in manifests:
        # Route groups have a cluster of their own, and their chart a test there (test_other_backends).
        if entry["apiVersion"] != OPERATOR and entry["kind"] not in ("Pod", "LLMInferenceService"):
            kube.apply(entry, dry_run=True)
    for name, template in (*pods(manifests), *hooks):
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": template["spec"]["serviceAccountName"], "namespace": restricted},
        }
        kube.apply(account)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            **template,
            "metadata": {**template["metadata"], "name": name, "namespace": restricted},
        }
        kube.create(pod, dry_run=True)
    assert kube.warnings == []


def test_the_controller_may_do_what_it_does_and_nothing_else(kube: Kube, controller: str) -> None:
    token = kube.token(controller, "hatstack-canary")
    theirs = kube.with_token(token)

    def may(verb: str, group: str, resource: str, namespace: str = "default", name: str = "") -> bool:
        attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {"name": ""},
            "spec": {"resourceAttributes": attributes},
        }
        answer = theirs.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    assert may("patch", "gateway.networking.k8s.io", "httproutes")
    assert may("patch", "serving.kserve.io", "inferenceservices")
    assert may("get", "", "configmaps", "kserve", "inferenceservice-config")
    assert may("patch", "coordination.k8s.io", "leases", controller, "hatstack-canary-controller")
    assert not may("get", "", "configmaps", "kserve", "other")
    assert not may("patch", "coordination.k8s.io", "leases", controller, "other")
    for verb, group, resource in (
        ("get", "", "secrets"),
        ("create", "", "pods"),
        ("delete", "serving.kserve.io", "inferenceservices"),
        ("create", "serving.kserve.io", "inferenceservices"),
        ("patch", "apps", "deployments"),
        ("delete", "hatstack.dev", "canaryrollouts"),
        ("create", "rbac.authorization.k8s.io", "clusterroles"),
    ):
        assert not may(verb, group, resource), f"{verb} {resource}"
    with pytest.raises(ClusterError, match="forbidden"):
        theirs.list("v1", "Secret", "kserve")


def test_every_verb_of_the_controller_is_needed_and_none_is_missing(
    kube: Kube, cluster: Cluster, namespace: str, controller: str, stable: str
) -> None:
    """Rollouts that use all of it, and the API server's own audit of what was asked for."""
    from hat_serving.canary import control
    from tests.cluster.rollouts import rollout, until_phase

    control.start(kube, rollout(namespace, steps=[{"setWeight": 50}]))
    assert until_phase(kube, namespace, "Healthy", "Degraded")["reason"] == "Promoted"
    rules = [{"backendRefs": [{"name": "chat-v2-predictor", "port": 80}]}]
    route = {"parentRefs": [{"name": "kserve-ingress-gateway", "namespace": "kserve"}], "hostnames": ["plain.test"]}
    made = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute"}
    kube.create({**made, "metadata": {"name": "plain", "namespace": namespace}, "spec": {**route, "rules": rules}})
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "next", "namespace": namespace}}
    kube.create(
        {
            **service,
            "spec": {"selector": {"app": "isvc.chat-v2-predictor"}, "ports": [{"port": 80, "targetPort": 8080}]},
        }
    )
    target = {"backend": "httproute", "route": "plain", "stableService": "chat-v2-predictor", "canaryService": "next"}
    control.start(kube, rollout(namespace, name="plain", steps=[{"setWeight": 50}], target=target))
    assert until_phase(kube, namespace, "Healthy", "Degraded", name="plain")["reason"] == "Promoted"
    used, refused = set(), []
    for entry in cluster.audit():
        if not entry["user"]["username"].endswith(":hatstack-canary") or "objectRef" not in entry:
            continue
        about = entry["objectRef"]
        resource = about["resource"] + (f"/{about['subresource']}" if about.get("subresource") else "")
        used.add((about.get("apiGroup", ""), resource, entry["verb"]))
        if entry.get("responseStatus", {}).get("code") == 403 and about.get("namespace") in (
            namespace,
            controller,
            None,
        ):
            refused.append((resource, entry["verb"]))
    assert refused == []
    given = {right for right in rights(kube, "canary") if right[1] != "llminferenceservices"}
    assert given - used == set(), "rights that nothing needs"


@pytest.mark.matrix
def test_two_appliers_do_not_fight(kube: Kube, namespace: str, controller: str, stable: str) -> None:
    """GitOps applies the same InferenceService again and again while a rollout works on it."""
    from hat_serving.canary import control
    from hat_serving.canary.backends.routes import GATEWAY_API
    from tests.cluster.helpers import KSERVE, service
    from tests.cluster.rollouts import rollout, status, until_phase

    gitops = Kube(kube._client, manager="gitops")
    gitops.apply(service(namespace), force=True)
    control.start(kube, rollout(namespace, steps=[{"setWeight": 50}, {"pause": {}}]))
    until_phase(kube, namespace, "Paused")
    begun = status(kube, namespace)["clockStarted"]
    for _ in range(3):
        gitops.apply(service(namespace), force=False)
    found = kube.get(KSERVE, "InferenceService", "chat", namespace)
    assert found is not None
    assert [entry["predictor"]["name"] for entry in found["spec"]["canary"]] == ["v2"], "the canary is not theirs"
    weights = {
        ref["name"]: ref["weight"]
        for ref in (kube.get(GATEWAY_API, "HTTPRoute", "chat", namespace) or {})["spec"]["rules"][0]["backendRefs"]
    }
    assert weights == {"chat-v1-predictor": 50, "chat-v2-predictor": 50}
    assert status(kube, namespace)["clockStarted"] == begun, "and the clock ran on"
    control.resume(kube, namespace, "chat-v2")
    assert until_phase(kube, namespace, "Healthy", "Degraded")["phase"] == "Healthy"
    with pytest.raises(ClusterError, match="conflict") as refused:
        gitops.apply(service(namespace), force=False)
    assert refused.value.code == 409
    assert '"hatstack"' in refused.value.message, "the conflict names who promoted"
    gitops.apply(service(namespace, stable="v2", uri="s3://models/v2"), force=False)


def test_serving_installs_upgrades_and_rolls_back(kube: Kube, cluster: Cluster, restricted: str) -> None:
    chosen: dict[str, Any] = {
        "release": "r1",
        "engine": {
            "model": {"storageUri": "s3://models/r1"},
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
            "preStopSeconds": 1,
        },
        "gateway": {"enabled": False},
    }
    with helm_python.Config(kubeconfig_path=cluster.kubeconfig, namespace=restricted) as helm:
        helm.install(folder("hatstack-serving"), "live", chosen, namespace=restricted)
        until_serving(kube, restricted, replicas=1)
        host = f"chat-{restricted}.example.com"
        until(lambda: answers(cluster.gateway, host, 1)[0]["s3://models/r1"], "the model answers through the gateway")
        (pod,) = kube.list("v1", "Pod", restricted)
        assert pod["spec"]["nodeName"] == "h20-0"
        assert {container["name"] for container in pod["spec"]["initContainers"]} == {"storage-initializer"}
        assert state(kube, restricted, pod["metadata"]["name"])["main"]["restartCount"] == 0
        upgraded = {**chosen, "release": "r2", "engine": {**chosen["engine"], "args": ["--context-length=4096"]}}
        helm.upgrade(folder("hatstack-serving"), "live", upgraded, namespace=restricted)

        def argument() -> bool:
            live = [p for p in kube.list("v1", "Pod", restricted) if not p["metadata"].get("deletionTimestamp")]
            return len(live) == 1 and "--context-length=4096" in live[0]["spec"]["containers"][0]["args"]

        until(argument, "the upgraded pod alone")
        helm.rollback("live", version=1)
        until(lambda: not argument(), "the earlier arguments")
        until_serving(kube, restricted, replicas=1)
        assert not answers(cluster.gateway, host, 5)[1]
        assert len(helm.history("live")) == 3
        helm.uninstall("live")
    until(lambda: not kube.list("serving.kserve.io/v1beta1", "InferenceService", restricted), "nothing is left")


@pytest.mark.matrix
def test_the_console_serves_from_its_volume_and_keeps_it(kube: Kube, cluster: Cluster, restricted: str) -> None:
    chosen: dict[str, Any] = {
        "crds": {"install": False},
        "rbac": {"create": False},
        "controller": {"enabled": False},
        "console": {
            "behindTls": False,
            "httpRoute": {
                "enabled": True,
                "hostnames": [f"{restricted}.example.com"],
                "parentRefs": [{"name": "kserve-ingress-gateway", "namespace": "kserve"}],
            },
        },
    }
    with helm_python.Config(kubeconfig_path=cluster.kubeconfig, namespace=restricted) as helm:
        helm.install(folder("hatstack"), "live", chosen, namespace=restricted)

    def served() -> bool:
        """A request on its way to the pod that is just leaving may get no answer at all."""
        url, headers = f"{cluster.gateway}/readyz", {"Host": f"{restricted}.example.com"}
        try:
            return bool(urllib3.request("GET", url, headers=headers, timeout=5, retries=False).status == 200)
        except urllib3.exceptions.HTTPError:
            return False

    until(served, "the console answers through the gateway", 120)
    with helm_python.Config(kubeconfig_path=cluster.kubeconfig, namespace=restricted) as helm:
        told = helm.test("live", logs=True, timeout=60)
    assert "/readyz 200" in told["logs"], told
    (before,) = kube.list("v1", "Pod", restricted)
    (claim,) = kube.list("v1", "PersistentVolumeClaim", restricted)
    assert claim["status"]["phase"] == "Bound"
    database = cluster.folder / "claims" / f"{restricted}_{claim['metadata']['name']}" / "registry.db"
    assert database.stat().st_size > 0
    kube.delete("v1", "Pod", before["metadata"]["name"], restricted)
    until(lambda: kube.get("v1", "Pod", before["metadata"]["name"], restricted) is None, "the first pod is gone")
    until(served, "the next pod answers", 120)
    assert database.exists()


def test_the_gateway_serves_a_harness_folder(kube: Kube, cluster: Cluster, restricted: str) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hatstack-pseudonym", "namespace": restricted}}
    kube.create({**secret, "stringData": {"key": "0123456789abcdef0123456789abcdef"}})
    chosen: dict[str, Any] = {
        "engine": {"enabled": False},
        "gateway": {
            "engineUrl": f"http://chat-v1-predictor.{restricted}.svc",
            "harnesses": {"live": str(REPOSITORY / "harness-registry" / "harnesses" / "live-commerce")},
            "replicas": 1,
            "databaseSecretName": "",
            "httpRoute": {"hostnames": [f"{restricted}.example.com"]},
        },
    }
    with helm_python.Config(kubeconfig_path=cluster.kubeconfig, namespace=restricted) as helm:
        helm.install(folder("hatstack-serving"), "live", chosen, namespace=restricted)

    def answered() -> urllib3.BaseHTTPResponse | None:
        """A turn needs an engine, which is not there: the gateway itself must say so, in the shape that clients expect."""
        body = json.dumps({"model": "live", "messages": [{"role": "user", "content": "hello"}]}).encode()
        headers = {"Host": f"{restricted}.example.com", "Content-Type": "application/json"}
        url = f"{cluster.gateway}/v1/chat/completions"
        answer = urllib3.request("POST", url, body=body, headers=headers, timeout=30, retries=False)
        return answer if answer.headers.get("Content-Type", "").startswith("application/json") else None

    answer = until(answered, "the gateway answers in JSON", 120)
    said = json.loads(answer.data)
    assert "choices" in said or "error" in said, said


def test_a_long_queue_asks_keda_for_engines(kube: Kube, cluster: Cluster, restricted: str) -> None:
    """KServe's own controller makes the ScaledObject of the chart's values, and KEDA's definition takes it."""
    chosen: dict[str, Any] = {
        "engine": {
            "model": {"storageUri": "s3://models/v1"},
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
            "autoscaling": {"enabled": True, "maxReplicas": 3, "queueLength": 5},
        },
        "gateway": {"enabled": False},
    }
    with helm_python.Config(kubeconfig_path=cluster.kubeconfig, namespace=restricted) as helm:
        helm.install(folder("hatstack-serving"), "live", chosen, namespace=restricted)
    keda = "keda.sh/v1alpha1"
    made = until(lambda: kube.get(keda, "ScaledObject", "chat-v1-predictor", restricted), "KServe asks KEDA")
    assert (made["spec"]["minReplicaCount"], made["spec"]["maxReplicaCount"]) == (1, 3)
    (trigger,) = made["spec"]["triggers"]
    assert trigger["type"] == "prometheus"
    assert trigger["metadata"]["threshold"] == "5"
    assert 'predictor="chat-v1-predictor"' in trigger["metadata"]["query"]
    assert kube.get("autoscaling/v2", "HorizontalPodAutoscaler", "chat-v1-predictor", restricted) is None
    wrong = {"apiVersion": keda, "kind": "ScaledObject", "metadata": {"name": "wrong", "namespace": restricted}}
    with pytest.raises(ClusterError, match="scaleTargetRef"):
        kube.create({**wrong, "spec": {"triggers": made["spec"]["triggers"]}})
