"""Fixtures of the cluster tests."""

from __future__ import annotations

from tests.cluster.controlplane.fixture import cluster, controller, kube, namespace

__all__ = ["cluster", "controller", "kube", "namespace"]
