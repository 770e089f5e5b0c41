"""Messages to token ids and back, for models of our own chat template.

Always holds: `prefix(m) + sampled + suffix(n)` is what the template renders for m, the sampled message, n, so that
appending never re-tokenises what was sampled; exactly the tokens that a model writes are supervised; `decode` never
raises, whatever the model wrote. Equal to the tokenizer's own chat template, token by token (tested), but faster.
Not here: sampling (generate), the vocabulary (tokenizer).
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from hat_components.model.tokenizer import CALL_ARGUMENTS, CALL_CLOSE, CALL_OPEN, EOS, GUARDS, JSON_GUARDS
from hat_harness.events import FinishReason, Message, ModelOutput, ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ASSISTANT = "<|im_start|>assistant\n"
IGNORED = -100
"""Label of a token that is not supervised."""

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]{1,128})"')


@dataclass(frozen=True, slots=True)
class Row:
    """One training row: `ids` and `labels` of equal length; a label is the token itself where the model wrote it."""

    ids: Sequence[int]
    labels: Sequence[int]

    def supervised(self) -> int:
        """Number of supervised tokens."""
        return sum(1 for label in self.labels if label != IGNORED)

    def compact(self) -> Row:
        """The same row in a ninth of the memory, for data sets that are kept whole."""
        return Row(array("i", self.ids), array("i", self.labels))


def plain(text: str) -> str:
    """Break up what would read as a control token."""
    for old, new in GUARDS:
        if old in text:
            text = text.replace(old, new)
    return text


def _render_call(name: str, arguments: object) -> str:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    for old, new in JSON_GUARDS:
        text = text.replace(old, new)
    return CALL_OPEN + plain(name) + CALL_ARGUMENTS + text + CALL_CLOSE


def assistant_text(message: Mapping[str, Any] | Message) -> str:
    """What the model writes for this message, the end marker not included."""
    if isinstance(message, Message):
        calls = [_render_call(call.name, dict(call.arguments)) for call in message.tool_calls]
        reasoning, content = message.reasoning, message.content
    else:
        functions = [call.get("function") or call for call in message.get("tool_calls") or ()]
        calls = [_render_call(function["name"], function.get("arguments")) for function in functions]
        reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
        content = message.get("content") or ""
    thought = f"<think>{plain(reasoning)}</think>" if reasoning else ""
    return thought + plain(content) + "".join(calls)


def with_tools(
    messages: Sequence[Mapping[str, Any] | Message], tools: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any] | Message]:
    """The messages with function definitions at the end of the system message, one JSON line each; as they are where
    there are none (a harness that lists its tools inline)."""
    if not tools:
        return messages
    text = "\n".join(["# functions", *(json.dumps(tool.get("function") or tool, ensure_ascii=False) for tool in tools)])
    first = messages[0] if messages else None
    if first is None or _role(first) != "system":
        return [Message("system", text), *messages]
    return [Message("system", f"{_content(first)}\n{text}"), *messages[1:]]


def _role(message: Mapping[str, Any] | Message) -> str:
    return message.role if isinstance(message, Message) else str(message["role"])


def _content(message: Mapping[str, Any] | Message) -> str:
    return message.content if isinstance(message, Message) else str(message.get("content") or "")


class Codec:
    """Encodes and decodes with one tokenizer. Messages are `hat_harness.events.Message` or OpenAI-style dicts."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        backend: Any = tokenizer.backend_tokenizer
        self._encode = lru_cache(maxsize=4096)(lambda text: tuple(backend.encode(text, add_special_tokens=False).ids))
        self.eos = int(backend.token_to_id(EOS))
        self.newline = self._encode("\n")
        self.opener = self._encode(ASSISTANT)

    def encode_text(self, text: str) -> list[int]:
        """Ids of a bare text."""
        return list(self._encode(text))

    def encode_prefix(
        self, messages: Sequence[Mapping[str, Any] | Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Ids of a conversation up to the point where the assistant starts to write; `tools` are function definitions."""
        ids: list[int] = []
        for message in with_tools(messages, tools):
            ids += self._message(message)
        ids += self.opener
        return ids

    def encode_suffix(self, messages: Sequence[Mapping[str, Any] | Message], closed: bool = True) -> list[int]:
        """What to append after a sampled assistant message so that the assistant can write again.

        `closed` is False where the sample ended without the end marker (it ran into its token limit).
        """
        ids = [] if closed else [self.eos]
        ids += self.newline
        for message in messages:
            ids += self._message(message)
        ids += self.opener
        return ids

    def _message(self, message: Mapping[str, Any] | Message) -> list[int]:
        role = _role(message)
        if role == "assistant":
            return [*self.opener, *self._encode(assistant_text(message)), self.eos, *self.newline]
        return [
            *self._encode(f"<|im_start|>{role}\n"),
            *self._encode(plain(_content(message))),
            self.eos,
            *self.newline,
        ]

    def row(self, messages: Sequence[Mapping[str, Any] | Message], tools: Sequence[Mapping[str, Any]] = ()) -> Row:
        """A training row. A dict message with `"train": false` is context only (a failed step of a trajectory)."""
        ids: list[int] = []
        labels: list[int] = []
        for message in with_tools(messages, tools):
            piece = self._message(message)
            ids += piece
            if _role(message) == "assistant" and (isinstance(message, Message) or message.get("train", True)):
                start, end = len(self.opener), len(piece) - len(self.newline)
                labels += [IGNORED] * start + piece[start:end] + [IGNORED] * len(self.newline)
            else:
                labels += [IGNORED] * len(piece)
        return Row(tuple(ids), tuple(labels))

    def text(self, ids: Iterable[int]) -> str:
        """The text of ids, control tokens included."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def parse(
        self, ids: Sequence[int], call_id: str, tools: Sequence[Mapping[str, Any]]
    ) -> tuple[str, str, tuple[ToolCall, ...]]:
        """Reasoning, content and calls of sampled ids without their end marker; never raises."""
        return parse_output(self.text(ids), call_id)

    def decode(
        self,
        ids: Sequence[int],
        call_id: str = "",
        logprobs: Sequence[float] = (),
        prompt_tokens: int = 0,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> ModelOutput:
        """What the model wrote, as a message. A malformed call becomes a ToolCall whose `error` says why. `tools` type
        the arguments where a template writes them as bare text."""
        sampled = tuple(int(i) for i in ids)
        closed = self.eos in sampled
        reasoning, content, calls = self.parse(
            sampled[: sampled.index(self.eos)] if closed else sampled, call_id, tools
        )
        finish: FinishReason = "length" if not closed else "tool_calls" if calls else "stop"
        return ModelOutput(
            call_id=call_id,
            content=content,
            reasoning=reasoning,
            tool_calls=calls,
            finish_reason=finish,
            token_ids=sampled,
            logprobs=tuple(logprobs),
            prompt_tokens=prompt_tokens,
            completion_tokens=len(sampled),
        )


def parse_output(text: str, call_id: str = "") -> tuple[str, str, tuple[ToolCall, ...]]:
    """Split what a model wrote into reasoning, content and calls; never raises."""
    reasoning = ""
    if text.startswith("<think>"):
        reasoning, closed, text = text.removeprefix("<think>").partition("</think>")
        if not closed:
            return reasoning, "", ()
    bodies = _CALL.findall(text)
    content = _CALL.sub("", text).strip() if bodies else text.strip()
    prefix = call_id or "call"
    return reasoning, content, tuple(parse_call(body, f"{prefix}-{n}") for n, body in enumerate(bodies, 1))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def parse_call(body: str, identifier: str) -> ToolCall:
    """Parse the JSON between the call markers; what cannot be parsed keeps the name if one can be read."""
    found = _NAME.search(body)
    name = found.group(1) if found else ""
    try:
        call = json.loads(body, parse_constant=_no_constant)
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            return ToolCall(identifier, name, {}, error="the call is not an object with a name")
        arguments = call.get("arguments", {})
        if isinstance(arguments, str):
            arguments = json.loads(arguments, parse_constant=_no_constant)
        if not isinstance(arguments, dict):
            return ToolCall(identifier, call["name"], {}, error="the arguments are not an object")
        return ToolCall(identifier, call["name"], arguments)
    except (ValueError, RecursionError) as error:
        return ToolCall(identifier, name, {}, error=f"the call is not JSON: {str(error)[:120]}")
