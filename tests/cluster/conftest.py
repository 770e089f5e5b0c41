"""Fixtures of the cluster tests."""

from __future__ import annotations

import pytest
from hypothesis import settings

from hat_serving.canary.kube import Kube
from tests.cluster.controlplane.cluster import Cluster
from tests.cluster.controlplane.fixture import cluster, controller, kube, namespace, stop_after, workflows
from tests.cluster.helpers import answers, runtime, service, until, until_serving

__all__ = ["cluster", "controller", "kube", "namespace", "workflows"]

# Time decides no test, and the same examples are tried everywhere.
settings.register_profile("cluster", deadline=None, derandomize=True)
settings.load_profile("cluster")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """After the test's own fixtures."""
    stop_after(item)


@pytest.fixture
def stable(kube: Kube, cluster: Cluster, namespace: str) -> str:
    """A namespace where v1 of the InferenceService `chat` serves; the host name of its route."""
    kube.apply(runtime())
    kube.apply(service(namespace))
    until_serving(kube, namespace)
    host = f"chat-{namespace}.example.com"
    until(lambda: not answers(cluster.gateway, host, 1)[1], "the gateway leads to v1")
    return host
