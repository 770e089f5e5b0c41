"""MLflow traces as conversations: what the chat spans of a trace sent and got, in OpenAI chat format.

Read are `Trace.to_json` (`info`, `data.spans`), rows of `search_traces().to_json(orient="records", lines=True)` and a bare
list of spans, of the trace schemas 2 and 3. A chat span says `messages` in its inputs and a message in its outputs, as
`mlflow.openai.autolog` writes them, or both in `mlflow.chat.messages`. Always holds: an agent's calls of one conversation,
each with all messages so far, become one conversation, not many that repeat each other; no span is dropped in silence.
Not here: whether the conversation is sound (conversation), viewers (step).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_CHAT = ("CHAT_MODEL", "LLM")
USER, SESSION = "mlflow.trace.user", "mlflow.trace.session"
"""Keys of a trace's metadata."""


def is_trace(raw: Any) -> bool:
    """Whether an imported object is an MLflow trace, and no conversation."""
    if not isinstance(raw, Mapping) or "messages" in raw:
        return False
    data = raw.get("data")
    return (isinstance(data, Mapping) and "spans" in data) or "spans" in raw or ("trace" in raw and "trace_id" in raw)


def conversations_of(raw: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """(conversations of one trace with `id`, `user`, `session`, `messages`, `tools`; problems)."""
    spans, metadata, ident = _opened(raw)
    if not isinstance(spans, list) or not all(isinstance(span, Mapping) for span in spans):
        return [], ["an MLflow trace whose spans are no list of objects"]
    problems: list[str] = []
    found: list[dict[str, Any]] = []
    for span in sorted(spans, key=_started):
        one = _chat(span, problems)
        if one is not None:
            found = [other for other in found if not _goes_on(other, one)]
            found.append(one)
    if not found and not problems:
        problems.append("an MLflow trace without a chat span: none has messages in its inputs")
    known = {"user": metadata.get(USER), "session": metadata.get(SESSION)}
    for number, one in enumerate(found):
        one["id"] = ident if number == 0 else f"{ident}-{number + 1}"
        one.update({key: str(value) for key, value in known.items() if value})
        del one["asked"]
    return found, problems


def _opened(raw: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any], str]:
    """(spans, metadata, id) of any of the forms."""
    inner = _loaded(raw.get("trace"))
    if isinstance(inner, Mapping) and "data" in inner:
        raw = inner
    info, data = raw.get("info"), raw.get("data")
    info = info if isinstance(info, Mapping) else raw
    spans = _loaded(data.get("spans") if isinstance(data, Mapping) else raw.get("spans"))
    metadata: Mapping[str, Any] = next(
        (info[key] for key in ("trace_metadata", "request_metadata") if isinstance(info.get(key), Mapping)), {}
    )
    ident = info.get("trace_id") or info.get("request_id") or ""
    return spans, metadata, ident if isinstance(ident, str) else ""


def _loaded(value: Any) -> Any:
    """The value of a JSON text; anything else as it is. MLflow writes attributes as JSON, tables write it twice."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _started(span: Mapping[str, Any]) -> int:
    for key in ("start_time_unix_nano", "start_time"):
        value = span.get(key)
        if isinstance(value, int | str) and str(value).isdigit():
            return int(value)
    return 0


def _chat(span: Mapping[str, Any], problems: list[str]) -> dict[str, Any] | None:
    """What a chat span says, or None for a span of another kind and one that says nothing (told in `problems`)."""
    attributes = span.get("attributes")
    if not isinstance(attributes, Mapping):
        return None
    inputs, outputs = _loaded(attributes.get("mlflow.spanInputs")), _loaded(attributes.get("mlflow.spanOutputs"))
    asked = inputs.get("messages") if isinstance(inputs, Mapping) else None
    whole = _loaded(attributes.get("mlflow.chat.messages"))
    chat = _loaded(attributes.get("mlflow.spanType")) in _CHAT
    if not chat or not (isinstance(asked, list) or isinstance(whole, list)):
        return None
    answer = _answer(outputs)
    if answer is not None and isinstance(asked, list):
        messages: Any = [*asked, answer]
    elif isinstance(whole, list):
        messages, asked = whole, whole[:-1]
    else:
        problems.append(f"the span {str(span.get('name'))[:60]!r} has no answer: {_status(span)}")
        return None
    tools = inputs.get("tools") if isinstance(inputs, Mapping) else None
    tools = _loaded(attributes.get("mlflow.chat.tools")) if tools is None else tools
    return {"messages": messages, "tools": tools, "asked": asked}


def _answer(outputs: Any) -> Any:
    """The assistant message of a chat completion, or of outputs that are the message themselves."""
    if not isinstance(outputs, Mapping):
        return None
    choices = outputs.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        return choices[0].get("message")
    return outputs if outputs.get("role") == "assistant" else None


def _status(span: Mapping[str, Any]) -> str:
    status = span.get("status") or span.get("status_code") or "no status"
    code = status.get("code") if isinstance(status, Mapping) else status
    return str(code)[:60]


def _goes_on(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> bool:
    """Whether a later call asked with everything that the earlier one had asked with."""
    first, second = earlier["asked"], later["asked"]
    return len(first) <= len(second) and _told(first) == _told(second[: len(first)])


def _told(messages: Sequence[Any]) -> list[Any]:
    """Messages by what they say, whatever empty fields a client wrote beside it."""
    return [
        {key: value for key, value in message.items() if value not in (None, [], "")}
        if isinstance(message, Mapping)
        else message
        for message in messages
    ]
