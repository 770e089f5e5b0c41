"""Any OpenAI-compatible chat endpoint as a `BatchModel`: what evaluates a served model and asks a teacher.

Always holds: a request is bounded in time and made once (a session has its own retries); whatever the server does
becomes a `ModelOutput` or a `Failure`, never an exception. Not here: streaming (hat_serving), retries (the session).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hat_components.sessions import openai_message
from hat_components.step import InputError
from hat_harness.events import CallModel, Failure, FailureKind, FinishReason, ModelOutput, ToolCall

_FINISH: Mapping[str, FinishReason] = {"stop": "stop", "tool_calls": "tool_calls", "length": "length"}


class Endpoint:
    """A client of one endpoint and model; use as a context manager."""

    def __init__(
        self, url: str, model: str, *, key_variable: str, parallel: int, timeout_s: float, temperature: float, seed: int
    ) -> None:
        if not url.startswith(("http://", "https://")) or not model:
            raise InputError("an endpoint needs a URL and a model name", place="endpoint", cure="http(s)://HOST/v1")
        import httpx

        key = os.environ.get(key_variable, "")
        self._url = url.rstrip("/") + "/chat/completions"
        self._body = {"model": model, "temperature": temperature, "seed": seed}
        self._client = httpx.Client(timeout=timeout_s, headers={"Authorization": f"Bearer {key}"} if key else {})
        self._pool = ThreadPoolExecutor(parallel)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._client.close()

    def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
        """One output or failure per call, in order; up to `parallel` requests at a time."""
        return list(self._pool.map(lambda pair: self._ask(*pair), calls))

    def _ask(self, session_id: str, call: CallModel) -> ModelOutput | Failure:
        import httpx

        body = {
            **self._body,
            "messages": [openai_message(message) for message in call.messages],
            "max_tokens": call.max_tokens,
        }
        body["user"] = session_id
        if call.tools:
            body["tools"] = [dict(tool) for tool in call.tools]
        try:
            response = self._client.post(self._url, json=body)
        except httpx.TimeoutException:
            return Failure("call", "timeout", call.call_id)
        except httpx.HTTPError as error:
            return Failure("call", "unavailable", call.call_id, str(error)[:200])
        if response.status_code != 200:
            return Failure("call", _kind(response.status_code), call.call_id, f"HTTP {response.status_code}")
        try:
            return _output(call.call_id, response.json())
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            return Failure("call", "malformed", call.call_id, f"{type(error).__name__}: {error}"[:200])


def _kind(status: int) -> FailureKind:
    if status == 429:
        return "rate_limit"
    return "timeout" if status in (408, 504) else "server"


def _output(call_id: str, body: Mapping[str, Any]) -> ModelOutput:
    choice = body["choices"][0]
    message, usage = choice["message"], body.get("usage") or {}
    calls = tuple(_call(raw) for raw in message.get("tool_calls") or ())
    return ModelOutput(
        call_id,
        content=message.get("content") or "",
        reasoning=message.get("reasoning_content") or message.get("reasoning") or "",
        tool_calls=calls,
        finish_reason="tool_calls" if calls else _FINISH.get(str(choice.get("finish_reason")), "stop"),
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        completion_tokens=int(usage.get("completion_tokens") or 0),
    )


def _call(raw: Mapping[str, Any]) -> ToolCall:
    function = raw["function"]
    text = function.get("arguments") or "{}"
    try:
        arguments = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return ToolCall(str(raw["id"]), str(function["name"]), {}, error="arguments are not JSON")
    if not isinstance(arguments, dict):
        return ToolCall(str(raw["id"]), str(function["name"]), {}, error="arguments are not an object")
    return ToolCall(str(raw["id"]), str(function["name"]), arguments)
