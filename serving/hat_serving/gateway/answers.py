"""The bodies that go back to clients: chat completions, responses, room messages, whole and as chunks.

Always holds: what comes out is what OpenAI's clients parse. Not here: what clients send (chat), the order of events (streaming).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import orjson

from hat_harness.events import ToolRequest
from hat_serving.gateway import brought
from hat_serving.gateway.turns import Answer


def chat_answer(answer: Answer, model: str) -> dict[str, Any]:
    """A chat completion; silence is empty content with `finish_reason: stop`."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.calls:
        message = {**message, "content": answer.text or None, "tool_calls": tool_calls(answer)}
    finish = "tool_calls" if answer.calls else "stop"
    return {
        "id": f"chatcmpl-{answer.conversation}-{answer.turn.index}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": usage(answer),
    }


def tool_calls(answer: Answer) -> list[dict[str, Any]]:
    """The calls that the client is to make, as OpenAI writes them."""
    return [_call(answer.conversation, call) for call in answer.calls]


def _call(conversation: str, call: ToolRequest) -> dict[str, Any]:
    arguments = orjson.dumps(dict(call.arguments)).decode()
    own = brought.call_id(conversation, call.call_id)
    return {"id": own, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def usage(answer: Answer) -> dict[str, int]:
    """Tokens over all model calls of the turn, but for those that an earlier answer told."""
    taken = answer.turn.prompt_tokens - answer.counted[0]
    made = answer.turn.completion_tokens - answer.counted[1]
    return {"prompt_tokens": taken, "completion_tokens": made, "total_tokens": taken + made}


def chunk(
    identity: str,
    model: str,
    created: int,
    delta: Mapping[str, Any] | None = None,
    finish: str | None = None,
    usage: Mapping[str, int] | None = None,
) -> bytes:
    """One server-sent event of a streamed chat completion; without a delta it has no choice, only the usage.

    `created`: seconds since the epoch, the same in all chunks.
    """
    body: dict[str, Any] = {
        "id": identity,
        "object": "chat.completion.chunk",
        "created": created,
        "model": model,
        "choices": [] if delta is None else [{"index": 0, "delta": dict(delta), "finish_reason": finish}],
    }
    if usage is not None:
        body["usage"] = dict(usage)
    return b"data: " + orjson.dumps(body) + b"\n\n"


def response_answer(answer: Answer, model: str) -> dict[str, Any]:
    """A response object of `/v1/responses`; what its client is to call stands after the message."""
    named = f"{answer.conversation}_{answer.turn.index}"
    body = response_body(named, model, "completed", answer.text, usage(answer))
    return {**body, "output": [*body["output"], *response_calls(answer)]}


def response_calls(answer: Answer) -> list[dict[str, Any]]:
    """The calls that the client is to make, as items of a response."""
    return [
        {
            "type": "function_call",
            "id": f"fc_{call['id']}",
            "call_id": call["id"],
            **call["function"],
            "status": "completed",
        }
        for call in tool_calls(answer)
    ]


def response_body(
    identity: str, model: str, status: str, text: str, used: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """A response object in one of its states; without usage it has no output yet."""
    body: dict[str, Any] = {
        "id": f"resp_{identity}",
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "model": model,
        "output": [] if used is None else [response_message(identity, text)],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    if used is not None:
        names = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens", "total_tokens": "total_tokens"}
        body["usage"] = {names[key]: value for key, value in used.items()}
        body["usage"] |= {
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        }
    return body


def response_message(identity: str, text: str) -> dict[str, Any]:
    """The one message of a response."""
    return {
        "type": "message",
        "id": f"msg_{identity}",
        "status": "completed",
        "role": "assistant",
        "content": [response_part(text)],
    }


def response_part(text: str) -> dict[str, Any]:
    """The one part of its message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def details(answer: Answer) -> dict[str, Any]:
    """What happened inside a turn: calls, hooks, timings."""
    turn = answer.turn
    calls = ("tool", "arguments", "result", "failure", "recorded")
    hooks = ("hook", "event", "action", "fired", "error", "message")
    return {
        "seconds": answer.seconds,
        "first_text_s": answer.first_s,
        "model_calls": turn.model_calls,
        "rounds": turn.rounds,
        "restarts": turn.restarts,
        "reason": turn.reason,
        "calls": [{name: getattr(call, name) for name in calls} for call in turn.calls],
        "hooks": [{name: getattr(hook, name) for name in hooks} for hook in turn.hooks],
    }


def room_answer(answer: Answer, inside: bool = False) -> dict[str, Any]:
    """The answer of a room route; `inside` adds the details."""
    told = _room_answer(answer)
    return {**told, "details": details(answer)} if inside else told


def _room_answer(answer: Answer) -> dict[str, Any]:
    return {
        "conversation": answer.conversation,
        "turn": answer.turn.index,
        "text": answer.text,
        "outcome": answer.turn.outcome,
        "skills": list(answer.turn.skills),
        "tools": [call.tool for call in answer.turn.calls],
        "arm": answer.arm,
        "release": answer.release,
        "harness": answer.harness,
        "usage": usage(answer),
    }
