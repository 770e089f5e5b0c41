"""Answers of `/v1/chat/completions`, whole and streamed, in SGLang's shapes.

Always holds: streamed deltas join to what the whole answer holds; field names, their order of presence and their nulls
are SGLang 0.5.23's (a contract test compares them). Not here: prompts (prompts), completions (completions).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from hat_serving.engine.engine import Engine, Generation
from hat_serving.engine.native import meta_info, spec_info
from hat_serving.engine.prompts import ChatPrompt
from hat_serving.engine.protocol import ChatBody, StreamOptions, answers
from hat_serving.engine.reasoning import ReasoningSplitter
from hat_serving.engine.request import LogprobWish, Progress, Request
from hat_serving.engine.streams import merged
from hat_serving.engine.toolcalls import CallPiece, CallStream, parse_calls

DONE = b"data: [DONE]\n\n"


def sse(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(value) + b"\n\n"


def open_chat(engine: Engine, body: ChatBody, prompt: ChatPrompt) -> list[Generation]:
    """Queue the body's n generations. CallError."""
    wish = LogprobWish(len(prompt.ids), body.top_logprobs or 0) if body.logprobs else None
    count = answers(body.n)
    return [
        engine.open(
            prompt.ids,
            prompt.params,
            stream=body.stream,
            wish=wish,
            rid=body.rid if count == 1 else None,
            reasoning=prompt.thinking,
        )
        for _ in range(count)
    ]


def chat_answer(
    engine: Engine, body: ChatBody, prompt: ChatPrompt, found: Sequence[tuple[Request, Progress]]
) -> dict[str, Any]:
    """The whole answer."""
    first = found[0][0]
    made: dict[str, Any] = {
        "id": first.id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.model,
        "choices": [_choice(engine, body, prompt, index, *one) for index, one in enumerate(found)],
        "usage": usage(engine, found),
        "metadata": weight_metadata(first, found[0][1]),
    }
    extra = _extra(body, found)
    return made | ({"sglext": extra} if extra else {})


def _choice(
    engine: Engine, body: ChatBody, prompt: ChatPrompt, index: int, request: Request, progress: Progress
) -> dict[str, Any]:
    reasoning, text = "", progress.text
    finish = progress.finish or {}
    kind, matched = finish.get("type"), finish.get("matched")
    if engine.options.reasoning_parser and body.separate_reasoning:
        reasoning, text = ReasoningSplitter(force=prompt.thinking).whole(text)
    message: dict[str, Any] = {"role": "assistant", "content": text, "reasoning_content": reasoning or None}
    calls = parse_calls(text, prompt.tools) if prompt.tools else None
    if calls is not None:
        message["content"] = calls[0]
        if calls[1]:
            message["tool_calls"] = [
                {
                    "id": _call_id(),
                    "index": place,
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                for place, (name, arguments) in enumerate(calls[1])
            ]
            if kind == "stop":
                kind, matched = "tool_calls", None
    made: dict[str, Any] = {
        "index": index,
        "message": message,
        "logprobs": chat_logprobs(engine, request, 0, progress.completion_tokens) if body.logprobs else None,
        "finish_reason": kind,
        "matched_stop": matched,
    }
    if body.return_prompt_token_ids or body.return_token_ids:
        made["prompt_token_ids"] = request.prompt
    if body.return_token_ids:
        made["response_token_ids"] = progress.tokens
    if body.return_meta_info:
        made["meta_info"] = meta_info(engine, request, progress)
    return made


def chat_logprobs(engine: Engine, request: Request, start: int, end: int) -> dict[str, Any]:
    """OpenAI's log-probabilities of generated tokens `start` to `end`."""
    text, kept = engine.model.text, request.logprobs

    def one(logprob: float | None, token: int) -> dict[str, Any]:
        return {"token": text.token_text(token), "bytes": text.token_bytes(token), "logprob": logprob}

    tops = kept.output_top
    return {
        "content": [
            {**one(*kept.output[place]), "top_logprobs": [one(*entry) for entry in tops[place] or []]}
            for place in range(start, min(end, len(kept.output)))
        ]
    }


def token_usage(engine: Engine, prompt: int, completion: int, reasoning: int, cached: int) -> dict[str, Any]:
    """SGLang's `usage`."""
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached} if engine.options.enable_cache_report else None,
        "reasoning_tokens": reasoning,
        "completion_tokens_details": {"reasoning_tokens": reasoning} if reasoning else None,
    }


def usage(engine: Engine, found: Sequence[tuple[Request, Progress]], choices: int | None = None) -> dict[str, Any]:
    """The sum over all choices; a prompt counts once for its `choices` answers."""
    firsts = found[:: choices or len(found)]
    return token_usage(
        engine,
        sum(len(request.prompt) for request, _ in firsts),
        sum(progress.completion_tokens for _, progress in found),
        sum(progress.reasoning_tokens for _, progress in found),
        sum(request.cached for request, _ in firsts),
    )


def weight_metadata(request: Request, progress: Progress) -> dict[str, Any]:
    """Which weights answered."""
    version = request.weight_version
    return {
        "weight_version": version,
        "weight_versions": [{"version": version, "start": 0, "end": progress.completion_tokens}],
    }


def wants_usage(options: StreamOptions | None) -> tuple[bool, bool]:
    """(a final usage chunk, usage in every chunk)."""
    return (bool(options.include_usage), bool(options.continuous_usage_stats)) if options else (False, False)


def error_body(message: str, type_name: str, status: int) -> dict[str, Any]:
    """SGLang's error object of the OpenAI routes."""
    return {"object": "error", "message": message, "type": type_name, "param": None, "code": status}


def _extra(body: ChatBody, found: Sequence[tuple[Request, Progress]]) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if body.return_cached_tokens_details and found[0][0].cached:
        extra["cached_tokens_details"] = {"device": found[0][0].cached, "host": 0}
    details = [_spec_details(request) for request, _ in found if spec_info(request)]
    if body.return_spec_tokens_details and details:
        extra["spec_tokens_details"] = details if body.n > 1 else details[0]
    return extra


def _spec_details(request: Request) -> dict[str, Any]:
    info = {name: value for name, value in spec_info(request).items() if name.startswith("spec_")}
    return {**info, "spec_cap_length": 0.0, "spec_block_accept_length": 0.0, "spec_cap_lens_histogram": []}


def _call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


@dataclass(slots=True)
class _Streamed:
    """What was streamed of one choice."""

    splitter: ReasoningSplitter | None
    calls: CallStream | None
    shown: int = 0
    noted: int = 0
    called: bool = False
    began: bool = False
    last: Progress | None = None


@dataclass(slots=True)
class ChatStream:
    """Turns snapshots of a chat's generations into events."""

    engine: Engine
    body: ChatBody
    prompt: ChatPrompt
    generations: Sequence[Generation]
    created: int = field(default_factory=lambda: int(time.time()))

    async def events(self) -> AsyncIterator[bytes]:
        """All events, `[DONE]` included."""
        states = [self._state() for _ in self.generations]
        async for index, progress in merged(self.generations):
            state, request = states[index], self.generations[index].request
            state.last = progress
            status = (progress.finish or {}).get("status_code")
            if isinstance(status, int):
                message = str((progress.finish or {}).get("message"))
                yield sse({"error": error_body(message, "SERVICE_UNAVAILABLE", status)}) + DONE
                return
            events = [] if state.began else [self._content(request, index, role="assistant", content="")]
            state.began = True
            yield b"".join([*events, *self._deltas(state, request, progress, index)])
        yield b"".join(self._closing(states))

    def _state(self) -> _Streamed:
        reasons = self.engine.options.reasoning_parser and self.body.separate_reasoning
        splitter = ReasoningSplitter(force=self.prompt.thinking, stream=self.body.stream_reasoning) if reasons else None
        return _Streamed(splitter, CallStream(self.prompt.tools) if self.prompt.tools else None)

    def _deltas(self, state: _Streamed, request: Request, progress: Progress, index: int) -> list[bytes]:
        delta, state.shown = progress.text[state.shown :], len(progress.text)
        ended = progress.finish is not None
        noted, spent = self._noted(state, request, progress), self._spent(request, progress)
        events: list[bytes] = []
        reasoning, content = "", delta
        if state.splitter is not None:
            reasoning, content = state.splitter.feed(delta)
            if ended:
                more = state.splitter.end()
                reasoning, content = reasoning + more[0], content + more[1]
        if reasoning:
            events.append(self._content(request, index, reasoning_content=reasoning, logprobs=noted, usage=spent))
            noted = None
        if state.calls is not None:
            content, pieces = self._called(state.calls, content, ended)
            if content:
                events.append(self._piece(request, index, {"content": content}, spent))
            for piece in pieces:
                state.called = True
                events.append(self._piece(request, index, {"tool_calls": [_call_delta(piece)]}, spent))
        elif content:
            events.append(self._content(request, index, content=content, logprobs=noted, usage=spent))
            noted = None
        parsers = self.engine.options.reasoning_parser or self.engine.options.tool_call_parser
        if noted is not None and parsers:
            events.append(self._content(request, index, logprobs=noted, usage=spent))
        return events

    @staticmethod
    def _called(calls: CallStream, content: str, ended: bool) -> tuple[str, list[CallPiece]]:
        text, pieces = calls.feed(content)
        if ended:
            more, rest = calls.end()
            text, pieces = text + more, pieces + rest
        return text, pieces

    def _noted(self, state: _Streamed, request: Request, progress: Progress) -> dict[str, Any] | None:
        if not self.body.logprobs or state.noted >= progress.completion_tokens:
            return None
        start, state.noted = state.noted, progress.completion_tokens
        return chat_logprobs(self.engine, request, start, progress.completion_tokens)

    def _spent(self, request: Request, progress: Progress) -> dict[str, Any] | None:
        if not wants_usage(self.body.stream_options)[1]:
            return None
        return usage(self.engine, [(request, progress)])

    def _closing(self, states: Sequence[_Streamed]) -> list[bytes]:
        events: list[bytes] = []
        found: list[tuple[Request, Progress]] = []
        for index, state in enumerate(states):
            assert state.last is not None
            assert state.last.finish is not None
            request, kind = self.generations[index].request, state.last.finish["type"]
            found.append((request, state.last))
            if kind == "stop" and state.called and state.calls is not None and not state.calls.incomplete:
                kind = "tool_calls"
            matched = state.last.finish.get("matched")
            events.append(self._content(request, index, finish_reason=kind, matched_stop=matched))
        request = found[-1][0]
        extra = _extra(self.body, found)
        if extra:
            events.append(sse({**self._head(request), "choices": [], "usage": None, "sglext": extra}))
        if wants_usage(self.body.stream_options)[0]:
            events.append(sse({**self._head(request), "choices": [], "usage": usage(self.engine, found)}))
        return [*events, DONE]

    def _head(self, request: Request) -> dict[str, Any]:
        return {
            "id": request.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.body.model,
        }

    def _content(self, request: Request, index: int, **parts: Any) -> bytes:
        """A chunk of text or of the end; the delta always has `reasoning_content`."""
        delta = {"reasoning_content": parts.get("reasoning_content")}
        delta |= {name: parts[name] for name in ("role", "content") if name in parts}
        choice = {"index": index, "delta": delta}
        choice |= {name: parts.get(name) for name in ("logprobs", "finish_reason", "matched_stop")}
        chunk = {**self._head(request), "choices": [choice]}
        return sse(chunk | ({"usage": parts["usage"]} if parts.get("usage") else {}))

    def _piece(self, request: Request, index: int, delta: Mapping[str, Any], spent: Any) -> bytes:
        """A chunk of what the tool-call parser lets through; all fields of the delta are there."""
        whole = {"role": None, "content": None, "reasoning_content": None, **delta}
        choice = {"index": index, "delta": whole, "logprobs": None, "finish_reason": None, "matched_stop": None}
        return sse({**self._head(request), "choices": [choice], "usage": spent})


def _call_delta(piece: CallPiece) -> dict[str, Any]:
    function = {"name": piece.name, "arguments": piece.arguments}
    return {"id": _call_id() if piece.name else None, "index": piece.index, "type": "function", "function": function}
