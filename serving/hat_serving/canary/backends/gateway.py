"""hatstack's own gateway as traffic backend: it assigns units to arms and keeps a conversation on its arm.

`GatewayAdmin` is what a gateway offers; the split in force is the one that its replicas report, not the one last
asked for. Not here: the assignment itself (experiment), the HTTP interface of the gateway.
"""

from __future__ import annotations

from typing import Protocol

from hat_serving.canary.backends import Reading
from hat_serving.canary.errors import BackendError


class GatewayAdmin(Protocol):
    """The administrative side of the gateway."""

    def split(self) -> Reading:
        """The split that all replicas report; `effective` is None while they differ."""

    def set_split(self, percent: int) -> None:
        """Asks for another split: a running conversation keeps its arm."""

    def start_arm(self) -> None:
        """Makes the candidate release known to the gateway, without traffic."""

    def adopt(self) -> None:
        """The candidate release becomes the stable one."""

    def drop_arm(self) -> None:
        """Forgets the candidate; everyone on it moves at the next message."""


class Gateway:
    """Backend `gateway`."""

    settle = 0.0

    def __init__(self, admin: GatewayAdmin) -> None:
        self._admin = admin

    def read(self) -> Reading:
        """As the replicas report it."""
        return self._admin.split()

    def prepare(self) -> None:
        """The candidate release, without traffic."""
        self._admin.start_arm()

    def set_weight(self, percent: int) -> None:
        """Another split."""
        self._admin.set_split(percent)

    def promote(self) -> None:
        """The candidate becomes the stable release."""
        self._admin.adopt()

    def retire(self) -> None:
        """The candidate goes; refused while it gets traffic."""
        if self._admin.split().effective != 0:
            raise BackendError("the canary still gets traffic")
        self._admin.drop_arm()


def connect(url: str) -> Gateway:
    """The backend for the gateway at `url`. Raises BackendError: the gateway offers no administrative interface yet."""
    raise BackendError(
        f"the gateway at {url} offers no administrative interface", cure="use backend httproute, or pass a GatewayAdmin"
    )
