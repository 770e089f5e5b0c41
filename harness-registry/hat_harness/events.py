"""What a session takes in (events) and what it asks for (actions). Plain frozen records; no behaviour, no I/O.

A driver feeds events to `Session.handle` and carries out the actions that come back. Text is Unicode, times are
seconds on the driver's own monotonic clock, token ids are those of the model that sampled them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Json = Any
"""A JSON value. `Any` because a recursive alias costs mypy more than it tells here."""

Scope = Literal["call", "trajectory"]
FailureKind = Literal["timeout", "rate_limit", "server", "malformed", "unavailable", "cancelled"]
FinishReason = Literal["stop", "tool_calls", "length", "error"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model wrote. `arguments` is parsed; `error` says why it could not be parsed or validated."""

    id: str
    name: str
    arguments: Mapping[str, Json]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a segment's append-only context, in OpenAI chat roles."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""


# ---- events ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ViewerMessage:
    """One comment or a batch that is answered together; `viewers` are pseudonyms, as many as `texts`."""

    texts: tuple[str, ...]
    viewers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoomEvent:
    """Something happened in the room; `state` is the room state after it (the part that may be rendered)."""

    kind: Literal["viewer_entered", "order_placed", "item_on_sale", "state"]
    data: Mapping[str, Json] = field(default_factory=dict)
    state: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class ModelDelta:
    """A piece of a streamed model output; `text` is content only, never reasoning."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """A finished model call. `token_ids` and `logprobs` (natural log, one a token) are what was sampled, or empty."""

    call_id: str
    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: FinishReason = "stop"
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered, as text the model will read. `failure` is "" on success; an error is data, not an end."""

    call_id: str
    content: str
    failure: FailureKind | Literal[""] = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A call could not be made (`scope` call, `call_id` set) or the whole trajectory broke (`scope` trajectory)."""

    scope: Scope
    kind: FailureKind
    call_id: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """The clock moved; fires waits and the deadline."""

    now: float


@dataclass(frozen=True, slots=True)
class Cancel:
    """The unit went away or an operator muted the room."""

    reason: str = ""


Event = ViewerMessage | RoomEvent | ModelDelta | ModelOutput | ToolResult | Failure | Tick | Cancel


# ---- actions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallModel:
    """Sample the next assistant message of `segment`.

    `messages` is the whole context; the first `known` of them were in the previous call of the same segment, with the
    sampled assistant messages token-in/token-out, so a driver encodes only what is new. `tools` are OpenAI function
    definitions. `model` is "" for the primary or the name of the fallback.
    """

    call_id: str
    segment: int
    messages: tuple[Message, ...]
    known: int
    tools: tuple[Mapping[str, Json], ...]
    max_tokens: int
    model: str = ""


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """One tool call to carry out. A tool with effects has an `idempotency_key`; the same key is never run twice."""

    call_id: str
    name: str
    arguments: Mapping[str, Json]
    idempotency_key: str = ""
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class CallTools:
    """Calls that may run in parallel; results may come in any order."""

    calls: tuple[ToolRequest, ...]


@dataclass(frozen=True, slots=True)
class Emit:
    """Text that may be shown now. Held back while a stop or replace hook may still reject it; never reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Send a `Tick` at `until` (a retry's backoff or the deadline)."""

    until: float


@dataclass(frozen=True, slots=True)
class Reply:
    """The final reply of this turn."""

    text: str
    safe: bool = False
    """True when it is the harness's safe reply, given after a failure."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """A reply that says that the agent will not do it."""

    text: str
    hook: str = ""


@dataclass(frozen=True, slots=True)
class Silence:
    """No reply; `reason` goes to the trace only."""

    reason: str


@dataclass(frozen=True, slots=True)
class Restart:
    """The trajectory starts again with the conversation kept; calls with effects are not repeated."""

    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """The turn is over; the session waits for the next viewer message."""


Action = CallModel | CallTools | Emit | Wait | Reply | Refuse | Silence | Restart | Done
