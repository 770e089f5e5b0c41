"""Fixtures of the cluster tests."""

from __future__ import annotations

from hypothesis import settings

from tests.cluster.controlplane.fixture import cluster, controller, kube, namespace

__all__ = ["cluster", "controller", "kube", "namespace"]

# Time decides no test, and the same examples are tried everywhere.
settings.register_profile("cluster", deadline=None, derandomize=True)
settings.load_profile("cluster")
