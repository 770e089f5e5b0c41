"""hatstack's own gateway as traffic backend: it assigns units to arms and keeps a conversation on its arm.

`GatewayAdmin` is what a gateway offers; the split in force is the one that its replicas report, not the one last
asked for. Not here: the assignment itself (experiment), the HTTP interface's other side (gateway.admin).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from hat_serving.canary.backends import Reading
from hat_serving.canary.errors import BackendError

TIMEOUT_S = 10.0


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


class HttpAdmin:
    """The administrative API of a gateway (docs/gateway.md); `url` may lead to any replica.

    `harness` is a reference as the gateway takes it, "" for what the stable arm serves; `engine` is one of its engines.
    """

    def __init__(
        self,
        url: str,
        deployment: str,
        *,
        arm: str = "canary",
        release: str = "",
        harness: str = "",
        engine: str = "",
        token: str = "",
        urgent: bool = False,
    ) -> None:
        self._base = f"{url.rstrip('/')}/admin/v1/deployments/{quote(deployment, safe='')}"
        self._arm, self._release = arm, release
        self._wanted = {"harness": harness, "engine": engine, "release": release}
        self._token = token or _token()
        self._urgent = urgent

    def split(self) -> Reading:
        """As the gateway tells it; `effective` is None while its replicas differ."""
        told = self._ask("GET", "")
        promoted = told["promoted"]
        found = next((one for one in told["arms"][1:] if one["name"] == self._arm), None)
        if found is None:
            done = promoted is not None and promoted["release"] == self._release
            note = "" if told["effective"] is not None else "not all replicas obey yet"
            effective = None if note else 100 if done else 0
            return Reading(effective, promoted=done and not note, retired=not note, note=note)
        notes = [
            told["trouble"],
            "" if found["engine_up"] else f"engine {found['engine'] or 'primary'} does not answer",
        ]
        ready = found["engine_up"] and not found["aborted"] and not told["trouble"]
        if told["effective"] is None:
            notes.append(f"{len(told['waits_for'])} of {len(told['replicas'])} replicas do not obey yet")
            return Reading(None, ready, note="; ".join(filter(None, notes)))
        weight = told["effective"].get(self._arm, 0)
        if weight != int(weight):
            return Reading(None, ready, note=f"{weight:g} is no whole percent")
        return Reading(int(weight), ready, note="; ".join(filter(None, notes)))

    def set_split(self, percent: int) -> None:
        """Another split. Down to nothing is an abort: everyone on the arm moves at the next message."""
        found = next((one for one in self._ask("GET", "")["arms"][1:] if one["name"] == self._arm), None)
        if percent == 0 and (found is None or found["aborted"]):
            return
        if percent == 0 and found is not None and found["weight"]:
            self._ask("POST", f"/arms/{self._arm}/abort")
        else:
            self._ask("PUT", "/weights", {"weights": {self._arm: percent}})

    def start_arm(self) -> None:
        """Makes the candidate known to the gateway, without traffic."""
        self._ask("PUT", f"/arms/{self._arm}", self._wanted)

    def adopt(self) -> None:
        """The candidate becomes the stable arm."""
        self._ask("POST", f"/arms/{self._arm}/promote", {"urgent": self._urgent})

    def drop_arm(self) -> None:
        """Forgets the candidate."""
        self._ask("DELETE", f"/arms/{self._arm}")

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        import urllib3

        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        content = json.dumps(body or {}) if method != "GET" else None
        try:
            answer = urllib3.request(
                method, self._base + path, body=content, headers=headers, timeout=TIMEOUT_S, retries=False
            )
            told = json.loads(answer.data)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise BackendError(
                f"the gateway gave no usable answer: {type(error).__name__}", place=self._base
            ) from error
        if answer.status >= 400:
            said = told.get("error", {})
            raise BackendError(str(said.get("message", answer.status)), place=self._base)
        found: dict[str, Any] = told
        return found


def _token() -> str:
    """HATSTACK_GATEWAY_TOKEN, or what the file HATSTACK_GATEWAY_TOKEN_FILE holds now (a mounted secret may change)."""
    found = os.environ.get("HATSTACK_GATEWAY_TOKEN", "")
    path = os.environ.get("HATSTACK_GATEWAY_TOKEN_FILE", "")
    if not found and path:
        try:
            found = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise BackendError(f"the token file cannot be read: {error.strerror}", place=path) from error
    return found


def connect(url: str, deployment: str, **arm: Any) -> Gateway:
    """The backend for `deployment` of the gateway at `url`; `arm`: see HttpAdmin."""
    return Gateway(HttpAdmin(url, deployment, **arm))
