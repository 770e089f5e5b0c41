"""`MicroModel`: samples the next message of many sessions at once, keeping each session's cache for its turns.

Always holds: greedy in float32 it writes what transformers' `generate` writes, token by token; what a session sampled
stays token-in/token-out for its next call; a row's random numbers depend on (seed, session, call) only, not on its
batch. Caches are an optimisation: any may be dropped, and a context that no longer starts with the kept tokens
is encoded anew from where it differs. Not here: the forward pass (network), the agent loop (hat_harness.session).
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from hat_components.model.batches import rounded
from hat_components.model.codec import Codec
from hat_components.model.network import Network, Precision
from hat_components.model.qwen import load_model
from hat_components.model.tokenizer import load_tokenizer
from hat_harness.events import CallModel, Failure, Message, ModelOutput

if TYPE_CHECKING:
    from transformers import Qwen3ForCausalLM

PREFILL_ROWS, PREFILL_TOKENS = 16, 16_384
"""Bounds of a prompt batch; more only costs memory."""

PAIRS = 4_000_000
"""Bound of rows x new tokens x tokens seen in a batch that continues caches: its attention is held in memory whole."""

SHARE_FROM = 24
"""Two fresh prompts with this many tokens in common at the start share their computation, if it is a third of them:
what is left is computed without the kernel for whole prompts."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """What one row wrote: natural-log probabilities at the temperature it was drawn with (at 1 where greedy)."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(slots=True)
class _Row:
    """One row of a batch. `kv` [2, L, G, length, D] covers the first `length` ids of `prompt`."""

    prompt: list[int]
    limit: int
    draw: Callable[[], float]
    kv: torch.Tensor | None = None
    length: int = 0
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Kept:
    """A session between two calls: its ids, their cache (all but the last id), and the messages they stand for."""

    ids: list[int]
    kv: torch.Tensor
    segment: int
    messages: tuple[Message, ...]
    output: ModelOutput


class Sampler:
    """Batched sampling from token ids with continuous dropping of finished rows."""

    def __init__(self, network: Network, eos: int, rows: int = 64) -> None:
        self.network = network
        self.eos = eos
        self.rows = rows
        self._cache = network.cache()

    def run(self, rows: list[_Row], temperature: float) -> None:
        """Fill `ids`, `logprobs` and `kv` of every row; 0 means greedy."""
        order = sorted(rows, key=lambda row: len(row.prompt) + row.limit)
        for start in range(0, len(order), self.rows):
            self._batch(order[start : start + self.rows], temperature)

    def _batch(self, rows: list[_Row], temperature: float) -> None:
        plan = share(rows)
        order = [*plan.kept, *plan.leaders, *(row for row, _, _ in plan.followers)]
        place = {id(row): index for index, row in enumerate(order)}
        widest = rounded(max(len(row.prompt) - row.length for row in rows))
        most = max(len(row.prompt) + row.limit for row in rows) + widest  # padding may be written behind the longest
        self._cache.reserve(len(rows), min(most, rounded(self.network.positions)))  # but never behind the last position
        for row in plan.kept:
            assert row.kv is not None
            self._cache.put(place[id(row)], row.kv, row.length)
            row.kv = None
        logits = torch.empty(len(rows), self.network.vocabulary)
        self._prefill(order, 0, len(plan.kept), logits)
        self._prefill(order, len(plan.kept), len(plan.kept) + len(plan.leaders), logits)
        for row, leader, common in plan.followers:
            self._cache.move(place[id(leader)], place[id(row)], common)
            row.length = common
        self._prefill(order, len(plan.kept) + len(plan.leaders), len(order), logits)
        self._decode(order, logits, temperature)

    def _prefill(self, rows: list[_Row], start: int, end: int, logits: torch.Tensor) -> None:
        """Compute what no cache covers of the prompts in cache rows `start` to `end`, in groups of like length."""
        while start < end:
            group = rows[start : min(end, start + PREFILL_ROWS)]
            longest = max(len(row.prompt) - row.length for row in group)
            group = group[: max(1, PREFILL_TOKENS // longest)]
            if any(row.length for row in group):
                new = max(len(row.prompt) - row.length for row in group)
                group = group[: max(1, PAIRS // (new * max(len(row.prompt) for row in group)))]
            pieces = [row.prompt[row.length :] for row in group]
            width = rounded(max(map(len, pieces)))
            ids = torch.tensor([piece + [self.eos] * (width - len(piece)) for piece in pieces])
            starts = torch.tensor([row.length for row in group])
            last = torch.tensor([len(piece) - 1 for piece in pieces])
            logits[start : start + len(group)] = self.network.forward(ids, starts, self._cache, start, last)
            start += len(group)

    def _decode(self, active: list[_Row], logits: torch.Tensor, temperature: float) -> None:
        """Sample until every row has ended. A finished row's place is taken by the last row: one copy per row."""
        active = list(active)
        while active:
            tokens, logprobs = draw(logits, temperature, [row.draw for row in active])
            for index, row in enumerate(active):
                row.ids.append(tokens[index])
                row.logprobs.append(logprobs[index])
            for index in range(len(active) - 1, -1, -1):
                row = active[index]
                if row.ids[-1] == self.eos or len(row.ids) >= row.limit:
                    row.length = len(row.prompt) + len(row.ids) - 1
                    row.kv = self._cache.take(index, row.length)
                    moved = active.pop()
                    if moved is not row:
                        active[index] = moved
                        self._cache.move(len(active), index, len(moved.prompt) + len(moved.ids) - 1)
            if active:
                ids = torch.tensor([[row.ids[-1]] for row in active])
                starts = torch.tensor([len(row.prompt) + len(row.ids) - 1 for row in active])
                logits = self.network.forward(ids, starts, self._cache, 0, torch.zeros(len(active), dtype=torch.long))


@dataclass(frozen=True, slots=True)
class _Plan:
    """`kept` continue a cache, `leaders` are computed from nothing, `followers` (row, leader, tokens in common)."""

    kept: list[_Row]
    leaders: list[_Row]
    followers: list[tuple[_Row, _Row, int]]


def share(rows: Sequence[_Row]) -> _Plan:
    """Find which fresh prompts begin alike (one system prompt, the rollouts of one group), so that it is run once."""
    kept = sorted((row for row in rows if row.kv is not None), key=lambda row: len(row.prompt) - row.length)
    leaders: list[_Row] = []
    followers: list[tuple[_Row, _Row, int]] = []
    for row in sorted((row for row in rows if row.kv is None), key=lambda row: row.prompt):
        common = min(common_length(leaders[-1].prompt, row.prompt), len(row.prompt) - 1) if leaders else 0
        if common >= max(SHARE_FROM, len(row.prompt) // 3):
            followers.append((row, leaders[-1], common))
        else:
            leaders.append(row)
    leaders.sort(key=lambda row: len(row.prompt))
    followers.sort(key=lambda entry: len(entry[0].prompt) - entry[2])
    return _Plan(kept, leaders, followers)


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Number of ids that both begin with."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def draw(
    logits: torch.Tensor, temperature: float, uniforms: Sequence[Callable[[], float]]
) -> tuple[list[int], list[float]]:
    """One token per row of `logits` [B, V], by inverting the cumulative distribution, and its natural log."""
    logprobs = torch.log_softmax(logits.float() / (temperature or 1.0), dim=-1)
    if temperature == 0:
        tokens = logits.argmax(dim=-1)
    else:
        cumulative = logprobs.double().exp().cumsum(dim=-1)
        points = torch.tensor([uniform() for uniform in uniforms], dtype=torch.float64)[:, None] * cumulative[:, -1:]
        tokens = torch.searchsorted(cumulative, points, right=True)[:, 0].clamp_(max=logits.shape[-1] - 1)
    chosen = logprobs.gather(1, tokens[:, None])[:, 0]
    return tokens.tolist(), chosen.tolist()


class MicroModel:
    """A `hat_harness.ports.BatchModel` over a local model folder."""

    def __init__(
        self,
        model: Qwen3ForCausalLM,
        codec: Codec,
        *,
        temperature: float = 0.0,
        seed: int = 1,
        precision: Precision = "float32",
        rows: int = 64,
        cache_tokens: int = 100_000,
    ) -> None:
        """`temperature` 0 is greedy; `rows` is the batch size; at most `cache_tokens` tokens stay cached over calls."""
        self.codec = codec
        self.temperature = temperature
        self.seed = seed
        self.cache_tokens = cache_tokens
        self._precision: Precision = precision
        self._rows = rows
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._cached = 0
        self.update(model)

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        *,
        temperature: float = 0.0,
        seed: int = 1,
        precision: Precision = "float32",
        rows: int = 64,
        cache_tokens: int = 100_000,
    ) -> MicroModel:
        """Load a model folder of the base or sft step. Raises InputError."""
        codec = Codec(load_tokenizer(folder))
        model = load_model(folder)
        return cls(
            model, codec, temperature=temperature, seed=seed, precision=precision, rows=rows, cache_tokens=cache_tokens
        )

    def update(self, model: Qwen3ForCausalLM) -> None:
        """Take the weights of `model` as they are now and forget all caches (the next rollouts of RL)."""
        self._sampler = Sampler(Network(model, self._precision), self.codec.eos, self._rows)
        self.forget()

    def forget(self, session_id: str | None = None) -> None:
        """Drop the cache of one session, or of all."""
        if session_id is None:
            self._kept.clear()
            self._cached = 0
        elif session_id in self._kept:
            self._cached -= len(self._kept.pop(session_id).ids)

    def sample(self, prompts: Sequence[Sequence[int]], max_tokens: int, key: str = "") -> list[Sampled]:
        """Continue bare prompts; row n draws with the seed, `key` and n. A prompt must leave room for one token."""
        room = self._sampler.network.positions
        rows = [
            _Row(list(prompt), min(max_tokens, room - len(prompt)), random.Random(f"{self.seed}/{key}/{n}").random)
            for n, prompt in enumerate(prompts)
        ]
        if any(row.limit < 1 or not row.prompt for row in rows):
            raise ValueError(f"a prompt needs 1 to {room - 1} tokens and a limit of at least one")
        self._sampler.run(rows, self.temperature)
        return [Sampled(tuple(row.ids), tuple(row.logprobs)) for row in rows]

    def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
        """One output per (session, call), in order; a context that is too long or cannot be encoded is a Failure."""
        rows: dict[int, _Row] = {}
        answers: list[ModelOutput | Failure | None] = [None] * len(calls)
        for index, (session_id, call) in enumerate(calls):
            made = self._row(session_id, call)
            if isinstance(made, Failure):
                answers[index] = made
            else:
                rows[index] = made
        self._sampler.run(list(rows.values()), self.temperature)
        for index, row in rows.items():
            answers[index] = self._finish(*calls[index], row)
        return [answer for answer in answers if answer is not None]

    def _row(self, session_id: str, call: CallModel) -> _Row | Failure:
        kept = self._kept.get(session_id)
        try:
            ids = self._continue(kept, call) if kept else None
            ids = ids or self.codec.encode_prefix(call.messages, call.tools)
        except (ValueError, TypeError, KeyError) as error:
            return Failure("call", "malformed", call.call_id, f"the context cannot be encoded: {error}")
        limit = min(call.max_tokens, self._sampler.network.positions - len(ids))
        if limit < 1:
            room = self._sampler.network.positions
            return Failure("call", "malformed", call.call_id, f"{len(ids)} tokens do not fit into {room}")
        row = _Row(ids, limit, random.Random(f"{self.seed}/{session_id}/{call.call_id}").random)
        if kept:
            row.length = min(common_length(kept.ids, ids), kept.kv.shape[3], len(ids) - 1)
            row.kv = kept.kv if row.length else None
            self.forget(session_id)  # the row holds it until it stands in the batch's own cache
        return row

    def _continue(self, kept: _Kept, call: CallModel) -> list[int] | None:
        """The kept ids and what is new, or None where the context is not the kept one with the sampled message."""
        count = len(kept.messages)
        if call.segment != kept.segment or call.messages[:count] != kept.messages or len(call.messages) <= count:
            return None
        written, output = call.messages[count], kept.output
        said = (written.role, written.content, written.reasoning, tuple(call.id for call in written.tool_calls))
        if said != ("assistant", output.content, output.reasoning, tuple(call.id for call in output.tool_calls)):
            return None
        closed = kept.ids[-1] == self.codec.eos
        return kept.ids + self.codec.encode_suffix(call.messages[count + 1 :], closed)

    def _finish(self, session_id: str, call: CallModel, row: _Row) -> ModelOutput:
        output = self.codec.decode(row.ids, call.call_id, row.logprobs, len(row.prompt), call.tools)
        self.forget(session_id)
        assert row.kv is not None
        self._kept[session_id] = _Kept(row.prompt + row.ids, row.kv, call.segment, call.messages, output)
        row.kv = None
        self._cached += len(row.prompt) + len(row.ids)
        while self._cached > self.cache_tokens and len(self._kept) > 1:
            self.forget(next(iter(self._kept)))
        return output
