"""Between hat_harness records and the OpenAI wire format that engines speak (chat completions, streamed or not).

Always holds: reading never raises for what an engine sends; garbage, a cut stream or an oversized answer becomes a
`Failure`. Not here: connections (upstream), the client-facing side (app).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from hat_harness.events import CallModel, Failure, FailureKind, FinishReason, Message, ModelOutput, ToolCall

MAX_ANSWER = 4 * 1024 * 1024
"""Bytes of one model answer; more is garbage."""
FINISH: dict[str, FinishReason] = {"stop": "stop", "tool_calls": "tool_calls", "length": "length"}
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_THINK = re.compile(r"\A\s*<think>(.*?)(?:</think>|\Z)\s*", re.DOTALL)


def request_body(call: CallModel, model: str, *, stream: bool, temperature: float) -> bytes:
    """The JSON body of `POST /v1/chat/completions` for a call."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [message_out(message) for message in call.messages],
        "max_tokens": call.max_tokens,
        "temperature": temperature,
        "stream": stream,
    }
    if call.tools:
        body["tools"] = list(call.tools)
    if stream:
        body["stream_options"] = {"include_usage": True}
    return orjson.dumps(body)


def message_out(message: Message) -> dict[str, Any]:
    """One context message as the wire has it."""
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        made["reasoning_content"] = message.reasoning
    if message.tool_calls:
        made["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": orjson.dumps(dict(call.arguments)).decode()},
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        made["tool_call_id"] = message.tool_call_id
        if message.name:
            made["name"] = message.name
    return made


def read_answer(call_id: str, body: bytes) -> ModelOutput | Failure:
    """A whole, unstreamed chat completion."""
    try:
        answer = orjson.loads(body)
        choice = answer["choices"][0]
        message = choice["message"]
        return finished(
            call_id,
            content=message.get("content") or "",
            reasoning=message.get("reasoning_content") or "",
            calls=message.get("tool_calls") or [],
            finish=choice.get("finish_reason") or "stop",
            usage=answer.get("usage") or {},
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return malformed(call_id, "the engine's answer is no chat completion")


def finished(
    call_id: str,
    *,
    content: str,
    reasoning: str,
    calls: Sequence[Mapping[str, Any]],
    finish: str,
    usage: Mapping[str, Any],
) -> ModelOutput:
    """A model output from its wire parts; calls and reasoning written into the text are taken out of it."""
    parsed = [_call_in(index, call) for index, call in enumerate(calls)]
    if not reasoning:
        thought = _THINK.match(content)
        if thought:
            reasoning, content = thought.group(1).strip(), content[thought.end() :]
    if not parsed and "<tool_call>" in content:
        parsed = [_written_call(index, found) for index, found in enumerate(_CALL.findall(content))]
        content = _CALL.sub("", content).strip()
    return ModelOutput(
        call_id=call_id,
        content=content,
        reasoning=reasoning,
        tool_calls=tuple(parsed),
        finish_reason="tool_calls" if parsed else FINISH.get(finish, "stop"),
        prompt_tokens=_count(usage, "prompt_tokens"),
        completion_tokens=_count(usage, "completion_tokens"),
    )


def malformed(call_id: str, detail: str) -> Failure:
    """A failure of kind `malformed`."""
    return Failure("call", "malformed", call_id, detail)


def failure_of_status(call_id: str, status: int) -> Failure:
    """What an engine's HTTP status means to the session; 4xx other than 408 and 429 will not get better by retrying."""
    kind: FailureKind = "server"
    if status in {408, 504}:
        kind = "timeout"
    elif status == 429:
        kind = "rate_limit"
    elif status == 503:
        kind = "unavailable"
    elif status < 500:
        kind = "malformed"
    return Failure("call", kind, call_id, f"the engine answered {status}")


class StreamReader:
    """Puts a streamed chat completion together. Feed bytes; take content pieces; ask for the result at the end."""

    __slots__ = (
        "_buffer",
        "_calls",
        "_content",
        "_finish",
        "_reasoning",
        "_usage",
        "broken",
        "call_id",
        "done",
        "size",
    )

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        self.done = False
        self.broken = ""
        self.size = 0
        self._buffer = b""
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish = ""
        self._usage: Mapping[str, Any] = {}

    def feed(self, chunk: bytes) -> list[str]:
        """Content pieces that the bytes complete, in order."""
        self.size += len(chunk)
        if self.size > MAX_ANSWER:
            self.broken = "the engine's answer is too long"
            return []
        self._buffer += chunk
        pieces: list[str] = []
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            if self.broken or self.done or not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                self.done = True
            elif data:
                self._event(data, pieces)
        return pieces

    def result(self) -> ModelOutput | Failure:
        """The output; a failure for a stream that broke or ended early."""
        if self.broken:
            return malformed(self.call_id, self.broken)
        if not self._finish:
            return Failure("call", "unavailable", self.call_id, "the engine's stream ended early")
        return finished(
            self.call_id,
            content="".join(self._content),
            reasoning="".join(self._reasoning),
            calls=[self._calls[index] for index in sorted(self._calls)],
            finish=self._finish,
            usage=self._usage,
        )

    def _event(self, data: bytes, pieces: list[str]) -> None:
        try:
            event = orjson.loads(data)
            if event.get("error"):
                self.broken = "the engine reported an error in its stream"
                return
            self._usage = event.get("usage") or self._usage
            for choice in event.get("choices") or ():
                delta = choice.get("delta") or {}
                self._finish = choice.get("finish_reason") or self._finish
                if delta.get("reasoning_content"):
                    self._reasoning.append(delta["reasoning_content"])
                if delta.get("content"):
                    self._content.append(delta["content"])
                    pieces.append(delta["content"])
                for call in delta.get("tool_calls") or ():
                    self._merge(call)
        except (ValueError, TypeError, AttributeError, KeyError):
            self.broken = "the engine's stream holds something that is no chunk"

    def _merge(self, call: Mapping[str, Any]) -> None:
        kept = self._calls.setdefault(
            int(call.get("index") or 0), {"id": "", "function": {"name": "", "arguments": ""}}
        )
        kept["id"] = call.get("id") or kept["id"]
        function = call.get("function") or {}
        kept["function"]["name"] += function.get("name") or ""
        kept["function"]["arguments"] += function.get("arguments") or ""


def _call_in(index: int, call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function") or {}
    written = function.get("arguments")
    return _tool_call(str(call.get("id") or f"call_{index}"), str(function.get("name") or ""), written)


def _written_call(index: int, text: str) -> ToolCall:
    identity = f"call_{index}"
    try:
        found = orjson.loads(text)
        return _tool_call(identity, str(found["name"]), found.get("arguments"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ToolCall(identity, "", {}, "the call is no JSON object with name and arguments")


def _tool_call(identity: str, name: str, written: Any) -> ToolCall:
    try:
        arguments = orjson.loads(written) if isinstance(written, str | bytes) else written
    except ValueError:
        return ToolCall(identity, name, {}, "the arguments are no JSON")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return ToolCall(identity, name, {}, "the arguments are no JSON object")
    return ToolCall(identity, name, arguments)


def _count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and value >= 0 else 0
