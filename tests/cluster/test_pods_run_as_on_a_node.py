"""Pods are treated as on a node: init containers, restarts, probes, volumes, Jobs, graceful stop, the network."""

from __future__ import annotations

import pytest

from hat_serving.canary.kube import Kube
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.helpers import pod, state, until

pytestmark = pytest.mark.cluster


def test_an_init_container_runs_first_and_shares_a_volume(kube: Kube, cluster: Cluster, namespace: str) -> None:
    volume = [{"name": "shared", "mountPath": "/shared"}]
    first = {
        "name": "first",
        "image": "none",
        "command": ["sh", "-c", "echo made > /shared/file"],
        "volumeMounts": volume,
    }
    kube.create(
        pod(
            "a",
            namespace,
            ["sh", "-c", "cat /shared/file; hostname"],
            volumeMounts=volume,
            initContainers=[first],
            volumes=[{"name": "shared", "emptyDir": {}}],
            restartPolicy="Never",
        )
    )
    until(lambda: state(kube, namespace, "a").get("phase") == "Succeeded", "the pod succeeds")
    assert cluster.pod_log(namespace, "a", "main") == "made\na\n"


def test_a_crashing_container_backs_off_and_counts_restarts(kube: Kube, namespace: str) -> None:
    kube.create(pod("a", namespace, ["sh", "-c", "exit 3"]))
    main = until(
        lambda: (
            (s := state(kube, namespace, "a")["main"]).get("restartCount", 0) >= 3 and "waiting" in s["state"] and s
        ),
        "three restarts",
    )
    assert main["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert main["lastState"]["terminated"]["exitCode"] == 3


def test_a_container_waits_for_its_configmap_and_sees_secrets(kube: Kube, cluster: Cluster, namespace: str) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": namespace},
        "stringData": {"key": "hidden"},
    }
    kube.create(secret)
    env = [
        {"name": "RULE", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "rule"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "BOTH", "value": "$(RULE)/$(NODE)/$$(RULE)"},
    ]
    kube.create(
        pod(
            "a",
            namespace,
            ["sh", "-c", 'echo "$BOTH"; cat /etc/keys/key'],
            env=env,
            restartPolicy="Never",
            volumeMounts=[{"name": "keys", "mountPath": "/etc/keys"}],
            volumes=[{"name": "keys", "secret": {"secretName": "s"}}],
        )
    )
    waiting = until(lambda: state(kube, namespace, "a")["main"].get("state", {}).get("waiting"), "a reason to wait")
    until(
        lambda: (
            state(kube, namespace, "a")["main"]["state"].get("waiting", {}).get("reason")
            == "CreateContainerConfigError"
        ),
        f"the missing ConfigMap is named (was {waiting})",
    )
    late = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "late", "namespace": namespace},
        "data": {"rule": "r1"},
    }
    kube.create(late)
    until(lambda: state(kube, namespace, "a").get("phase") == "Succeeded", "the pod succeeds")
    node = (kube.get("v1", "Pod", "a", namespace) or {})["spec"]["nodeName"]
    assert cluster.pod_log(namespace, "a", "main") == f"r1/{node}/$(RULE)\nhidden"


def test_readiness_follows_the_probe_and_liveness_restarts(kube: Kube, cluster: Cluster, namespace: str) -> None:
    made = kube.create(
        pod(
            "a",
            namespace,
            ["sleep", "1000"],
            volumeMounts=[{"name": "state", "mountPath": "/state"}],
            volumes=[{"name": "state", "emptyDir": {}}],
            readinessProbe={"exec": {"command": ["test", "-e", "/state/ready"]}, "failureThreshold": 1},
            livenessProbe={"exec": {"command": ["test", "!", "-e", "/state/broken"]}, "failureThreshold": 1},
        )
    )
    volume = cluster.volume(made["metadata"]["uid"], "state")
    until(lambda: state(kube, namespace, "a").get("phase") == "Running", "it runs")
    assert not state(kube, namespace, "a")["main"]["ready"]
    (volume / "ready").touch()
    until(lambda: state(kube, namespace, "a")["main"]["ready"], "ready")
    (volume / "ready").unlink()
    until(lambda: not state(kube, namespace, "a")["main"]["ready"], "not ready any more")
    (volume / "broken").touch()
    ended = until(lambda: state(kube, namespace, "a")["main"]["lastState"].get("terminated"), "a restart")
    assert ended["exitCode"] == 143


def test_a_job_runs_to_completion_with_its_real_exit_codes(kube: Kube, namespace: str) -> None:
    def job(name: str, code: int) -> dict[str, object]:
        container = {"name": "main", "image": "none", "command": ["sh", "-c", f"exit {code}"]}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"backoffLimit": 0, "template": template},
        }

    kube.create(job("good", 0))
    kube.create(job("bad", 7))

    def ended(name: str, kind: str) -> bool:
        found = kube.get("batch/v1", "Job", name, namespace) or {}
        return any(c["type"] == kind and c["status"] == "True" for c in found.get("status", {}).get("conditions") or [])

    until(lambda: ended("good", "Complete"), "the good Job completes")
    until(lambda: ended("bad", "Failed"), "the bad Job fails")
    (failed,) = kube.list("v1", "Pod", namespace, labelSelector="job-name=bad")
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7


def test_a_pod_is_told_to_stop_before_it_is_killed(kube: Kube, cluster: Cluster, namespace: str) -> None:
    program = "import signal; print('here', flush=True); signal.sigwait([signal.SIGTERM]); print('leaving')"
    mask = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])"
    kube.create(
        pod(
            "a",
            namespace,
            ["python3", "-c", f"{mask}; {program}"],
            lifecycle={"preStop": {"exec": {"command": ["true"]}}},
        )
    )
    until(lambda: "here" in cluster.pod_log(namespace, "a", "main"), "it runs")
    kube.delete("v1", "Pod", "a", namespace)
    until(lambda: kube.get("v1", "Pod", "a", namespace) is None, "the pod is gone")
    assert cluster.pod_log(namespace, "a", "main") == "here\nleaving\n"


def test_a_pod_reaches_services_by_name_and_the_api_by_its_token(kube: Kube, cluster: Cluster, namespace: str) -> None:
    server = pod(
        "web",
        namespace,
        ["python3", "-m", "http.server", "8080", "--directory", "/etc/site"],
        readinessProbe={"httpGet": {"path": "/", "port": 8080}},
        volumeMounts=[{"name": "site", "mountPath": "/etc/site"}],
        volumes=[{"name": "site", "configMap": {"name": "site"}}],
    )
    server["metadata"]["labels"] = {"app": "web"}
    kube.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "site", "namespace": namespace},
            "data": {"index.html": "hello"},
        }
    )
    kube.create(server)
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
    kube.create(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": namespace}, "spec": spec}
    )
    until(lambda: state(kube, namespace, "web")["main"].get("ready"), "the server is ready")
    program = """
import pathlib, ssl, time, urllib.error, urllib.request
home = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
context = ssl.create_default_context(cafile=home / "ca.crt")
headers = {"Authorization": "Bearer " + (home / "token").read_text()}
version = urllib.request.Request("https://kubernetes.default.svc/version", headers=headers)
print(urllib.request.urlopen(version, context=context).status)
while True:
    try:
        print(urllib.request.urlopen("http://web").read().decode())
        break
    except urllib.error.URLError:
        time.sleep(0.1)
"""
    kube.create(pod("client", namespace, ["python3", "-c", program], restartPolicy="Never"))
    until(lambda: state(kube, namespace, "client").get("phase") in ("Succeeded", "Failed"), "the client ends")
    assert cluster.pod_log(namespace, "client", "main") == "200\nhello\n"


def test_the_file_system_is_read_only_where_it_should_be(kube: Kube, cluster: Cluster, namespace: str) -> None:
    script = "touch /usr/x 2>/dev/null || echo usr; touch /x 2>/dev/null || echo root; touch /data/x && echo data"
    kube.create(
        pod(
            "a",
            namespace,
            ["sh", "-c", script],
            restartPolicy="Never",
            securityContext={"readOnlyRootFilesystem": True},
            volumeMounts=[{"name": "data", "mountPath": "/data"}],
            volumes=[{"name": "data", "emptyDir": {}}],
        )
    )
    until(lambda: state(kube, namespace, "a").get("phase") == "Succeeded", "the pod succeeds")
    assert cluster.pod_log(namespace, "a", "main") == "usr\nroot\ndata\n"


def test_more_gpus_than_the_node_has_stay_pending(kube: Kube, namespace: str) -> None:
    def claim(name: str, gpus: int) -> dict[str, object]:
        made = pod(name, namespace, ["sleep", "1000"], nodeSelector={"nvidia.com/gpu.product": "NVIDIA-H20"})
        made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
        return made

    kube.create(claim("fits", 6))
    until(lambda: state(kube, namespace, "fits").get("phase") == "Running", "six GPUs fit")
    kube.create(claim("waits", 4))
    reason = until(
        lambda: next(
            (
                c.get("reason")
                for c in state(kube, namespace, "waits").get("conditions") or []
                if c["type"] == "PodScheduled"
            ),
            None,
        ),
        "the scheduler's verdict",
    )
    assert reason == "Unschedulable"
