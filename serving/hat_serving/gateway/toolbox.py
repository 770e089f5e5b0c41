"""Tools as `bindings.yaml` names them: MCP servers and plain HTTP, with time-outs, a bound and a circuit breaker each.

    servers:
      room: {mcp: "http://127.0.0.1:8740/mcp"}
      shop: {http: "https://shop.internal/tools/{tool}", token: {env: SHOP_TOKEN}, timeout_s: 3}
    tools:
      get_item: room
      "*": shop
    # more of a server: {mcp: …, drift: refuse} compares its tools with the harness's at the start of a conversation
    # (hat_registry.mcp_tools); names: {fs_read: "fs/read"} where a server's own name cannot be a tool's id.

Always holds: a call ends within its time-out; after `OPEN_AFTER` failures in a row a server is left alone for
`OPEN_FOR_S` and its calls fail at once as `unavailable`; a call with effects carries its idempotency key
(`_meta["hatstack.dev/idempotency-key"]` over MCP, `Idempotency-Key` over HTTP) and is never retried here.
Not here: undoing renamings and retries (the session).
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from typing import Any, Protocol

import aiohttp
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hat_harness.digest import harness_digest
from hat_harness.errors import PlatformError
from hat_harness.events import FailureKind, ToolRequest, ToolResult
from hat_harness.spec import Harness
from hat_registry.mcp_tools import Policy, admit, discover_async
from hat_serving.errors import SettingsError, UpstreamError
from hat_serving.gateway.sockets import at_most

log = logging.getLogger("hatstack.gateway")
OPEN_AFTER = 5
OPEN_FOR_S = 5.0
MAX_RESULT = 64 * 1024
"""Bytes of a tool result that the model may see; longer ones are cut with a mark."""
LOOK_EVERY_S = 60.0
"""How often a server's tools are compared with a harness, at most."""
KEY_META = "hatstack.dev/idempotency-key"


class Token(BaseModel):
    """Where a secret comes from; never the secret itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    env: str

    def value(self) -> str:
        """The secret. SettingsError when the variable is not set."""
        found = os.environ.get(self.env, "")
        if not found:
            raise SettingsError(f"environment variable {self.env} is not set", place="bindings.yaml")
        return found


class Server(BaseModel):
    """One tool server."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    mcp: str = ""
    """Address of a streamable HTTP endpoint."""
    http: str = ""
    """Address template with `{tool}`; the arguments are posted as JSON, the body of the answer is the result."""
    token: Token | None = None
    timeout_s: float = Field(default=10.0, gt=0, le=120)
    drift: Policy | None = None
    """What happens at the start of a conversation when an MCP server's tools are not those of the harness; None: not
    looked at."""

    @model_validator(mode="after")
    def _one_kind(self) -> Server:
        if bool(self.mcp) == bool(self.http):
            raise ValueError("a server is either mcp or http")
        return self


class Bindings(BaseModel):
    """The content of `bindings.yaml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    servers: dict[str, Server] = Field(default_factory=dict)
    tools: dict[str, str] = Field(default_factory=dict)
    """Canonical tool id, or `*`, → server."""
    names: dict[str, str] = Field(default_factory=dict)
    """Canonical tool id → the server's own name, where that cannot be an id."""

    @model_validator(mode="after")
    def _known(self) -> Bindings:
        unknown = sorted(set(self.tools.values()) - set(self.servers))
        if unknown:
            raise ValueError(f"tools name server {unknown[0]!r}, which is not listed under servers")
        return self

    @classmethod
    def parse(cls, content: Mapping[str, Any], place: str = "bindings.yaml") -> Bindings:
        """Checked bindings. SettingsError names the field."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise SettingsError(first["msg"], place=f"{place}: {where}" if where else place) from None


class Connection(Protocol):
    """One server's connection."""

    async def call(self, tool: str, arguments: Mapping[str, Any], key: str, timeout_s: float) -> tuple[str, bool]:
        """(text, is an error) of one call."""

    async def close(self) -> None:
        """End it."""


class Breaker:
    """Counts failures in a row; open means: do not even try."""

    def __init__(self) -> None:
        self._failures = 0
        self._until = 0.0

    @property
    def open(self) -> bool:
        """Whether calls fail at once now."""
        return time.monotonic() < self._until

    def record(self, ok: bool) -> None:
        """Take note of one call."""
        self._failures = 0 if ok else self._failures + 1
        if self._failures >= OPEN_AFTER:
            self._until = time.monotonic() + OPEN_FOR_S


class Toolbox:
    """`hat_harness.ports.AsyncToolBackend` over bindings. Open it with `async with`; any number of sessions share it."""

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings
        self._connections: dict[str, Connection] = {}
        self._breakers = {name: Breaker() for name in bindings.servers}
        self._looked: dict[tuple[str, str], float] = {}

    async def admit(self, harness: Harness) -> None:
        """Compares servers that have a drift policy with the harness, each at most every `LOOK_EVERY_S`.

        UpstreamError when a policy is to refuse: the tools changed, or they cannot be looked at.
        """
        for name, server in self._bindings.servers.items():
            key = (name, harness_digest(harness))
            if not server.mcp or server.drift is None or time.monotonic() < self._looked.get(key, 0.0):
                continue
            own = [
                tool
                for tool in harness.tools
                if (self._bindings.tools.get(tool.id) or self._bindings.tools.get("*")) == name
            ]
            try:
                token = server.token.value() if server.token else ""
                found = await discover_async(server.mcp, token=token, timeout_s=server.timeout_s)
                admit(own, found, server.drift)
            except PlatformError as error:
                if server.drift == "refuse":
                    raise UpstreamError(error.message, place=f"tools of {name}", cure=error.cure) from None
                log.warning("tools of %s could not be compared: %s", name, error)
            self._looked[key] = time.monotonic() + LOOK_EVERY_S

    async def __aenter__(self) -> Toolbox:
        """Make the connections; a server that is down now may come up later."""
        for name, server in self._bindings.servers.items():
            token = server.token.value() if server.token else ""
            self._connections[name] = (
                McpConnection(server.mcp, token) if server.mcp else HttpConnection(server.http, token)
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them."""
        await asyncio.gather(*(connection.close() for connection in self._connections.values()), return_exceptions=True)

    async def call(self, session_id: str, request: ToolRequest) -> ToolResult:
        """Carry out one call; never raises but when cancelled."""
        name = self._bindings.tools.get(request.name) or self._bindings.tools.get("*")
        if name is None:
            return _failed(request, "unavailable", f"tool {request.name} is bound to no server")
        breaker = self._breakers[name]
        if breaker.open:
            return _failed(request, "unavailable", f"{name} is left alone after repeated failures")
        limit = min(request.timeout_s, self._bindings.servers[name].timeout_s)
        failure: FailureKind
        try:
            async with asyncio.timeout(limit):
                connection = self._connections[name]
                own = self._bindings.names.get(request.name, request.name)
                text, error = await connection.call(own, request.arguments, request.idempotency_key, limit)
            breaker.record(True)
        except TimeoutError:
            failure, detail = "timeout", f"no answer within {limit:g} s"
        except UpstreamError as fault:
            failure, detail = "unavailable", fault.message
        except Exception as fault:  # a tool server may break in any way; the session reads it as data
            failure, detail = "server", type(fault).__name__
        else:
            return ToolResult(request.call_id, _cut(text), "server" if error and not text else "")
        breaker.record(False)
        log.warning("tool %s on %s failed for %s: %s", request.name, name, session_id, detail)
        return _failed(request, failure, detail)


class McpConnection:
    """One MCP client over streamable HTTP, kept open by a task of its own and opened anew after a loss."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token
        self._client: Any = None
        self._lock = asyncio.Lock()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def call(self, tool: str, arguments: Mapping[str, Any], key: str, timeout_s: float) -> tuple[str, bool]:
        """One `tools/call`."""
        client = await self._opened()
        meta = {KEY_META: key} if key else None
        try:
            result = await client.call_tool(tool, dict(arguments), read_timeout_seconds=timeout_s, meta=meta)
        except Exception:
            await self._lose(client)
            raise
        texts = [part.text for part in result.content if getattr(part, "type", "") == "text"]
        return "\n".join(texts), bool(result.is_error)

    async def close(self) -> None:
        """End the connection."""
        task, self._client = self._task, None
        self._stop.set()
        if task is not None:
            await asyncio.wait([task], timeout=2)
            task.cancel()

    async def _opened(self) -> Any:
        async with self._lock:
            if self._client is None:
                ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                self._stop = asyncio.Event()
                self._task = task = asyncio.create_task(self._hold(ready, self._stop))
                try:
                    self._client = await ready
                except BaseException:
                    task.cancel()  # who gave up waiting leaves no connection behind
                    raise
            return self._client

    async def _hold(self, ready: asyncio.Future[Any], stop: asyncio.Event) -> None:
        # The client's scopes must be entered and left in one task, so that task waits here.
        from mcp import Client

        try:
            async with Client(self._transport()) as client:
                ready.set_result(client)
                await stop.wait()
        except Exception as error:  # the SDK raises groups of anything for a server that is away
            if not ready.done():
                ready.set_exception(UpstreamError(f"MCP server does not answer ({type(error).__name__})"))

    def _transport(self) -> Any:
        if not self._token:
            return self._url
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        headers = {"Authorization": f"Bearer {self._token}"}
        return streamable_http_client(self._url, http_client=httpx2.AsyncClient(headers=headers))

    async def _lose(self, client: Any) -> None:
        async with self._lock:
            if self._client is client:
                self._client = None
                self._stop.set()


class HttpConnection:
    """Plain HTTP: POST the arguments as JSON; the answer's body is the result, a 4xx body is a tool error."""

    def __init__(self, template: str, token: str) -> None:
        self._template = template
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: aiohttp.ClientSession | None = None

    async def call(self, tool: str, arguments: Mapping[str, Any], key: str, timeout_s: float) -> tuple[str, bool]:
        """One POST."""
        if self._session is None:
            self._session = aiohttp.ClientSession()
        headers = {"Content-Type": "application/json", **self._headers}
        if key:
            headers["Idempotency-Key"] = key
        url = self._template.replace("{tool}", tool)
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        async with self._session.post(
            url, data=orjson.dumps(dict(arguments)), headers=headers, timeout=timeout
        ) as answer:
            body = await at_most(answer.content, MAX_RESULT + 1)
            if answer.status >= 500 or answer.status == 429:
                raise UpstreamError(f"the tool server answered {answer.status}")
            return body.decode(errors="replace"), answer.status >= 400

    async def close(self) -> None:
        """Close the pool."""
        if self._session is not None:
            await self._session.close()


def _failed(request: ToolRequest, kind: FailureKind, detail: str) -> ToolResult:
    return ToolResult(request.call_id, f"error: {detail}", kind)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_RESULT else text[:MAX_RESULT] + " … (cut)"
