"""A small asynchronous client of the API server for the supervisor and the pod runner.

Objects are plain dicts. Not here: retries (the callers loop anyway) and caching beyond resource names. Tests outside
use the official client through the kubeconfig.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, cast

import aiohttp

from tests.cluster.controlplane.errors import ApiError

Manifest = dict[str, Any]
Event = tuple[Literal["LIST"], list[Manifest]] | tuple[Literal["ADDED", "MODIFIED", "DELETED"], Manifest]

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
MANAGER = "hatstack-tests"


class Api:
    """One connection pool to the API server; use as `async with`."""

    def __init__(self, url: str, ca: Path, token: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}
        self.ca_bundle = base64.b64encode(ca.read_bytes()).decode()
        self._ssl = ssl.create_default_context(cafile=str(ca))
        self._names: dict[tuple[str, str], tuple[str, bool]] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Api:
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(ssl=self._ssl, limit=64),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=90),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json", **query: str
    ) -> Any:
        """The parsed answer, or the text when it is not JSON. Raises ApiError above 399."""
        assert self._session is not None
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type}
        async with self._session.request(method, self._url + path, data=data, headers=headers, params=query) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise ApiError(answer.status, _message(text), place=f"{method} {path}")
            return json.loads(text) if answer.content_type == "application/json" else text

    async def path(self, api_version: str, kind: str, namespace: str | None = None, name: str | None = None) -> str:
        """The URL path of a resource; resource names are asked from the server and remembered."""
        base = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        if (api_version, kind) not in self._names:
            for entry in (await self.request("GET", base))["resources"]:
                if "/" not in entry["name"]:
                    self._names[api_version, entry["kind"]] = (entry["name"], entry["namespaced"])
        if (api_version, kind) not in self._names:
            raise ApiError(404, f"the server has no {kind} in {api_version}", place=base)
        plural, namespaced = self._names[api_version, kind]
        scope = f"/namespaces/{namespace or 'default'}" if namespaced else ""
        return f"{base}{scope}/{plural}" + (f"/{name}" if name else "")

    async def apply(self, manifest: Manifest, *, validation: str = "Strict") -> Manifest:
        """Server-side apply; takes fields over from other managers."""
        metadata = manifest["metadata"]
        path = await self.path(manifest["apiVersion"], manifest["kind"], metadata.get("namespace"), metadata["name"])
        query = {"fieldManager": MANAGER, "force": "true", "fieldValidation": validation}
        return cast(Manifest, await self.request("PATCH", path, manifest, content_type=APPLY, **query))

    async def list(self, path: str, **query: str) -> tuple[list[Manifest], str]:
        """All items below `path` and the version to watch from."""
        answer = await self.request("GET", path, **query)
        return list(answer.get("items") or []), answer["metadata"]["resourceVersion"]

    async def watch(self, path: str, **query: str) -> AsyncIterator[Event]:
        """First ("LIST", all objects), then every change; after a break of the connection a new list.

        Never ends by itself.
        """
        while True:
            try:
                items, version = await self.list(path, **query)
                yield ("LIST", items)
                async for event in self._changes(path, version, query):
                    yield event
            except (aiohttp.ClientError, TimeoutError, ApiError):
                await asyncio.sleep(0.2)

    async def _changes(self, path: str, version: str, query: dict[str, str]) -> AsyncIterator[Event]:
        assert self._session is not None
        params = {**query, "watch": "1", "resourceVersion": version, "timeoutSeconds": "80"}
        async with self._session.get(self._url + path, params=params) as answer:
            if answer.status >= 400:
                raise ApiError(answer.status, _message(await answer.text()), place=f"WATCH {path}")
            buffer = b""
            async for chunk in answer.content.iter_any():
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return
                    yield (event["type"], event["object"])


def _message(text: str) -> str:
    try:
        return str(json.loads(text).get("message", text))
    except (ValueError, AttributeError):
        return text[:500]
