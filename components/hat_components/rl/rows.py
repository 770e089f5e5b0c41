"""A finished session as one row to train on: exactly the tokens that the model read and wrote, token for token.

Always holds: `prompt + completion` is what the model had before it and wrote, in order; `mask` is 1 on what it sampled
and 0 on what the session added; `logprobs` are those it was sampled with. Where a context is not the sampled tokens
any more (its length differs from what the model says it read), the row ends before it. Not here: rewards (values).
"""

from __future__ import annotations

from dataclasses import dataclass

from hat_components.model.codec import Codec
from hat_harness.events import Message, ModelOutput
from hat_harness.trace import Trace, sampled


@dataclass(frozen=True, slots=True)
class FlatRow:
    """One rollout. `completion`, `mask` and `logprobs` are of equal length, at least 1."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    left_out: int = 0
    """Sampled tokens of the session that are not in the row: other segments, and what followed a broken context."""

    @property
    def ids(self) -> tuple[int, ...]:
        """All of it."""
        return self.prompt + self.completion

    def sampled(self) -> int:
        """Tokens that the model wrote."""
        return sum(self.mask)


def flat_row(trace: Trace, codec: Codec) -> FlatRow:
    """The row of the last segment, in which the session's last turn ended. A session that never asked the model gives
    a row with nothing to train on."""
    total = 0
    row = None
    for index in range(len(trace.segments)):
        outputs = {place: output for place, output in sampled(trace, index).items() if output.token_ids}
        total += sum(len(output.token_ids) for output in outputs.values())
        if outputs:
            row = _segment_row(trace, index, outputs, codec)
    if row is None:
        return FlatRow((codec.eos,), (codec.eos,), (0,), (0.0,), total)
    return FlatRow(row.prompt, row.completion, row.mask, row.logprobs, total - row.sampled())


def _segment_row(trace: Trace, index: int, outputs: dict[int, ModelOutput], codec: Codec) -> FlatRow:
    segment = trace.segments[index]
    places = sorted(outputs)
    prompt = codec.encode_prefix(segment.messages[: places[0]], segment.tools)
    completion: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    for number, place in enumerate(places):
        output = outputs[place]
        if len(prompt) + len(completion) != output.prompt_tokens:
            break
        completion += output.token_ids
        mask += [1] * len(output.token_ids)
        logprobs += output.logprobs
        if number + 1 == len(places) or not _as_written(segment.messages[place], output):
            break
        between = segment.messages[place + 1 : places[number + 1]]
        added = codec.encode_suffix(between, closed=output.token_ids[-1] == codec.eos)
        completion += added
        mask += [0] * len(added)
        logprobs += [0.0] * len(added)
    while mask and not mask[-1]:  # a broken context leaves what led to it
        completion.pop(), mask.pop(), logprobs.pop()
    if not completion:
        return FlatRow(tuple(prompt), (codec.eos,), (0,), (0.0,))
    return FlatRow(tuple(prompt), tuple(completion), tuple(mask), tuple(logprobs))


def _as_written(message: Message, output: ModelOutput) -> bool:
    """Whether the context holds what was sampled: else the model was given another text to go on from."""
    calls = tuple(call.id for call in message.tool_calls) == tuple(call.id for call in output.tool_calls)
    return calls and message.content == output.content and message.reasoning == output.reasoning
