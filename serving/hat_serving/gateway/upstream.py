"""An engine behind HTTP as the session's model: aiohttp, one pooled connection set per engine, streamed.

Always holds: every call ends within `timeout_s`, whatever the engine does; nothing raises but cancellation. A cancelled
call closes its connection, which stops the engine's generation. Not here: retries and fallbacks (the session asks).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import aiohttp
from pydantic import BaseModel, ConfigDict, Field

from hat_harness.events import CallModel, Failure, ModelDelta, ModelOutput
from hat_serving.gateway import wire
from hat_serving.gateway.sockets import at_most, connector

HEALTH_S = 2.0


class Engine(BaseModel):
    """Where a model is served."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    """Base address, without `/v1`."""
    model: str = "default"
    """`model` field of the requests."""
    api_key: str = Field(default="", repr=False)
    timeout_s: float = Field(default=15.0, gt=0)
    """Of one model call, first byte to last."""
    temperature: float = Field(default=0.0, ge=0)
    stream: bool = True
    connections: int = Field(default=256, ge=1)


class Engines:
    """Connections to the engines by logical model name; "" is the primary."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._engines = dict(engines)
        self._client: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Engines:
        """Open the connection pool."""
        limit = sum(engine.connections for engine in self._engines.values()) or 1
        # Every call has its engine's own limit around it; aiohttp's would only cut long ones short.
        forever = aiohttp.ClientTimeout(total=None)
        self._client = aiohttp.ClientSession(connector=connector(limit), auto_decompress=True, timeout=forever)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        if self._client is not None:
            await self._client.close()

    @property
    def names(self) -> frozenset[str]:
        """Logical names; "" is the primary."""
        return frozenset(self._engines)

    async def healthy(self, name: str) -> bool:
        """Whether the engine answers. A server without `/health` is up when it answers at all."""
        engine = self._engines.get(name)
        if engine is None or self._client is None:
            return False
        try:
            async with asyncio.timeout(HEALTH_S), self._client.get(f"{engine.url}/health") as answer:
                return answer.status < 500
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False

    def model(self, labels: Mapping[str, str] | None = None, primary: str = "", stand_in: str = "") -> EngineModel:
        """A model for one turn; `labels` go to the engine as headers, `primary` names the engine for model "".

        `stand_in` answers for an engine of another name that is down, before anything was shown.
        """
        if self._client is None:
            raise RuntimeError("open the engines first: async with")
        return EngineModel(self._client, self._engines, dict(labels or {}), primary, stand_in)


class EngineModel:
    """`hat_harness.ports.AsyncModel` over chat completions; has `stream` unless the engine is set not to."""

    def __init__(
        self,
        client: aiohttp.ClientSession,
        engines: Mapping[str, Engine],
        labels: Mapping[str, str],
        primary: str,
        stand_in: str = "",
    ) -> None:
        self.fell_back = False
        self._stand_in = stand_in
        self._client = client
        self._engines = engines
        self._labels = labels
        self._primary = primary

    async def generate(self, session_id: str, call: CallModel) -> ModelOutput | Failure:
        """The output of one call, once it is whole."""
        result: ModelOutput | Failure = wire.malformed(call.call_id, "no answer")
        async for piece in self.stream(session_id, call):
            if not isinstance(piece, ModelDelta):
                result = piece
        return result

    async def stream(self, session_id: str, call: CallModel) -> AsyncIterator[ModelDelta | ModelOutput | Failure]:
        """Content pieces as they come, then the output or a failure."""
        name = call.model or self._primary
        shown = False
        async for piece in self._tried(name, session_id, call):
            shown = shown or isinstance(piece, ModelDelta)
            down = isinstance(piece, Failure) and piece.kind in ("unavailable", "server", "rate_limit")
            if not down or shown or name != self._primary or name == self._stand_in:
                yield piece
                continue
            self.fell_back = True
            async for other in self._tried(self._stand_in, session_id, call):
                yield other
            return

    async def _tried(
        self, name: str, session_id: str, call: CallModel
    ) -> AsyncIterator[ModelDelta | ModelOutput | Failure]:
        """What one engine says."""
        engine = self._engines.get(name)
        if engine is None:
            yield Failure("call", "unavailable", call.call_id, f"no engine called {name!r}")
            return
        try:
            async with asyncio.timeout(engine.timeout_s):
                async for piece in self._ask(engine, session_id, call):
                    yield piece
        except TimeoutError:
            yield Failure("call", "timeout", call.call_id, f"no answer within {engine.timeout_s:g} s")
        except (aiohttp.ClientError, OSError) as error:
            yield Failure("call", "unavailable", call.call_id, type(error).__name__)

    async def _ask(
        self, engine: Engine, session_id: str, call: CallModel
    ) -> AsyncIterator[ModelDelta | ModelOutput | Failure]:
        headers = {"Content-Type": "application/json", "X-Hatstack-Conversation": session_id, **self._labels}
        if engine.api_key:
            headers["Authorization"] = f"Bearer {engine.api_key}"
        body = wire.request_body(call, engine.model, stream=engine.stream, temperature=engine.temperature)
        url = f"{engine.url}/v1/chat/completions"
        async with self._client.post(url, data=body, headers=headers) as answer:
            if answer.status != 200:
                yield wire.failure_of_status(call.call_id, answer.status)
                return
            if not engine.stream:
                content = await at_most(answer.content, wire.MAX_ANSWER + 1)
                long = len(content) > wire.MAX_ANSWER
                failed = wire.malformed(call.call_id, "the engine's answer is too long")
                yield failed if long else wire.read_answer(call.call_id, content)
                return
            reader = wire.StreamReader(call.call_id)
            async for chunk in answer.content.iter_any():
                if texts := reader.feed(chunk):  # what came at once is told at once
                    yield ModelDelta(call.call_id, "".join(texts))
                if reader.done or reader.broken:
                    break
            yield reader.result()
