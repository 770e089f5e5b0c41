"""Messages to token ids and back for models that come with a chat template of their own, such as Qwen3.6.

Always holds: as in codec: `prefix(m) + sampled + suffix(n)` is what the template renders, what was sampled is never
tokenised again, and exactly what the model writes is supervised. A template that changes earlier text when a message is
added is replaced by TRL's variant of it that does not, or refused. Not here: our own template (codec).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hat_components.model.codec import IGNORED, Codec, Row, plain
from hat_components.model.tokenizer import CHAT_TEMPLATE, load_tokenizer
from hat_components.step import InputError
from hat_harness.events import Message, ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_PROBE: tuple[dict[str, Any], ...] = ({"role": "user", "content": "x"}, {"role": "assistant", "content": "y"})
"""A conversation before whatever is appended."""


def codec_of(tokenizer: PreTrainedTokenizerFast) -> Codec:
    """The codec of a tokenizer: the fast one for our own template, else the one that asks the template."""
    return Codec(tokenizer) if tokenizer.chat_template == CHAT_TEMPLATE else TemplateCodec(tokenizer)


def load_codec(folder: Path) -> Codec:
    """The codec of a model folder. Raises InputError."""
    return codec_of(load_tokenizer(folder))


class TemplateCodec(Codec):
    """Encodes and decodes with the tokenizer's own chat template. Functions are given to the template."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """The tokenizer's template becomes the one that is trained with, so that a saved folder serves the same."""
        from trl.chat_template_utils import add_response_schema, get_training_chat_template

        if not tokenizer.chat_template or tokenizer.eos_token_id is None:
            raise InputError("the tokenizer has no chat template or no end token", place="tokenizer", cure="give both")
        backend: Any = tokenizer.backend_tokenizer
        self.tokenizer = tokenizer
        self._encode = lru_cache(maxsize=4096)(lambda text: tuple(backend.encode(text, add_special_tokens=False).ids))
        self.eos, self._end = int(tokenizer.eos_token_id), str(tokenizer.eos_token)
        try:
            if getattr(tokenizer, "response_template", None) is None:
                add_response_schema(tokenizer)
            tokenizer.chat_template = get_training_chat_template(tokenizer) or tokenizer.chat_template
        except ValueError as error:
            raise InputError(
                f"the chat template is unknown and cannot be trained with: {str(error)[:200]}",
                place="chat_template",
                cure="give a template that keeps earlier text as messages are added, and a response template",
            ) from error
        before, after = self._render(_PROBE, ()), self._render(_PROBE, (), write=True)
        self._cut = before.rindex(self._end) + len(self._end)
        self._opening = after[len(before) :]
        self._probe = before

    def encode_prefix(
        self, messages: Sequence[Mapping[str, Any] | Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Ids of a conversation up to where the assistant starts to write. Raises ValueError where it cannot be rendered."""
        return list(self._encode(self._render(messages, tools, write=True)))

    def encode_suffix(self, messages: Sequence[Mapping[str, Any] | Message], closed: bool = True) -> list[int]:
        """What to append after a sampled assistant message so that the assistant can write again."""
        whole = self._render([*_PROBE, *messages], (), write=True)
        if not whole.startswith(self._probe[: self._cut]):
            raise ValueError("the chat template changes earlier messages")
        return [*(() if closed else (self.eos,)), *self._encode(whole[self._cut :])]

    def row(self, messages: Sequence[Mapping[str, Any] | Message], tools: Sequence[Mapping[str, Any]] = ()) -> Row:
        """A training row, in the pieces in which a session would have it."""
        ids: list[int] = []
        labels: list[int] = []

        def add(text: str, written: bool) -> None:
            piece = self._encode(text)
            ids.extend(piece)
            labels.extend(piece if written else [IGNORED] * len(piece))

        done = ""
        for number, message in enumerate(messages):
            if _role(message) != "assistant" or (not isinstance(message, Message) and not message.get("train", True)):
                continue
            before = self._render(messages[:number], tools, write=True)
            whole = self._render(messages[: number + 1], tools)
            if not before.startswith(done) or not whole.startswith(before):
                raise ValueError("the chat template changes earlier messages")
            end = whole.rindex(self._end) + len(self._end)
            add(before[len(done) :], False)
            add(whole[len(before) : end], True)
            done = whole[:end]
        add(self._render(messages, tools)[len(done) :], False)
        return Row(tuple(ids), tuple(labels))

    def parse(
        self, ids: Sequence[int], call_id: str, tools: Sequence[Mapping[str, Any]]
    ) -> tuple[str, str, tuple[ToolCall, ...]]:
        """By the tokenizer's response template; a call that cannot be read becomes a ToolCall with an error."""
        from trl.chat_template_utils import parse_response

        try:
            given = [dict(tool) for tool in tools] or None
            found = parse_response(
                self.tokenizer, [*ids, self.eos], prefix=list(self._encode(self._opening)), tools=given
            )
        except Exception:  # whatever the model wrote must not end a session
            found = {"content": self.text(ids)}
        reasoning, content = (str(found.get(name) or "") for name in ("reasoning_content", "content"))
        reasoning, content = reasoning.removesuffix(self._end), content.removesuffix(self._end)
        calls = [
            _call(entry.get("function") or {}, f"{call_id or 'call'}-{n}")
            for n, entry in enumerate(found.get("tool_calls") or (), 1)
        ]
        if not calls and "<tool_call>" in (text := self.text(ids)):
            head, _, body = text.partition("<tool_call>")
            calls = [ToolCall(f"{call_id or 'call'}-1", "", {}, error=f"the call cannot be read: {body.strip()[:80]}")]
            reasoning, _, content = head.rpartition("</think>")
        return reasoning.removeprefix("<think>").strip(), content.strip(), tuple(calls)

    def _render(
        self, messages: Sequence[Mapping[str, Any] | Message], tools: Sequence[Mapping[str, Any]], write: bool = False
    ) -> str:
        from jinja2 import TemplateError

        try:
            return str(
                self.tokenizer.apply_chat_template(
                    [_as_dict(message) for message in messages],
                    tools=[dict(tool) for tool in tools] or None,
                    tokenize=False,
                    add_generation_prompt=write,
                )
            )
        except TemplateError as error:
            raise ValueError(f"the chat template refuses the conversation: {error}") from error


def _role(message: Mapping[str, Any] | Message) -> str:
    return message.role if isinstance(message, Message) else str(message["role"])


def _as_dict(message: Mapping[str, Any] | Message) -> dict[str, Any]:
    """In the shape that templates of transformers read; text of others cannot become a control token."""
    if isinstance(message, Message):
        reasoning, content = message.reasoning, message.content
        calls = [(call.name, dict(call.arguments)) for call in message.tool_calls]
    else:
        reasoning = str(message.get("reasoning_content") or message.get("reasoning") or "")
        content = str(message.get("content") or "")
        functions = [call.get("function") or call for call in message.get("tool_calls") or ()]
        calls = [(function["name"], _arguments(function.get("arguments"))) for function in functions]
    found: dict[str, Any] = {"role": _role(message), "content": _guarded(content)}
    if found["role"] == "assistant":
        found["reasoning_content"] = _guarded(reasoning)
        if calls:
            found["tool_calls"] = [
                {"type": "function", "function": {"name": plain(name), "arguments": arguments}}
                for name, arguments in calls
            ]
    return found


def _guarded(text: str) -> str:
    """Without what would read as a control token, the response marks of Qwen's templates among them."""
    return plain(text).replace("<tool_response>", "< tool_response>").replace("</tool_response>", "< /tool_response>")


def _arguments(given: object) -> dict[str, Any]:
    found = json.loads(given) if isinstance(given, str) else given
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ValueError("the arguments of a call are not an object")
    return {str(name): value for name, value in found.items()}


def _call(function: Mapping[str, Any], identifier: str) -> ToolCall:
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(name, str) or not name:
        return ToolCall(identifier, "", {}, error="the call is not an object with a name")
    try:
        return ToolCall(identifier, name.strip(), _arguments(arguments))
    except ValueError as error:
        return ToolCall(identifier, name.strip(), {}, error=str(error)[:120])
