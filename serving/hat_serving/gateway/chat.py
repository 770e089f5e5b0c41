"""What clients send to `/v1/chat/completions`, `/v1/responses` and `/v1/rooms/{room}/messages`, read into one turn.

Always holds: a field that the gateway does not honour is refused by name, never ignored. docs/gateway.md has the table, and a
test compares it with `CHAT_FIELDS` and `RESPONSE_FIELDS`. Not here: what goes back (answers), HTTP (app), turns (host).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from hat_harness.events import RoomEvent, ToolResult, ViewerMessage
from hat_serving.errors import RequestError
from hat_serving.gateway import brought
from hat_serving.gateway.turns import Ask

CHAT_FIELDS = {"model", "messages", "stream", "stream_options", "user", "metadata", "n", "store"}
CHAT_FIELDS |= {"tools", "tool_choice", "parallel_tool_calls"}
RESPONSE_FIELDS = {"model", "input", "stream", "user", "metadata", "previous_response_id", "store", "conversation"}
RESPONSE_FIELDS |= {"tools", "tool_choice", "parallel_tool_calls"}
ROOM_FIELDS = {"model", "viewer", "text", "texts", "viewers", "event", "data", "state", "details"}
ROOM_EVENTS = ("viewer_entered", "order_placed", "item_on_sale", "state")
MAX_TEXT = 8_000
MAX_RESULT = 64 * 1024
"""Characters of a result of a client's tool."""
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
    """A chat completion request. `conversation` is the named one, "" without a name; then the viewer has one."""
    _only(body, CHAT_FIELDS)
    _exactly(body, "n", (None, 1))
    _exactly(body, "store", (None, False))
    tools = _tools(body)
    messages = body.get("messages")
    if not isinstance(messages, list) or not 0 < len(messages) <= MAX_MESSAGES:
        raise RequestError(f"needs 1 to {MAX_MESSAGES} messages", place="messages")
    said = [_said(index, message) for index, message in enumerate(messages)]
    last = max((index for index, one in enumerate(said) if one.role == "assistant"), default=-1)
    new = said[last + 1 :]
    if new and all(one.role == "tool" for one in new):
        return _results(body, conversation, unit, new, tools)
    if not new or not all(one.role == "user" for one in new):
        raise RequestError(
            "the last message is not a viewer's",
            place="messages",
            cure="end with user messages, or with the results of all calls",
        )
    texts = tuple(one.text for one in new)
    turns = [(one.role, one.text) for one in said if one.role != "tool" and not one.calls]
    history = _history(turns[: len(turns) - len(new)])
    _text(body, "user", optional=True)
    key = conversation or unit or _derived(turns[:1])
    event = ViewerMessage(texts, (unit or key,) * len(texts))
    return _parsed(body, Ask(_text(body, "model"), key, unit or key, event, history=history, tools=tools))


def _results(
    body: Mapping[str, Any], conversation: str, unit: str, given: Sequence[_Said], tools: brought.Brought | None
) -> Parsed:
    """A request that brings the results of calls which an answer asked for; their ids name the conversation."""
    results, key = [], conversation
    for one in given:
        named = brought.read_call_id(one.call_id, key)
        if named is None:
            field = "call_id" if one.place.startswith("input") else "tool_call_id"
            why = "names no call of this conversation"
            raise RequestError(why, place=f"{one.place}.{field}", cure="send the id that came with the call")
        key = named[0]
        results.append(ToolResult(named[1], one.text))
    return _parsed(body, Ask(_text(body, "model"), key, unit or key, None, tools=tools, results=tuple(results)))


def _tools(body: Mapping[str, Any], *, flat: bool = False) -> brought.Brought | None:
    _exactly(body, "tool_choice", (None, "auto"))
    _exactly(body, "parallel_tool_calls", (None, True))
    return brought.read(body["tools"], flat=flat) if body.get("tools") is not None else None


def _parsed(body: Mapping[str, Any], ask: Ask) -> Parsed:
    options = body.get("stream_options") or {}
    if not isinstance(options, dict) or set(options) - {"include_usage"}:
        raise RequestError("only include_usage is honoured", place="stream_options")
    return Parsed(ask, _flag(body, "stream"), bool(options.get("include_usage")))


def read_responses(body: Mapping[str, Any], conversation: str, unit: str) -> Parsed:
    """A `/v1/responses` request; `previous_response_id` continues the conversation that its answer named.

    `conversation` is the named one, by header or field; "" without a name.
    """
    _only(body, RESPONSE_FIELDS)
    _exactly(body, "store", (None, True, False))
    tools = _tools(body, flat=True)
    _text(body, "user", optional=True)
    named = _text(body, "conversation", optional=True)
    previous = _text(body, "previous_response_id", optional=True, most=128).removeprefix("resp_").rpartition("_")[0]
    if previous and named:
        raise RequestError(
            "does not go together with conversation", place="previous_response_id", cure="send one of them"
        )
    key = conversation or previous or unit
    given = body.get("input")
    if isinstance(given, str):
        texts: tuple[str, ...] = (_bounded(given, "input"),)
    elif isinstance(given, list) and given:
        said = [_item(index, one) for index, one in enumerate(given)]
        results = [one for one in said if one.role == "tool"]
        if results and said[-1].role == "tool":
            return _results(body, key, unit, results, tools)
        if any(one.role != "user" for one in said):
            raise RequestError("earlier turns are kept by the gateway", place="input", cure="use previous_response_id")
        texts = tuple(one.text for one in said)
    else:
        raise RequestError("needs a text or a list of user messages", place="input")
    key = key or _derived([("user", texts[0])])
    event = ViewerMessage(texts, (unit or key,) * len(texts))
    return Parsed(Ask(_text(body, "model"), key, unit or key, event, tools=tools), _flag(body, "stream"))


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


# ---- reading --------------------------------------------------------------------------------------------------


def _only(body: Mapping[str, Any], fields: set[str]) -> None:
    for name in body:
        if name in {"tools", "tool_choice", "functions", "function_call"} - fields:
            cure = "bring tools over /v1/chat/completions, in its field tools"
            raise RequestError("the release brings its own tools", place=name, cure=cure)
        if name not in fields:
            raise RequestError("this field is not honoured; the release sets how it samples", place=str(name)[:64])


@dataclass(frozen=True, slots=True)
class _Said:
    """One message of a request."""

    place: str
    role: str
    text: str
    calls: bool = False
    """It asked for calls of the client's tools."""
    call_id: str = ""


def _item(index: int, item: Any) -> _Said:
    """One item of a response's input: a message, a call that was answered, or a call's result."""
    place = f"input[{index}]"
    kind = item.get("type") if isinstance(item, dict) else None
    if kind == "function_call":
        return _Said(place, "assistant", "", calls=True)
    if kind == "function_call_output":
        output = item.get("output")
        if not isinstance(output, str) or len(output) > MAX_RESULT:
            raise RequestError(f"needs a text of at most {MAX_RESULT} characters", place=f"{place}.output")
        return _Said(place, "tool", output, call_id=_text(item, "call_id", most=1024))
    return _said(index, item, "input")


def _said(index: int, message: Any, field: str = "messages") -> _Said:
    place = f"{field}[{index}]"
    if not isinstance(message, dict):
        raise RequestError("a message is a JSON object", place=place)
    role = message.get("role")
    if role not in {"user", "assistant", "tool"}:
        told = "the harness writes the system prompt" if role in {"system", "developer"} else "user or assistant"
        raise RequestError(f"role {str(role)[:20]!r} is not taken", place=f"{place}.role", cure=told)
    calls = role == "assistant" and bool(message.get("tool_calls"))
    content = message.get("content")
    if calls and content is None:
        return _Said(place, role, "", calls)
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        if len(parts) != len(content) or not all(isinstance(part, str) for part in parts):
            raise RequestError("only text parts are taken", place=f"{place}.content")
        content = "\n".join(str(part) for part in parts)
    if not isinstance(content, str):
        raise RequestError("content is a text", place=f"{place}.content")
    if role == "tool":
        if len(content) > MAX_RESULT:
            raise RequestError(f"the result has more than {MAX_RESULT} characters", place=f"{place}.content")
        return _Said(place, role, content, call_id=_text(message, "tool_call_id", most=1024))
    return _Said(place, role, content if calls else _bounded(content, f"{place}.content"), calls)


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


def _derived(turns: Sequence[tuple[str, str]]) -> str:
    """A conversation id for clients that send the whole history instead of one: how it began, and when."""
    began = orjson.dumps([list(turns), time.time_ns()])
    return "c" + hashlib.sha256(began).hexdigest()[:24]


def _bounded(text: str, place: str) -> str:
    if not text.strip():
        raise RequestError("the text is empty", place=place)
    if len(text) > MAX_TEXT:
        raise RequestError(f"the text has more than {MAX_TEXT} characters", place=place)
    return text


def _text(body: Mapping[str, Any], name: str, *, optional: bool = False, most: int = 256) -> str:
    value = body.get(name)
    if value is None and optional:
        return ""
    if not isinstance(value, str) or not value or len(value) > most:
        raise RequestError(f"needs a text of 1 to {most} characters", place=name)
    return value


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value not in (None, True, False):
        raise RequestError("is true or false", place=name)
    return bool(value)


def _exactly(body: Mapping[str, Any], name: str, allowed: tuple[Any, ...]) -> None:
    if body.get(name) not in allowed:
        raise RequestError(f"only {allowed[-1]!r} is honoured", place=name)
