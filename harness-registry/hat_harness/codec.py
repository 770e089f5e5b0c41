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
_ENCODERS: dict[type, Callable[[Any], dict[str, Any]]] = {}
_MISSING = dataclasses.MISSING


def encode(record: Any) -> dict[str, Any]:
    """One record as a JSON object, without its `type`."""
    encoder = _ENCODERS.get(type(record))
    if encoder is None:
        encoder = _ENCODERS[type(record)] = _encoder(type(record))
    return encoder(record)


def _encoder(cls: type) -> Callable[[Any], dict[str, Any]]:
    """The encoder of one class, written out and compiled as dataclasses writes `__init__`: a trace encodes thousands."""
    known: dict[str, Any] = {"plain": _plain, "kept": _PLAIN}
    lines = ["def encoder(record):", " data = {}"]
    for item in dataclasses.fields(cls):
        name, indent = item.name, " "
        lines.append(f" value = record.{name}")
        default = item.default if item.default_factory is _MISSING else item.default_factory()
        if default is not _MISSING:
            known[f"default_{name}"] = default
            lines.append(f" if value is not default_{name} and value != default_{name}:")
            indent = "  "
        lines.append(f"{indent}data[{name!r}] = value if type(value) in kept else plain(value)")
    exec("\n".join([*lines, " return data"]), known)  # noqa: S102 - names of dataclass fields, nothing from outside
    made: Callable[[Any], dict[str, Any]] = known["encoder"]
    return made


_PLAIN = frozenset({str, int, float, bool, dict, type(None)})


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        if value and type(value[0]) in (int, float, str):
            return list(value)
        return [_plain(item) for item in value]
    if type(value) in _ENCODERS or dataclasses.is_dataclass(value):
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
