"""Events, actions and messages as JSON objects, and back.

Always holds: `decode(encode(x)) == x` for every record of hat_harness.events (tuples come back as tuples). An object's
`type` is the class name; fields that equal their default are left out. Not here: the trace that holds them (trace).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from hat_harness import events
from hat_harness.errors import ReplayError

EVENTS: tuple[type, ...] = (
    events.ViewerMessage,
    events.RoomEvent,
    events.ModelDelta,
    events.ModelOutput,
    events.ToolResult,
    events.Failure,
    events.Tick,
    events.Cancel,
)
ACTIONS: tuple[type, ...] = (
    events.CallModel,
    events.CallTools,
    events.Emit,
    events.Wait,
    events.Reply,
    events.Refuse,
    events.Silence,
    events.Restart,
    events.Done,
)
_RECORDS: dict[str, type] = {cls.__name__: cls for cls in (*EVENTS, *ACTIONS)}
_FIELDS: dict[type, tuple[tuple[str, Any], ...]] = {}
_MISSING = object()


def _fields(cls: type) -> tuple[tuple[str, Any], ...]:
    found = _FIELDS.get(cls)
    if found is None:
        found = tuple(
            (
                item.name,
                item.default
                if item.default is not dataclasses.MISSING
                else item.default_factory()
                if item.default_factory is not dataclasses.MISSING
                else _MISSING,
            )
            for item in dataclasses.fields(cls)
        )
        _FIELDS[cls] = found
    return found


def encode(record: Any) -> dict[str, Any]:
    """One record as a JSON object, without its `type`."""
    data: dict[str, Any] = {}
    for name, default in _fields(type(record)):
        value = getattr(record, name)
        if value is not default and value != default:
            data[name] = value if type(value) in _PLAIN else _plain(value)
    return data


_PLAIN = frozenset({str, int, float, bool, dict, type(None)})


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        if value and type(value[0]) in (int, float, str):
            return list(value)
        return [_plain(item) for item in value]
    if type(value) in _FIELDS or dataclasses.is_dataclass(value):
        return encode(value)
    return dict(value) if isinstance(value, Mapping) else value


def decode_message(data: Mapping[str, Any]) -> events.Message:
    """A message from its JSON object."""
    return events.Message(**{**data, "tool_calls": _calls(data)})


def _calls(data: Mapping[str, Any]) -> tuple[events.ToolCall, ...]:
    return tuple(events.ToolCall(**item) for item in data.get("tool_calls", ()))


def _model_output(data: Mapping[str, Any]) -> events.ModelOutput:
    fields = {name: tuple(data[name]) for name in ("token_ids", "logprobs") if name in data}
    return events.ModelOutput(**{**data, **fields, "tool_calls": _calls(data)})


def _viewer_message(data: Mapping[str, Any]) -> events.ViewerMessage:
    return events.ViewerMessage(tuple(data["texts"]), tuple(data.get("viewers", ())))


def _call_tools(data: Mapping[str, Any]) -> events.CallTools:
    return events.CallTools(tuple(events.ToolRequest(**item) for item in data["calls"]))


def _call_model(data: Mapping[str, Any]) -> events.CallModel:
    messages = tuple(decode_message(item) for item in data["messages"])
    return events.CallModel(**{**data, "messages": messages, "tools": tuple(data.get("tools", ()))})


_DECODERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "ModelOutput": _model_output,
    "ViewerMessage": _viewer_message,
    "CallTools": _call_tools,
    "CallModel": _call_model,
}


def decode(type_name: str, data: Mapping[str, Any]) -> Any:
    """The record of class `type_name`. ReplayError for an unknown type or fields that do not fit it."""
    cls = _RECORDS.get(type_name)
    if cls is None:
        raise ReplayError(f"unknown record type {type_name!r}")
    try:
        return _DECODERS[type_name](data) if type_name in _DECODERS else cls(**data)
    except (TypeError, KeyError, AttributeError) as error:
        raise ReplayError(f"a {type_name} record has wrong fields: {error}") from None
