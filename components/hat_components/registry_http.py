"""The registry's API, as steps call it: JSON over HTTP under one token. Not here: what is sent."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from hat_components.step import InputError, StepError
from hat_harness.errors import Kind


class RegistryError(StepError):
    """The registry does not answer, or refuses; `kind` says which."""

    def __init__(self, message: str, kind: Kind, *, place: str, cure: str = "") -> None:
        super().__init__(message, place=place, cure=cure)
        self.kind = kind


class RegistryHttp:
    """One registry. `token_variable`: environment variable with the token; unset where the registry is open."""

    def __init__(self, url: str, token_variable: str, timeout_s: float) -> None:
        self._base, self._timeout = url.rstrip("/") + "/api/v1", timeout_s
        self._token = os.environ.get(token_variable, "")
        if not self._base.startswith(("http://", "https://")):
            raise InputError("the registry's address is no URL", place=url)

    def get(self, path: str) -> dict[str, Any]:
        """The parsed answer."""
        return self._ask("GET", path, None, "")

    def post(self, path: str, body: Mapping[str, Any], *, key: str = "") -> dict[str, Any]:
        """The parsed answer; the same `key` does nothing the second time."""
        return self._ask("POST", path, body, key)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if key:
            headers["Idempotency-Key"] = key
        data = None if body is None else json.dumps(dict(body)).encode()
        request = urllib.request.Request(f"{self._base}{path}", data, headers, method=method)  # noqa: S310  # http(s), checked above
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:  # noqa: S310  # as above
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except urllib.error.HTTPError as error:
            raise self._refused(error, path) from None
        except (urllib.error.URLError, TimeoutError, OSError) as error:
            told = str(getattr(error, "reason", error))
            raise RegistryError(
                f"the registry does not answer: {told}", "unavailable", place=self._base, cure="run the step again"
            ) from None

    def _refused(self, error: urllib.error.HTTPError, path: str) -> RegistryError:
        kinds: dict[int, Kind] = {401: "forbidden", 403: "forbidden", 409: "conflict", 429: "unavailable"}
        kind: Kind = kinds.get(error.code, "unavailable" if error.code >= 500 else "invalid_input")
        try:
            told = json.loads(error.read())
        except ValueError:
            told = {}
        said = " ".join(str(told.get("detail") or told.get("title") or error.reason).split())[:500]
        return RegistryError(f"{error.code} {said}", kind, place=f"{self._base}{path}", cure=str(told.get("cure", "")))
