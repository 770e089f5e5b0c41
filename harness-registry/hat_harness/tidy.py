"""What a driver hands in, made fit to store: text that is Unicode, arguments and room data that are JSON.

Always holds: a tidy event comes back as the same object; half a surrogate pair becomes `?`; a call whose arguments are not
a JSON object keeps its name and gets an `error`. So a trace can always be written. Not here: whether a call makes sense.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hat_harness import events as ev
from hat_harness.errors import SessionError
from hat_harness.events import Event

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_SURROGATE = re.compile("[\ud800-\udfff]")


def _clean(text: str) -> str:
    return text if text.isascii() or not _SURROGATE.search(text) else _SURROGATE.sub("?", text)


def _is_json(value: Any) -> bool:
    if type(value) is dict and all(type(key) is str and key.isascii() and _plain(value[key]) for key in value):
        return True
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return text.isascii() or not _SURROGATE.search(text)


def _plain(value: Any) -> bool:
    """Whether a value is JSON at one look: most arguments are."""
    kind = type(value)
    return (kind is str and value.isascii()) or kind is int or kind is bool or value is None


def _call(call: ev.ToolCall) -> ev.ToolCall:
    if isinstance(call.arguments, Mapping) and _is_json(dict(call.arguments)):
        return call if call.name.isascii() else replace(call, name=_clean(call.name))
    return replace(
        call, name=_clean(call.name), arguments={}, error=call.error or "the arguments are not a JSON object"
    )


def _output(event: ev.ModelOutput) -> ev.ModelOutput:
    calls = tuple([_call(call) for call in event.tool_calls]) if event.tool_calls else ()
    content, reasoning = _clean(event.content), _clean(event.reasoning)
    same = content is event.content and reasoning is event.reasoning
    if same and all(new is old for new, old in zip(calls, event.tool_calls, strict=True)):
        return event
    return replace(event, content=content, reasoning=reasoning, tool_calls=calls)


def tidy(event: Event) -> Event:
    """The event as it may be stored. SessionError for a room event whose data are not JSON."""
    change = _TIDY.get(type(event))
    return event if change is None else change(event)


def _result(event: ev.ToolResult) -> ev.ToolResult:
    content = _clean(event.content)
    return event if content is event.content else replace(event, content=content)


def _delta(event: ev.ModelDelta) -> ev.ModelDelta:
    text = _clean(event.text)
    return event if text is event.text else replace(event, text=text)


def _message(event: ev.ViewerMessage) -> ev.ViewerMessage:
    texts = tuple([_clean(text) for text in event.texts])
    return event if texts == event.texts else replace(event, texts=texts)


def _room(event: ev.RoomEvent) -> ev.RoomEvent:
    if not (_is_json(dict(event.data)) and _is_json(event.state)):
        raise SessionError(f"the data of a room event {event.kind} are not JSON", cure="send texts, numbers and lists")
    return event


_TIDY: dict[type, Callable[[Any], Event]] = {
    ev.ModelOutput: _output,
    ev.ToolResult: _result,
    ev.ModelDelta: _delta,
    ev.ViewerMessage: _message,
    ev.RoomEvent: _room,
}
