"""Errors of canary rollouts.

    ServingError
    └── RolloutError                root of what hat_serving.canary raises (stands in hat_serving.errors)
        ├── InvalidRolloutError     a rollout's spec contradicts itself or the cluster
        ├── BackendError            a traffic backend cannot do what was asked
        ├── MetricsError            the metrics server gave no usable answer
        └── ClusterError            the Kubernetes API refused or did not answer; carries the status code

Not here: how the controller reacts to them.
"""

from __future__ import annotations

from hat_harness.errors import Kind
from hat_serving.errors import RolloutError


class InvalidRolloutError(RolloutError):
    """The spec of a rollout contradicts itself or what stands in the cluster."""

    kind: Kind = "invalid_input"


class BackendError(RolloutError):
    """A traffic backend cannot do what was asked of it."""

    kind: Kind = "conflict"


class MetricsError(RolloutError):
    """The metrics server is unreachable or its answer makes no sense."""

    kind: Kind = "unavailable"


class ClusterError(RolloutError):
    """The Kubernetes API refused a request (`code` is the HTTP status) or did not answer (`code` 0)."""

    kind: Kind = "unavailable"

    def __init__(self, code: int, message: str, *, place: str = "") -> None:
        super().__init__(f"{code} {message}" if code else message, place=place)
        self.code = code
