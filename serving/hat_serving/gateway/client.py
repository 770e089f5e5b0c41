"""A client of the gateway for the command line and the console: the admin API and rooms.

Always holds: an error of the gateway comes out as the PlatformError that it describes; every call ends within a time-out;
the token is read anew for each call, because a mounted secret may change. Not here: canary backends (they bring their own).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from hat_harness.errors import PlatformError
from hat_serving.errors import UpstreamError

TIMEOUT_S = 30.0
KINDS = {"check_failed", "usage", "invalid_input", "conflict", "forbidden", "exhausted"}


class GatewayError(PlatformError):
    """What the gateway answered instead; `kind` is the gateway's."""


class GatewayClient:
    """One gateway. `token` gives the admin token; `reader` the token of a client, where the gateway asks for one."""

    def __init__(
        self, url: str, token: Callable[[], str], *, reader: Callable[[], str] = str, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.url = url.rstrip("/")
        self._token = token
        self._reader = reader
        self._timeout = timeout_s

    def get(self, path: str) -> Any:
        """The JSON of `GET /admin/v1<path>`."""
        return self._send("GET", "/admin/v1" + path, None, self._token).json()

    def post(self, path: str, body: Any = None) -> Any:
        """The JSON of `POST /admin/v1<path>`."""
        return self._send("POST", "/admin/v1" + path, body or {}, self._token).json()

    def put(self, path: str, body: Any = None) -> Any:
        """The JSON of `PUT /admin/v1<path>`."""
        return self._send("PUT", "/admin/v1" + path, body or {}, self._token).json()

    def say(self, room: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of a room; silence has outcome `silence` and no text."""
        answer = self._send("POST", f"/v1/rooms/{quote(room, safe='')}/messages", body, self._reader)
        if answer.status_code == 204:
            arm = answer.headers.get("x-hatstack-arm", "")
            return {"text": "", "outcome": "silence", "skills": [], "tools": [], "arm": arm}
        found: dict[str, Any] = answer.json()
        return found

    def _send(self, method: str, path: str, body: Any, token: Callable[[], str]) -> httpx.Response:
        secret = token()
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        try:
            answer = httpx.request(method, self.url + path, json=body, headers=headers, timeout=self._timeout)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UpstreamError(
                f"the gateway does not answer ({type(error).__name__})", place=self.url, cure="hat up starts one"
            ) from None
        if answer.status_code >= 400:
            raise _told(answer, self.url)
        return answer


def admin_token(file: Path | None = None) -> str:
    """HATSTACK_GATEWAY_TOKEN, else what HATSTACK_GATEWAY_TOKEN_FILE or `file` holds; "" where there is none."""
    found = os.environ.get("HATSTACK_GATEWAY_TOKEN", "")
    named = os.environ.get("HATSTACK_GATEWAY_TOKEN_FILE", "")
    for path in (Path(named) if named else None, file):
        if not found and path is not None and path.is_file():
            found = path.read_text(encoding="utf-8").strip()
    return found


def _told(answer: httpx.Response, url: str) -> GatewayError:
    try:
        told = answer.json().get("error", {})
    except ValueError:
        told = {}
    message = str(told.get("message") or f"the gateway answered {answer.status_code}")
    cure = str(told.get("cure") or "")
    made = GatewayError(message.removesuffix(f" ({cure})"), place=str(told.get("param") or url), cure=cure)
    made.kind = told["kind"] if told.get("kind") in KINDS else "unavailable"
    return made
