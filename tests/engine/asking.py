"""Requests that the engine's tests share, and how their answers are read and compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx

from tests.engine.models import TOOLS

GREEDY = {"temperature": 0, "max_new_tokens": 8}

VOLATILE = {
    *("id", "created", "forward_entry_time", "prefill_finished_time", "queue_time", "e2e_latency"),
    *("request_received_ts", "first_token_latency", "api_server_dispatch_finish_ts", "request_finished_ts"),
    *("decode_throughput", "response_sent_to_client_ts"),
}
"""Fields whose values differ from run to run; their types must not."""


def chat(asked: str, **more: Any) -> dict[str, Any]:
    """A greedy chat body."""
    body = {"model": "m", "messages": [{"role": "user", "content": asked}], "temperature": 0, "max_tokens": 120}
    return {**body, **more}


def with_tools(asked: str, **more: Any) -> dict[str, Any]:
    """A greedy chat body that offers the talker's tools."""
    return chat(asked, tools=TOOLS, **more)


def events(response: httpx.Response) -> list[Any]:
    """The JSON events of a stream; `[DONE]` as the last must be there."""
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Where two JSON values differ: in keys, types, values (floats by more than 2e-4), or a volatile field's type."""
    if isinstance(one, dict) and isinstance(other, dict):
        if set(one) != set(other):
            yield f"{place}: {sorted(set(one) - set(other))} against {sorted(set(other) - set(one))}"
        for name in set(one) & set(other):
            if name in VOLATILE:
                if type(one[name]) is not type(other[name]):
                    yield f"{place}.{name}: {one[name]!r} against {other[name]!r}"
            else:
                yield from differences(one[name], other[name], f"{place}.{name}")
    elif isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            yield f"{place}: {one} against {other}"
        for index, (left, right) in enumerate(zip(one, other, strict=False)):
            yield from differences(left, right, f"{place}[{index}]")
    elif isinstance(one, float) and isinstance(other, float | int):
        if abs(one - other) > 2e-4:
            yield f"{place}: {one} against {other}"
    elif one != other or type(one) is not type(other):
        yield f"{place}: {one!r} against {other!r}"


def joined(chunks: list[Any]) -> dict[str, Any]:
    """What a streamed chat says, put together per choice 0."""
    found: dict[str, Any] = {"content": "", "reasoning": "", "calls": {}, "finish": None, "usage": None, "role": None}
    for chunk in chunks:
        found["usage"] = chunk.get("usage") or found["usage"]
        for choice in chunk["choices"]:
            delta = choice["delta"]
            found["role"] = delta.get("role") or found["role"]
            found["content"] += delta.get("content") or ""
            found["reasoning"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or []:
                kept = found["calls"].setdefault(call["index"], {"id": "", "name": "", "arguments": ""})
                kept["id"] = call["id"] or kept["id"]
                kept["name"] = call["function"]["name"] or kept["name"]
                kept["arguments"] += call["function"]["arguments"] or ""
            found["finish"] = choice["finish_reason"] or found["finish"]
            found["matched"] = choice["matched_stop"]
    return found
