"""OpenAI conversations to token ids, with SGLang's reading of messages, tools and thinking switches.

Always holds: what a template sees is what SGLang would show it: empty fields left out, text parts joined with a blank,
tool arguments as objects, a final assistant message turned into a user's unless it is to be continued.
Not here: answers (openai).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hat_serving.engine.engine import Engine
from hat_serving.engine.errors import CallError
from hat_serving.engine.protocol import NO_LORA, ROLES, ChatBody, Message, NamedChoice
from hat_serving.engine.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation ready to be continued."""

    ids: list[int]
    params: SamplingParams
    thinking: bool
    """Whether the text counts as reasoning until the thinking block is closed."""
    tools: tuple[str, ...]
    """Names whose calls are parsed; empty: calls stay text."""


def chat_prompt(engine: Engine, body: ChatBody) -> ChatPrompt:
    """Render and encode a body. CallError in SGLang's words."""
    _validate(body)
    options = _template_options(body)
    tools = [] if body.tool_choice == "none" else body.tools or []
    parsed = bool(engine.options.tool_call_parser and tools)
    shown = [tool.model_dump(exclude_unset=True) for tool in tools]
    for tool in shown:
        tool.setdefault("type", "function")
        tool["function"].setdefault("description", None)
        tool["function"].setdefault("parameters", None)
    if body.input_ids is not None:
        ids = list(body.input_ids)
    else:
        messages, prefix = _messages(body)
        text = engine.model.text.render(messages, shown, options)
        ids = engine.model.text.encode(text, add_special_tokens=False)
        if prefix:
            ids += engine.model.text.encode(prefix, add_special_tokens=False)
    thinking = engine.options.reasoning_parser is not None and engine.thinking.forces(options)
    skip = body.skip_special_tokens and not tools
    return ChatPrompt(
        ids, _params(engine, body, skip), thinking, tuple(tool.function.name for tool in tools) if parsed else ()
    )


def _validate(body: ChatBody) -> None:
    body.refuse_absent()
    if not body.messages:
        raise CallError("Messages cannot be empty.")
    if "chat_template" in (body.chat_template_kwargs or {}):
        raise CallError(
            "Request-supplied chat_template is not allowed. Start the server with --trust-request-chat-template to "
            "permit it."
        )
    if ":" in body.model and not body.model.startswith(("/", ".")):
        raise CallError(NO_LORA.format(body.model.split(":", 1)[1]))
    names = [tool.function.name for tool in body.tools or []]
    if body.tool_choice == "required" and not names:
        raise CallError("Tools cannot be empty if tool choice is set to required.")
    if isinstance(body.tool_choice, NamedChoice):
        if not names:
            raise CallError("Tools cannot be empty if tool choice is set to a specific tool.")
        if body.tool_choice.function.name not in names:
            raise CallError(f"Tool '{body.tool_choice.function.name}' not found in tools list.")
    if body.tool_choice == "required" or isinstance(body.tool_choice, NamedChoice):
        raise CallError("a forced tool_choice needs constrained decoding, which this engine has not")
    if any(tool.function.strict for tool in body.tools or []):
        raise CallError("strict tools need constrained decoding, which this engine has not")
    if body.response_format is not None and body.response_format.type != "text":
        raise CallError(
            f"response_format {body.response_format.type} needs constrained decoding, which this engine has not"
        )


def _template_options(body: ChatBody) -> dict[str, Any]:
    options = dict(body.chat_template_kwargs or {})
    if body.reasoning_effort is not None:
        thinking = body.reasoning_effort != "none"
        options = {"thinking": thinking, "enable_thinking": thinking, **options}
        options.setdefault("reasoning_effort", body.reasoning_effort)
    return options


def _messages(body: ChatBody) -> tuple[list[dict[str, Any]], str]:
    """(messages as the template sees them, text that the answer is to continue)."""
    found = [_message(message) for message in body.messages]
    final = found[-1]
    if final["role"] == "assistant":
        if body.continue_final_message:
            return found[:-1], str(final["content"])
        found[-1] = {"role": "user", "content": final["content"]}
    return found, ""


def _message(message: Message) -> dict[str, Any]:
    role = message.role if message.role == "user" else message.role.lower()
    if role not in ROLES:
        allowed = ", ".join(repr(name) for name in ROLES)
        raise CallError(f"'role' must be one of {allowed} (case-insensitive).", type_name="Bad Request")
    if role == "user":
        if message.content is None:
            raise CallError("a user message needs content", type_name="Bad Request")
        return {"role": "user", "content": _content(message.content)}
    made: dict[str, Any] = {"role": role, "content": _content(message.content)}
    for name in ("tool_call_id", "name", "reasoning_content"):
        if getattr(message, name) is not None:
            made[name] = getattr(message, name)
    if message.tool_calls is not None:
        made["tool_calls"] = [call.model_dump() for call in message.tool_calls]
        if role == "assistant":
            for call in made["tool_calls"]:
                call["function"]["arguments"] = _arguments(call["function"]["arguments"])
    return made


def _content(content: str | list[dict[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    pieces = []
    for part in content:
        kind = part.get("type")
        if kind not in {"text", "input_text"}:
            raise CallError(f"Model only supports text input; received unsupported content type '{kind}'.")
        pieces.append(str(part.get("text", "")))
    return " ".join(pieces)


def _arguments(given: str | dict[str, Any] | None) -> Any:
    if not isinstance(given, str):
        return given
    try:
        found = json.loads(given)
    except ValueError:
        raise CallError("Assistant tool call function.arguments must be valid JSON.", type_name="BadRequest") from None
    if not isinstance(found, dict):
        raise CallError("Assistant tool call function.arguments must be a JSON object.", type_name="BadRequest")
    return found


def _params(engine: Engine, body: ChatBody, skip_special_tokens: bool) -> SamplingParams:
    """The request's parameters; else the model's defaults; else OpenAI's."""
    defaults = engine.model.folder.defaults

    def value(name: str, default: float) -> float:
        given = getattr(body, name)
        return float(defaults.get(name, default)) if given is None else float(given)

    return SamplingParams(
        max_new_tokens=body.max_completion_tokens or body.max_tokens,
        min_new_tokens=body.min_tokens,
        temperature=value("temperature", 1.0),
        top_p=value("top_p", 1.0),
        top_k=int(value("top_k", -1)),
        min_p=value("min_p", 0.0),
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        repetition_penalty=value("repetition_penalty", 1.0),
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        stop_token_ids=frozenset(body.stop_token_ids or ()),
        ignore_eos=body.ignore_eos,
        skip_special_tokens=skip_special_tokens,
        no_stop_trim=body.no_stop_trim,
        logit_bias=bias(body.logit_bias),
        sampling_seed=body.seed,
    )


def bias(given: dict[str, float] | None) -> dict[int, float]:
    """`logit_bias` with integer keys. CallError."""
    try:
        return {int(token): value for token, value in (given or {}).items()}
    except ValueError:
        raise CallError("logit_bias must have token ids as keys") from None
