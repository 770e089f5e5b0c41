"""pytest fixtures: one cluster per test session, one namespace per test.

    controller  the canary controller, installed by its chart
    workflows   a Cluster with Argo Workflows, for one test module
    cluster     a running Cluster; stopped after the last test that uses it, whatever happened
    kube        the official client's connection to it, with all rights
    namespace   a fresh namespace, deleted after the test (the deletion is not waited for)

When the programs are not built, tests that ask for them fail and name `make control-plane`; they are never skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from hat_serving.canary.kube import Kube
from tests.cluster.controlplane.cluster import REPOSITORY, Cluster
from tests.cluster.controlplane.errors import ControlPlaneError

RUNNING: list[Cluster] = []
"""The session's cluster, while it runs."""


def stop_after(item: pytest.Item) -> None:
    """Ends the session's cluster with the last test that uses it: those that follow have the machine to themselves."""
    users = (one for one in reversed(item.session.items) if "cluster" in getattr(one, "fixturenames", ()))
    if next(users, None) is item:
        while RUNNING:
            RUNNING.pop().stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    running, why = None, ""
    try:
        running = Cluster.start(backoff=0.2)
    except ControlPlaneError as error:
        why = str(error)
    if running is None:
        pytest.fail(why, pytrace=False)
    RUNNING.append(running)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def workflows() -> Iterator[Cluster]:
    """A cluster of its own with Argo's workflow-controller and an S3."""
    running, why = None, ""
    try:
        running = Cluster.start(argo=True, backoff=0.2)
    except ControlPlaneError as error:
        why = str(error)
    if running is None:
        pytest.fail(why, pytrace=False)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def kube(cluster: Cluster) -> Kube:
    return Kube.from_kubeconfig(cluster.kubeconfig)


@pytest.fixture
def namespace(kube: Kube, request: pytest.FixtureRequest) -> Iterator[str]:
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_")).strip("-")[:20].strip("-")
    made = kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": f"{stem}-"}})
    name = made["metadata"]["name"]
    yield name
    kube.delete("v1", "Namespace", name)


@pytest.fixture(scope="session")
def controller(cluster: Cluster, kube: Kube) -> str:
    """The chart's canary controller, two replicas, installed by Helm; the namespace it runs in."""
    import helm_python

    namespace = "hatstack-system"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
    values = {"console": {"enabled": False}, "controller": {"interval": 0.2, "leaseSeconds": 3}}
    with helm_python.Config(kubeconfig_path=cluster.kubeconfig, namespace=namespace) as helm:
        helm.install(REPOSITORY / "charts" / "hatstack", "hatstack", values, namespace=namespace)
    return namespace
