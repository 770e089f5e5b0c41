"""Bodies of requests, as far as this engine takes them; field names and defaults are SGLang's and OpenAI's.

Always holds: a field that SGLang knows and this engine has not is refused by name when it is set to something that
would change the answer; fields that neither knows are ignored, as SGLang ignores them. Not here: answers (native,
openai).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hat_serving.engine.errors import CallError
from hat_serving.engine.sampling import SamplingParams

MOST_ANSWERS = 128
"""Answers to one prompt."""

ABSENT = (
    "regex",
    "ebnf",
    "json_schema",
    "structural_tag",
    "stop_regex",
    "lora_path",
    "session_params",
    "custom_logit_processor",
    "return_hidden_states",
    "return_routed_experts",
    "return_sampling_mask",
    "image_data",
    "audio_data",
    "video_data",
    "input_embeds",
    "beam_width",
    "watermark",
    "best_of",
    "suffix",
)
"""What SGLang has and this engine has not."""

NO_LORA = (
    "LoRA adapter '{}' was requested, but LoRA is not enabled. Please launch the server with --enable-lora flag and "
    "preload adapters using --lora-paths or /load_lora_adapter endpoint."
)

ROLES = ("system", "assistant", "tool", "function", "developer", "latest_reminder", "root", "user")


class Body(BaseModel):
    """Base of all bodies: unknown fields are kept aside, so that `refuse_absent` can see them."""

    model_config = ConfigDict(extra="allow")

    def refuse_absent(self) -> None:
        """CallError for a set field of SGLang's that this engine has not."""
        for name, value in (self.__pydantic_extra__ or {}).items():
            if name in ABSENT and value not in (None, False, [], {}, ""):
                raise CallError(
                    NO_LORA.format(value) if name == "lora_path" else f"{name} is not served by this engine"
                )


class FunctionSpec(BaseModel):
    """A tool's function. `key_order` keeps the client's order, in which templates render it."""

    model_config = ConfigDict(extra="allow")

    name: str
    description: str | None = None
    parameters: Any = None
    strict: bool | None = None


class Tool(BaseModel):
    """A tool that the model may call."""

    model_config = ConfigDict(extra="ignore")

    type: str = "function"
    function: FunctionSpec


class NamedChoice(BaseModel):
    """`tool_choice` that names a tool."""

    class Function(BaseModel):
        """The named function."""

        name: str | None = None

    type: Literal["function"] = "function"
    function: Function


class CalledFunction(BaseModel):
    """What an earlier assistant message called."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class CalledTool(BaseModel):
    """A tool call of an earlier assistant message."""

    id: str | None = None
    index: int | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(extra="ignore")

    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CalledTool] | None = None


class StreamOptions(BaseModel):
    """What a stream brings besides deltas."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class ResponseFormat(BaseModel):
    """Only `text` is served; other types need constrained decoding."""

    type: Literal["text", "json_object", "json_schema", "structural_tag"]


class ChatBody(Body):
    """`POST /v1/chat/completions`."""

    messages: list[Message]
    model: str = "default"
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int = 1
    response_format: ResponseFormat | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    min_tokens: int = 0
    tools: list[Tool] | None = None
    tool_choice: NamedChoice | Literal["auto", "required", "none"] | None = None
    parallel_tool_calls: bool = True
    reasoning_effort: str | float | None = None
    no_stop_trim: bool = False
    ignore_eos: bool = False
    continue_final_message: bool = False
    skip_special_tokens: bool = True
    separate_reasoning: bool = True
    stream_reasoning: bool = True
    chat_template_kwargs: dict[str, Any] | None = None
    return_meta_info: bool = False
    return_prompt_token_ids: bool = False
    return_token_ids: bool = False
    return_spec_tokens_details: bool = False
    return_cached_tokens_details: bool = False
    input_ids: list[int] | None = None
    rid: str | None = None


class CompletionBody(Body):
    """`POST /v1/completions`."""

    prompt: str | list[int] | list[list[int]] | list[str]
    model: str = "default"
    echo: bool = False
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[str, float] | None = None
    logprobs: int | None = None
    max_tokens: int = 16
    n: int = 1
    response_format: ResponseFormat | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    min_tokens: int = 0
    no_stop_trim: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    return_token_ids: bool = False
    rid: str | list[str] | None = None


class GenerateBody(Body):
    """`POST /generate`, SGLang's own route."""

    text: str | list[str] | None = None
    input_ids: list[int] | list[list[int]] | None = None
    sampling_params: dict[str, Any] | list[dict[str, Any]] | None = None
    rid: str | list[str] | None = None
    return_logprob: bool | list[bool] | None = None
    logprob_start_len: int | list[int] | None = None
    top_logprobs_num: int | list[int] | None = None
    token_ids_logprob: list[int] | list[list[int]] | None = None
    return_text_in_logprobs: bool = False
    stream: bool = False


class TokenizeBody(Body):
    """`POST /tokenize`."""

    prompt: str | list[str]
    add_special_tokens: bool = True


class DetokenizeBody(Body):
    """`POST /detokenize`."""

    tokens: list[int] | list[list[int]]
    skip_special_tokens: bool = True


class UpdateWeightsBody(Body):
    """`POST /update_weights_from_disk`."""

    model_path: str
    load_format: str | None = None
    abort_all_requests: bool = False
    weight_version: str | None = None
    keep_pause: bool = False
    flush_cache: bool = True


class VersionBody(Body):
    """`POST /update_weight_version`."""

    new_version: str
    abort_all_requests: bool = True


class AbortBody(Body):
    """`POST /abort_request`."""

    rid: str | None = None
    abort_all: bool = False


class PauseBody(Body):
    """`POST /pause_generation`."""

    mode: Literal["abort", "retract", "in_place"] = "abort"


class ParseCallsBody(Body):
    """`POST /parse_function_call`."""

    text: str
    tools: list[Tool] = Field(default_factory=list)
    tool_call_parser: str | None = None


class SeparateReasoningBody(Body):
    """`POST /separate_reasoning`."""

    text: str
    reasoning_parser: str


_KNOWN = set(SamplingParams.__dataclass_fields__) | {"n"}
_SGLANG_KNOWN = {
    *("json_schema", "regex", "ebnf", "structural_tag", "stop_regex", "beam_width", "watermark"),
    *("spaces_between_special_tokens", "stream_interval", "custom_params", "choice"),
}


class UnknownFieldError(CallError):
    """A sampling parameter that SGLang does not know either; its error body is a bare string."""


def sampling_params(given: Mapping[str, Any] | None) -> tuple[SamplingParams, int]:
    """(parameters, n) of SGLang's `sampling_params` object. CallError for what is unknown, absent or malformed."""
    given = {name: value for name, value in (given or {}).items() if value is not None}
    for name, value in given.items():
        if name in _SGLANG_KNOWN:
            if name in ABSENT and value not in (False, "", [], {}):
                raise CallError(f"{name} is not served by this engine")
        elif name not in _KNOWN:
            known = ", ".join(f"`{known}`" for known in sorted(_KNOWN | _SGLANG_KNOWN))
            raise UnknownFieldError(f"unknown field `{name}`, expected one of {known}")
    n = answers(given.pop("n", 1))
    stop = given.pop("stop", ())
    try:
        params = SamplingParams(
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            stop_token_ids=frozenset(given.pop("stop_token_ids", ())),
            logit_bias={int(token): float(bias) for token, bias in given.pop("logit_bias", {}).items()},
            **{name: value for name, value in given.items() if name in _KNOWN},
        )
        numbers = (params.temperature, params.top_p, params.min_p, params.frequency_penalty, params.presence_penalty)
        if not all(isinstance(number, int | float) for number in (*numbers, params.top_k, params.repetition_penalty)):
            raise TypeError("a number was expected")
    except (TypeError, ValueError, AttributeError) as error:
        raise CallError(f"sampling_params cannot be read: {error}") from None
    if "max_new_tokens" not in (given or {}):
        params.max_new_tokens = 128
    return params, n


def answers(n: Any) -> int:
    """How many answers a prompt gets; SGLang takes 0 for one. CallError."""
    if not isinstance(n, int) or n > MOST_ANSWERS:
        raise CallError(f"n must be an integer up to {MOST_ANSWERS}, got {n}")
    return max(n, 1)


def describe(error: ValidationError) -> str:
    """The message of a body that does not validate, in the manner of SGLang's."""
    found = error.errors(include_url=False, include_context=False)
    lines = [{"type": one["type"], "loc": ("body", *one["loc"]), "msg": one["msg"]} for one in found]
    count = len(lines)
    return f"{count} validation error{'s' if count > 1 else ''}:\n" + "\n".join(f"  {line}" for line in lines)
