"""The client side of `/v1/chat/completions`, `/v1/responses` and `/v1/rooms/{room}/messages`: bodies in, bodies out.

Always holds: a field that the gateway does not honour is refused by name, never ignored; what comes out is what OpenAI's
clients parse. docs/gateway.md has the table, and a test compares it with `CHAT_FIELDS` and `RESPONSE_FIELDS`.
Not here: HTTP (app), turns (host).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from hat_harness.events import RoomEvent, ViewerMessage
from hat_serving.errors import RequestError
from hat_serving.gateway.host import Answer, Ask

CHAT_FIELDS = {"model", "messages", "stream", "stream_options", "user", "metadata", "n", "store"}
RESPONSE_FIELDS = {"model", "input", "stream", "user", "metadata", "previous_response_id", "store", "conversation"}
ROOM_FIELDS = {"model", "viewer", "text", "texts", "viewers", "event", "data", "state", "details"}
ROOM_EVENTS = ("viewer_entered", "order_placed", "item_on_sale", "state")
MAX_TEXT = 8_000
MAX_MESSAGES = 2_000
MAX_BATCH = 64


@dataclass(frozen=True, slots=True)
class Parsed:
    """A request that the gateway takes."""

    ask: Ask
    stream: bool = False
    usage: bool = False
    details: bool = False
    """What happened inside the turn is told too: for people who look into it, not for viewers."""


def read_json(body: bytes) -> Mapping[str, Any]:
    """The body as a JSON object."""
    try:
        found = orjson.loads(body)
    except ValueError as error:
        raise RequestError(f"the body is not JSON: {error}", place="body") from None
    if not isinstance(found, dict):
        raise RequestError("the body is not a JSON object", place="body")
    return found


def read_chat(body: Mapping[str, Any], conversation: str, unit: str) -> Parsed:
    """A chat completion request. `conversation` is the header's, "" without one."""
    _only(body, CHAT_FIELDS)
    _exactly(body, "n", (None, 1))
    _exactly(body, "store", (None, False))
    messages = body.get("messages")
    if not isinstance(messages, list) or not 0 < len(messages) <= MAX_MESSAGES:
        raise RequestError(f"needs 1 to {MAX_MESSAGES} messages", place="messages")
    turns = [_message(index, message) for index, message in enumerate(messages)]
    last = max((index for index, (role, _) in enumerate(turns) if role == "assistant"), default=-1)
    texts = tuple(text for _, text in turns[last + 1 :])
    if not texts:
        raise RequestError("the last message is not a viewer's", place="messages", cure="end with a user message")
    history = _history(turns[: last + 1])
    user = _text(body, "user", optional=True)
    key = conversation or user or _derived(unit, turns[:1])
    options = body.get("stream_options") or {}
    if not isinstance(options, dict) or set(options) - {"include_usage"}:
        raise RequestError("only include_usage is honoured", place="stream_options")
    ask = Ask(
        _text(body, "model"), key, unit or key, ViewerMessage(texts, (unit or key,) * len(texts)), history=history
    )
    return Parsed(ask, _flag(body, "stream"), bool(options.get("include_usage")))


def read_responses(body: Mapping[str, Any], conversation: str, unit: str) -> Parsed:
    """A `/v1/responses` request; `previous_response_id` continues the conversation that its answer named."""
    _only(body, RESPONSE_FIELDS)
    _exactly(body, "store", (None, True, False))
    given = body.get("input")
    if isinstance(given, str):
        texts: tuple[str, ...] = (_bounded(given, "input"),)
    elif isinstance(given, list) and given:
        turns = [_message(index, message) for index, message in enumerate(given)]
        if any(role != "user" for role, _ in turns):
            raise RequestError("earlier turns are kept by the gateway", place="input", cure="use previous_response_id")
        texts = tuple(text for _, text in turns)
    else:
        raise RequestError("needs a text or a list of user messages", place="input")
    named = _text(body, "conversation", optional=True)
    previous = _text(body, "previous_response_id", optional=True).removeprefix("resp_").rpartition("_")[0]
    key = (
        conversation or named or previous or _text(body, "user", optional=True) or _derived(unit, [("user", texts[0])])
    )
    ask = Ask(_text(body, "model"), key, unit or key, ViewerMessage(texts, (unit or key,) * len(texts)))
    return Parsed(ask, _flag(body, "stream"))


def read_room(body: Mapping[str, Any], room: str, pseudonym: Any) -> Parsed:
    """A comment, a batch or an event of a room. The conversation is that of the viewer in the room."""
    _only(body, ROOM_FIELDS)
    viewer = pseudonym(_text(body, "viewer", optional=True) or room)
    key = f"{pseudonym(room)}.{viewer}"
    kind = body.get("event")
    state = body.get("state")
    if state is not None and not isinstance(state, dict):
        raise RequestError("the room state is a JSON object", place="state")
    event: RoomEvent | ViewerMessage
    if kind is not None:
        if kind not in ROOM_EVENTS:
            raise RequestError(
                f"unknown event {str(kind)[:40]!r}", place="event", cure=f"one of {', '.join(ROOM_EVENTS)}"
            )
        data = body.get("data") or {}
        if not isinstance(data, dict):
            raise RequestError("an event's data is a JSON object", place="data")
        event = RoomEvent(kind, data, state)
    else:
        texts = body.get("texts") or [body.get("text")]
        if (
            not isinstance(texts, list)
            or not 0 < len(texts) <= MAX_BATCH
            or not all(isinstance(one, str) for one in texts)
        ):
            raise RequestError(f"needs text, or 1 to {MAX_BATCH} texts", place="texts")
        bounded = tuple(_bounded(one, "text") for one in texts)
        viewers = tuple(pseudonym(str(one)) for one in body.get("viewers") or ()) or (viewer,) * len(bounded)
        if len(viewers) != len(bounded):
            raise RequestError("as many viewers as texts", place="viewers")
        event = ViewerMessage(bounded, viewers)
    ask = Ask(_text(body, "model"), key, viewer, event, room=dict(state or {}), room_id=room, room_key=pseudonym(room))
    return Parsed(ask, details=_flag(body, "details"))


# ---- answers --------------------------------------------------------------------------------------------------


def chat_answer(answer: Answer, model: str) -> dict[str, Any]:
    """A chat completion; silence is empty content with `finish_reason: stop`."""
    return {
        "id": f"chatcmpl-{answer.conversation}-{answer.turn.index}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": answer.text},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": usage(answer),
    }


def usage(answer: Answer) -> dict[str, int]:
    """Tokens over all model calls of the turn."""
    taken, made = answer.turn.prompt_tokens, answer.turn.completion_tokens
    return {"prompt_tokens": taken, "completion_tokens": made, "total_tokens": taken + made}


def chunk(
    identity: str,
    model: str,
    delta: Mapping[str, Any] | None = None,
    finish: str | None = None,
    usage: Mapping[str, int] | None = None,
) -> bytes:
    """One server-sent event of a streamed chat completion; without a delta it has no choice, only the usage."""
    body: dict[str, Any] = {
        "id": identity,
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": model,
        "choices": [] if delta is None else [{"index": 0, "delta": dict(delta), "finish_reason": finish}],
    }
    if usage is not None:
        body["usage"] = dict(usage)
    return b"data: " + orjson.dumps(body) + b"\n\n"


def response_answer(answer: Answer, model: str) -> dict[str, Any]:
    """A response object of `/v1/responses`."""
    return response_body(f"{answer.conversation}_{answer.turn.index}", model, "completed", answer.text, usage(answer))


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


# ---- reading --------------------------------------------------------------------------------------------------


def _only(body: Mapping[str, Any], fields: set[str]) -> None:
    for name in body:
        if name in {"tools", "tool_choice", "functions", "function_call"}:
            raise RequestError("the release brings its own tools", place=name, cure="leave the field out")
        if name not in fields:
            raise RequestError("this field is not honoured; the release sets how it samples", place=str(name)[:64])


def _message(index: int, message: Any) -> tuple[str, str]:
    place = f"messages[{index}]"
    if not isinstance(message, dict):
        raise RequestError("a message is a JSON object", place=place)
    role = message.get("role")
    if role not in {"user", "assistant"}:
        told = "the harness writes the system prompt" if role in {"system", "developer"} else "user or assistant"
        raise RequestError(f"role {str(role)[:20]!r} is not taken", place=f"{place}.role", cure=told)
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        if len(parts) != len(content) or not all(isinstance(part, str) for part in parts):
            raise RequestError("only text parts are taken", place=f"{place}.content")
        content = "\n".join(str(part) for part in parts)
    if not isinstance(content, str):
        raise RequestError("content is a text", place=f"{place}.content")
    return role, _bounded(content, f"{place}.content")


def _history(turns: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Earlier messages as exchanges; viewer texts in a row belong together."""
    found: list[tuple[str, str]] = []
    said: list[str] = []
    for role, text in turns:
        if role == "user":
            said.append(text)
        elif said:
            found.append(("\n".join(said), text))
            said = []
    return tuple(found)


def _derived(unit: str, turns: Sequence[tuple[str, str]]) -> str:
    """A conversation id for clients that send the whole history instead of one: who, and how it began, and when."""
    began = orjson.dumps([unit, list(turns), time.time_ns()])
    return "c" + hashlib.sha256(began).hexdigest()[:24]


def _bounded(text: str, place: str) -> str:
    if not text.strip():
        raise RequestError("the text is empty", place=place)
    if len(text) > MAX_TEXT:
        raise RequestError(f"the text has more than {MAX_TEXT} characters", place=place)
    return text


def _text(body: Mapping[str, Any], name: str, *, optional: bool = False) -> str:
    value = body.get(name)
    if value is None and optional:
        return ""
    if not isinstance(value, str) or not value or len(value) > 256:
        raise RequestError("needs a text of 1 to 256 characters", place=name)
    return value


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value not in (None, True, False):
        raise RequestError("is true or false", place=name)
    return bool(value)


def _exactly(body: Mapping[str, Any], name: str, allowed: tuple[Any, ...]) -> None:
    if body.get(name) not in allowed:
        raise RequestError(f"only {allowed[-1]!r} is honoured", place=name)
