"""The registry as commands see it: its HTTP API at HATSTACK_REGISTRY, with the token in HATSTACK_TOKEN.

Always holds: a problem document becomes the PlatformError that it describes, so that exit codes and messages are those of
the domain; every call ends within a time-out. Not here: reading with caches (hat_registry.client).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any
from urllib.parse import quote

import typer

from hat_harness.errors import PlatformError
from hatstack.cli.failure import UnavailableError

DEFAULT = "http://127.0.0.1:8700"
TIMEOUT_S = 30.0
LONG_S = 600.0
"""For answers that read the whole ledger."""
RegistryUrl = Annotated[
    str, typer.Option("--registry", help="Address of the registry.", envvar="HATSTACK_REGISTRY", show_envvar=True)
]


class RemoteError(PlatformError):
    """What the registry answered instead; `kind` is the registry's."""


class Remote:
    """One registry."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def get(self, path: str, **params: Any) -> Any:
        """The JSON of `GET /api/v1<path>`."""
        return self.send("GET", path, params=params).json()

    def post(self, path: str, body: Any = None, **params: Any) -> Any:
        """The JSON of `POST /api/v1<path>`."""
        return self.send("POST", path, params=params, json=body).json()

    def put(self, path: str, body: Any = None) -> Any:
        """The JSON of `PUT /api/v1<path>`."""
        return self.send("PUT", path, json=body).json()

    def delete(self, path: str, **params: Any) -> Any:
        """The JSON of `DELETE /api/v1<path>`."""
        return self.send("DELETE", path, params=params).json()

    def send(self, method: str, path: str, **request: Any) -> Any:
        """The response of one call. Raises the error that it tells, or UnavailableError."""
        import httpx

        given = {key: value for key, value in (request.pop("params", None) or {}).items() if value is not None}
        request.setdefault("timeout", TIMEOUT_S)
        with self._answering():
            answer = httpx.request(method, f"{self.url}/api/v1{path}", headers=_credentials(), params=given, **request)
        if answer.status_code >= 400:
            raise _told(answer, self.url)
        return answer

    def lines(self, path: str) -> Iterator[str]:
        """The lines of a long answer, as they come; nothing is held in memory."""
        import httpx

        with (
            self._answering(),
            httpx.stream("GET", f"{self.url}/api/v1{path}", headers=_credentials(), timeout=LONG_S) as answer,
        ):
            if answer.status_code >= 400:
                answer.read()
                raise _told(answer, self.url)
            left = ""
            for piece in answer.iter_text():
                *whole, left = (left + piece).split("\n")  # only real line ends: texts may hold others
                yield from whole
            if left:
                yield left

    @contextmanager
    def _answering(self) -> Iterator[None]:
        import httpx

        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnavailableError(
                f"the registry does not answer ({type(error).__name__})",
                place=self.url,
                cure="hat up starts one; --registry or HATSTACK_REGISTRY name another",
            ) from None


def _credentials() -> dict[str, str]:
    token = os.environ.get("HATSTACK_TOKEN", "")
    return {"Authorization": f"Bearer {token}"} if token else {}


def part(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def _told(answer: Any, url: str) -> RemoteError:
    try:
        body = answer.json()
    except ValueError:
        body = {}
    message = str(body.get("title") or f"the registry answered {answer.status_code}")
    problems = body.get("problems") or []
    made = RemoteError(
        "\n  ".join([message, *problems]), place=str(body.get("place") or url), cure=str(body.get("cure") or "")
    )
    kind = body.get("kind")
    made.kind = (
        kind
        if kind in {"check_failed", "usage", "invalid_input", "conflict", "forbidden", "exhausted"}
        else "unavailable"
    )
    return made
