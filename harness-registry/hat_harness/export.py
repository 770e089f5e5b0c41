"""Traces for other tools: OpenAI-format messages and OpenTelemetry GenAI spans, as plain data.

Always holds: nothing is sent anywhere and no SDK is needed; ids follow from the session id, so exporting twice gives
the same spans. Span names and attributes: OpenTelemetry semantic conventions for generative AI (`invoke_agent`,
`chat`, `execute_tool`; `gen_ai.*`), 1.37; ours are under `hatstack.*`. Message contents go out only where the caller
asks for them. Not here: sending (hat_serving), MLflow (hat_components).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from hat_harness.events import Message
from hat_harness.trace import Entry, Segment, Trace

Span = dict[str, Any]
"""name, kind, trace_id (32 hex), span_id (16 hex), parent_id (or ""), start_ns, end_ns, attributes, status."""


def openai_message(message: Message, *, reasoning: bool = True) -> dict[str, Any]:
    """One message in OpenAI chat format; arguments as a JSON string, reasoning as `reasoning_content`."""
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name:
        found["name"] = message.name
    if message.reasoning and reasoning:
        found["reasoning_content"] = message.reasoning
    if message.tool_calls:
        found["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)},
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        found["tool_call_id"] = message.tool_call_id
    return found


def _conversation(segment: Segment, reasoning: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"messages": [openai_message(item, reasoning=reasoning) for item in segment.messages]}
    if segment.tools:
        found["tools"] = [dict(tool) for tool in segment.tools]
    return found


def to_openai(trace: Trace, *, reasoning: bool = True) -> str:
    """JSON lines, one conversation a segment: `{"messages": [...], "tools": [...]}`."""
    lines = [json.dumps(_conversation(segment, reasoning), ensure_ascii=False) for segment in trace.segments]
    return "".join(line + "\n" for line in lines)


# ---- spans ----------------------------------------------------------------------------------------------------


def _hex(length: int, *parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode(errors="replace")).hexdigest()[:length]


def _output(text: str, finish: str) -> str:
    """The conventions' JSON of an assistant message."""
    parts = [{"type": "text", "content": text}]
    return json.dumps([{"role": "assistant", "parts": parts, "finish_reason": finish}], ensure_ascii=False)


class _Spans:
    """Gathers the spans of one trace."""

    def __init__(self, trace: Trace, contents: bool) -> None:
        self.trace = trace
        self.contents = contents
        self.trace_id = _hex(32, "trace", trace.session)
        self.common = {"gen_ai.conversation.id": trace.session, "gen_ai.provider.name": "hatstack"}
        self.open: dict[str, Span] = {}
        self.turn: Span | None = None
        self.found: list[Span] = []

    def start(self, name: str, key: str, entry: Entry, parent: str, attributes: dict[str, Any]) -> Span:
        span = {
            "name": name,
            "kind": "CLIENT" if name.startswith("chat") else "INTERNAL",
            "trace_id": self.trace_id,
            "span_id": _hex(16, self.trace.session, key),
            "parent_id": parent,
            "start_ns": int(entry.at * 1e9),
            "end_ns": int(entry.at * 1e9),
            "attributes": {**attributes, **self.common},
            "status": "UNSET",
        }
        self.open[key] = span
        self.found.append(span)
        return span

    def end(self, key: str, entry: Entry, attributes: Mapping[str, Any], error: str = "") -> None:
        span = self.open.pop(key, None)
        if span is None:
            return
        span["end_ns"] = int(entry.at * 1e9)
        span["attributes"] |= attributes
        if error:
            span["status"] = "ERROR"
            span["attributes"]["error.type"] = error

    def take(self, entry: Entry) -> None:
        """One entry of the trace."""
        data, parent = entry.data, self.turn["span_id"] if self.turn else ""
        match entry.kind, entry.type:
            case "note", "turn":
                attributes = {
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.agent.name": self.trace.harness_name,
                    "hatstack.harness": self.trace.harness,
                    "hatstack.turn": entry.turn,
                    "hatstack.event": data["event"],
                }
                self.turn = self.start(
                    f"invoke_agent {self.trace.harness_name}", f"turn {entry.turn}", entry, "", attributes
                )
            case "note", "end":
                text = {"gen_ai.output.messages": _output(data["text"], "stop")} if self.contents else {}
                attributes = {"hatstack.outcome": data["outcome"], "hatstack.reason": data["reason"], **text}
                self.end(f"turn {entry.turn}", entry, attributes, "safe_reply" if data["outcome"] == "safe" else "")
                self.turn = None
            case "action", "CallModel":
                model = data.get("model") or "primary"
                attributes = {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": model,
                    "gen_ai.request.max_tokens": data["max_tokens"],
                    "hatstack.segment": data["segment"],
                }
                self.start(f"chat {model}", data["call_id"], entry, parent, attributes)
            case "event", "ModelOutput":
                self.end(data["call_id"], entry, self.output(data))
            case "action", "CallTools":
                for call in data["calls"]:
                    self.start(
                        f"execute_tool {call['name']}", f"tool {call['call_id']}", entry, parent, self.call(call)
                    )
            case "event", "ToolResult":
                text = {"gen_ai.tool.call.result": data["content"]} if self.contents else {}
                self.end(f"tool {data['call_id']}", entry, text, data.get("failure", ""))
            case "event", "Failure":
                for key in (data.get("call_id", ""), f"tool {data.get('call_id', '')}"):
                    self.end(key, entry, {}, data["kind"])

    def output(self, data: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {"gen_ai.response.finish_reasons": [data.get("finish_reason", "stop")]}
        for name, key in (("prompt_tokens", "input"), ("completion_tokens", "output")):
            if name in data:
                found[f"gen_ai.usage.{key}_tokens"] = data[name]
        if self.contents:
            found["gen_ai.output.messages"] = _output(data.get("content", ""), data.get("finish_reason", "stop"))
        return found

    def call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        found = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call["name"],
            "gen_ai.tool.call.id": call["call_id"],
            "gen_ai.tool.type": "function",
        }
        if self.contents:
            found["gen_ai.tool.call.arguments"] = json.dumps(call["arguments"], ensure_ascii=False)
        return found


def to_spans(trace: Trace, *, contents: bool = False) -> tuple[Span, ...]:
    """One span per turn, model call and tool call, parents first; `contents` puts texts into attributes too.

    A span that never ended (the turn was over first) ends where it began, with status UNSET.
    """
    spans = _Spans(trace, contents)
    for entry in trace.entries:
        spans.take(entry)
    return tuple(spans.found)
