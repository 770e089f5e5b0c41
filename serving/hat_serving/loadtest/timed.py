"""A model behind an OpenAI-compatible engine as a replay uses it: streamed, with the times that the client sees.

Always holds: a call never raises for what the engine does; a failed one is kept with its kind. Times are of the client:
network and the engine's queue are in them. Not here: retries (none: a replay counts failures), agents (replay).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import orjson

from hat_harness.events import CallModel, Failure, ModelDelta, ModelOutput
from hat_serving.gateway import wire
from hat_serving.gateway.sockets import connector


@dataclass(slots=True)
class CallRecord:
    """One model call. Seconds; 0 where there was nothing to time."""

    ttft: float = 0.0
    """To the first token, of whatever kind: text, reasoning or a tool call."""
    seconds: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    failure: str = ""

    @property
    def decode(self) -> float:
        """Completion tokens a second from the first token on; 0 where one piece brought them all."""
        span = self.seconds - self.ttft
        return (self.tokens_out - 1) / span if self.tokens_out > 1 and span > 1e-6 else 0.0


@dataclass
class Endpoint:
    """Where the engine is. `url` is without `/v1`; a token goes as bearer token."""

    url: str
    model: str = "default"
    token: str = field(default="", repr=False)
    temperature: float = 0.0
    timeout_s: float = 60.0
    client: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Endpoint:
        """Open the connections."""
        timeout = aiohttp.ClientTimeout(total=self.timeout_s)
        self.client = aiohttp.ClientSession(connector=connector(), timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them."""
        if self.client is not None:
            await self.client.close()

    async def text(self, path: str) -> str:
        """The body of a GET; "" when there is none."""
        assert self.client is not None
        try:
            async with self.client.get(self.url + path, timeout=aiohttp.ClientTimeout(total=5)) as answer:
                return await answer.text() if answer.status == 200 else ""
        except (aiohttp.ClientError, TimeoutError, OSError):
            return ""


class TimedModel:
    """`hat_harness.ports.AsyncModel` of one request; `calls` has what was measured."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.calls: list[CallRecord] = []

    async def generate(self, session_id: str, call: CallModel) -> ModelOutput | Failure:
        """The output of one call, once it is whole."""
        result: ModelOutput | Failure = wire.malformed(call.call_id, "no answer")
        async for piece in self.stream(session_id, call):
            if not isinstance(piece, ModelDelta):
                result = piece
        return result

    async def stream(self, session_id: str, call: CallModel) -> AsyncIterator[ModelDelta | ModelOutput | Failure]:
        """Content as it comes, then the output or a failure; the call is recorded."""
        record = CallRecord()
        self.calls.append(record)
        began = time.perf_counter()
        result: ModelOutput | Failure
        try:
            reader = wire.StreamReader(call.call_id)
            async for chunk in self._chunks(call):
                if not record.ttft and has_token(chunk):
                    record.ttft = time.perf_counter() - began
                for text in reader.feed(chunk):
                    yield ModelDelta(call.call_id, text)
                if reader.done or reader.broken:
                    break
            result = reader.result()
        except TimeoutError:
            result = Failure("call", "timeout", call.call_id, "no answer in time")
        except (aiohttp.ClientError, OSError) as error:
            result = Failure("call", "unavailable", call.call_id, str(error)[:200] or type(error).__name__)
        record.seconds = time.perf_counter() - began
        if isinstance(result, ModelOutput):
            record.tokens_in, record.tokens_out = result.prompt_tokens, result.completion_tokens
        else:
            record.failure = result.kind
        yield result

    async def _chunks(self, call: CallModel) -> AsyncIterator[bytes]:
        endpoint = self._endpoint
        assert endpoint.client is not None
        body = wire.request_body(call, endpoint.model, stream=True, temperature=endpoint.temperature)
        headers = {"Content-Type": "application/json"}
        if endpoint.token:
            headers["Authorization"] = f"Bearer {endpoint.token}"
        async with endpoint.client.post(f"{endpoint.url}/v1/chat/completions", data=body, headers=headers) as answer:
            if answer.status != 200:
                told = (await answer.content.read(300)).decode(errors="replace")
                raise aiohttp.ClientError(f"the engine answered {answer.status}: {told}")
            async for chunk in answer.content.iter_any():
                yield chunk


def has_token(chunk: bytes) -> bool:
    """Whether a piece of a stream brings a token: text, reasoning or a part of a tool call."""
    for line in chunk.split(b"\n"):
        if not line.startswith(b"data: {"):
            continue
        try:
            for choice in orjson.loads(line[6:]).get("choices") or ():
                delta = choice.get("delta") or {}
                if delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls"):
                    return True
        except (ValueError, AttributeError, TypeError):
            continue
    return False
