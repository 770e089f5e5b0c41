"""The forward pass of a Qwen3-style decoder over cached keys and values, lean enough for one token at a time.

Always holds: a token sees the tokens of its own row up to its own position, and no others; what is written for a
position depends on the tokens up to it alone. Three things make it fast at this size: projections that share an input
are one matrix; rotary embedding is one complex product, because the heads' dimensions are reordered at load so that
pairs lie side by side (scores do not change when queries and keys are reordered alike); batches of two and more rows
use oneDNN's packed matrices, three times as fast as MKL's on small batches.
Shapes: N tokens, B rows, S tokens per row, H query heads, G key heads, D head dimension, T cached tokens, V vocabulary.
Not here: sampling, which row is whose (scheduler), the draft head's loop (mtp).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from hat_serving.engine.bank import Bank
from hat_serving.engine.folder import ModelFolder, Shape

_ONE_DNN: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch leaves it untyped

SHARE_ROWS, SHARE_TOKENS = 4, 48
"""From this many rows with this many first tokens in common on, those tokens are attended to once for all."""

PLAIN_LIMIT = 4_000_000
"""Matrices up to this size are kept unpacked as well, for single tokens."""


@dataclass(frozen=True, slots=True)
class Segment:
    """`count` tokens of `row` from position `start`, inside a packed batch."""

    row: int
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Tokens of one forward pass, packed row after row, and where each lies.

    Either `uniform` is set (first row, B, S, T: B neighbouring rows of S tokens each, T the longest context), or
    `segments` says which rows they are of.
    """

    ids: torch.Tensor
    turns: torch.Tensor
    """Rotary factors, complex [N, 1, D / 2]."""
    places: torch.Tensor
    uniform: tuple[int, int, int, int] | None
    mask: torch.Tensor | None
    shared: int = 0
    """First tokens that are the same in all rows of a uniform batch."""
    segments: tuple[tuple[Segment, torch.Tensor | None], ...] = ()


class Linear:
    """x @ weight.T for [N, in] inputs; packed for N above one where oneDNN is there."""

    __slots__ = ("_packed", "_plain")

    def __init__(self, weight: torch.Tensor) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight) if _ONE_DNN else None
        small = weight.dtype == torch.float32 and weight.numel() <= PLAIN_LIMIT
        self._plain = weight if self._packed is None or small else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[N, in] → [N, out]."""
        if self._plain is not None and (x.shape[0] == 1 or self._packed is None):
            return functional.linear(x, self._plain)
        packed: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, None, "none", [], "")
        return packed


class Layer:
    """One decoder layer; `index` is its place in the bank."""

    def __init__(self, weights: dict[str, torch.Tensor], shape: Shape, index: int) -> None:
        self.index = index
        self._shape = shape
        self._split = (shape.heads + shape.kv_heads) * shape.head_dim
        order = _pairs_side_by_side(shape.head_dim)
        query = _reorder(weights["self_attn.q_proj.weight"], shape.heads, order)
        key = _reorder(weights["self_attn.k_proj.weight"], shape.kv_heads, order)
        self._qkv = Linear(torch.cat([query, key, weights["self_attn.v_proj.weight"]]))
        norms = [weights["self_attn.q_norm.weight"][order]] * shape.heads
        norms += [weights["self_attn.k_norm.weight"][order]] * shape.kv_heads
        self._qk_norm = torch.stack(norms).float()  # [H + G, D]
        self._out = Linear(weights["self_attn.o_proj.weight"].contiguous())
        self._gate_up = Linear(torch.cat([weights["mlp.gate_proj.weight"], weights["mlp.up_proj.weight"]]))
        self._down = Linear(weights["mlp.down_proj.weight"].contiguous())
        self._input_norm = weights["input_layernorm.weight"]
        self._post_norm = weights["post_attention_layernorm.weight"]

    def __call__(self, x: torch.Tensor, batch: Batch, bank: Bank) -> torch.Tensor:
        """[N, hidden] → [N, hidden]; writes the tokens' keys and values into the bank."""
        shape, size = self._shape, self._shape.head_dim
        tokens = x.shape[0]
        normed = functional.rms_norm(x, (shape.hidden,), self._input_norm, shape.epsilon)
        mixed = self._qkv(normed)
        both = mixed[:, : self._split].view(tokens, -1, size).float()
        both = functional.rms_norm(both, (size,), None, shape.epsilon) * self._qk_norm
        turned = torch.view_as_real(torch.view_as_complex(both.view(tokens, -1, size // 2, 2)) * batch.turns)
        turned = turned.view(tokens, -1, size).to(x.dtype)
        values = mixed[:, self._split :].view(tokens, shape.kv_heads, size)
        bank.write(self.index, batch.places, turned[:, shape.heads :], values)
        seen = self._attend(turned[:, : shape.heads], batch, bank)
        x = x + self._out(seen)
        normed = functional.rms_norm(x, (shape.hidden,), self._post_norm, shape.epsilon)
        wide = self._gate_up(normed)
        gated = functional.silu(wide[:, : shape.feed_forward]) * wide[:, shape.feed_forward :]
        return x + self._down(gated)

    def _attend(self, queries: torch.Tensor, batch: Batch, bank: Bank) -> torch.Tensor:
        """[N, H, D] → [N, H * D]."""
        keys, values = bank.keys[self.index], bank.values[self.index]
        tokens = queries.shape[0]
        if batch.uniform is not None:
            first, rows, count, longest = batch.uniform
            near = slice(first, first + rows)
            near_keys, near_values = keys[near, :, :longest], values[near, :, :longest]
            seen = _attend_rows(queries, rows, count, near_keys, near_values, batch.mask, batch.shared)
            return seen.reshape(tokens, -1)
        seen = torch.empty_like(queries)
        grouped = self._shape.heads != self._shape.kv_heads
        at = 0
        for segment, mask in batch.segments:
            end = segment.start + segment.count
            found = functional.scaled_dot_product_attention(
                queries[at : at + segment.count].transpose(0, 1)[None],
                keys[segment.row : segment.row + 1, :, :end],
                values[segment.row : segment.row + 1, :, :end],
                attn_mask=mask,
                is_causal=mask is None and segment.count > 1,
                enable_gqa=grouped,
            )
            seen[at : at + segment.count] = found[0].transpose(0, 1)
            at += segment.count
        return seen.reshape(tokens, -1)


def _attend_rows(
    queries: torch.Tensor,
    rows: int,
    count: int,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    shared: int,
) -> torch.Tensor:
    """Attention of [B * S, H, D] queries over [B, G, T, D] keys → [B, S, H, D].

    Query heads that share a key head stand beside each other as further queries: no key is copied. The first `shared`
    tokens are read from row 0 alone, for all rows, and the two parts are joined by their log-sum-exponentials.
    """
    heads, size = keys.shape[1], queries.shape[2]
    together = queries.shape[1] // heads
    apart = queries.view(rows, count, heads, together, size)
    folded = apart.permute(0, 2, 1, 3, 4).reshape(rows, heads, -1, size)
    if mask is not None and together > 1 and count > 1:
        mask = mask.repeat_interleave(together, dim=2)
    if shared:
        assert mask is not None
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        stacked = apart.permute(2, 0, 1, 3, 4).reshape(1, heads, -1, size)  # [1, G, B * S * H / G, D]
        one, weight_one = flash(stacked, keys[:1, :, :shared], values[:1, :, :shared])
        own_mask = mask[..., shared:].contiguous()
        two, weight_two = flash(folded, keys[:, :, shared:], values[:, :, shared:], attn_mask=own_mask)
        one = one.reshape(heads, rows, -1, size).transpose(0, 1)
        weight_one = weight_one.reshape(heads, rows, -1).transpose(0, 1)
        share = torch.sigmoid(weight_one - weight_two)[..., None].to(two.dtype)
        seen = torch.lerp(two, one, share)
    else:
        seen = functional.scaled_dot_product_attention(folded, keys, values, attn_mask=mask)
    return seen.reshape(rows, heads, count, together, size).permute(0, 2, 1, 3, 4)


class Network:
    """The weights of one model, ready to run. `layers` + 1 of the bank's layers is the draft head's."""

    def __init__(self, folder: ModelFolder, positions: int) -> None:
        shape = folder.shape
        self.shape, self.dtype = shape, folder.dtype
        self.embedding = folder.weights["model.embed_tokens.weight"]
        self.layers = [
            Layer(layer_weights(folder, f"model.layers.{index}."), shape, index) for index in range(shape.layers)
        ]
        self._norm = folder.weights["model.norm.weight"]
        self._head = Linear(self.embedding if shape.tied else folder.weights["lm_head.weight"])
        frequencies = shape.theta ** (-torch.arange(0, shape.head_dim, 2).double() / shape.head_dim)
        angles = torch.outer(torch.arange(positions).double(), frequencies)
        self._numbers = torch.arange(max(positions, 1024))  # sliced instead of made anew in every step
        self._turns = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)[:, None]  # [positions, 1, D / 2]

    def rows_batch(self, bank: Bank, first: int, ids: torch.Tensor, starts: Sequence[int], shared: int = 0) -> Batch:
        """A batch of B neighbouring rows from `first`: `ids` [B, S], row b from position `starts[b]`.

        `shared` tokens at the start are the same in all rows; every row must be longer.
        """
        rows, count = ids.shape
        longest = max(starts) + count
        numbers = self._numbers
        if rows == 1:
            positions = numbers[starts[0] : longest]
            places = bank.places(numbers[first : first + 1], positions)
            mask = None if count == 1 else _causal(positions[None], numbers[:longest], self.dtype)
        else:
            at = torch.tensor(starts)[:, None]
            wide = at + numbers[:count] if count > 1 else at  # [B, S]
            positions = wide.reshape(-1)
            own = numbers[first : first + rows]
            places = bank.places(own.repeat_interleave(count) if count > 1 else own, positions)
            mask = _causal(wide, numbers[:longest], self.dtype)
        shared = shared if rows >= SHARE_ROWS and shared >= SHARE_TOKENS else 0
        return Batch(ids.reshape(-1), self._turns[positions], places, (first, rows, count, longest), mask, shared)

    def packed_batch(self, bank: Bank, ids: Sequence[int], segments: Sequence[Segment]) -> Batch:
        """A batch of any rows, `ids` one segment after the other."""
        positions = torch.cat([torch.arange(part.start, part.start + part.count) for part in segments])
        rows = torch.cat([torch.full((part.count,), part.row) for part in segments])
        masked: list[tuple[Segment, torch.Tensor | None]] = []
        for part in segments:
            whole = part.start == 0 or part.count == 1
            at = torch.arange(part.start, part.start + part.count)
            mask = None if whole else _causal(at[None], self._numbers[: part.start + part.count], self.dtype)
            masked.append((part, mask))
        places = bank.places(rows, positions)
        return Batch(torch.tensor(ids), self._turns[positions], places, None, None, segments=tuple(masked))

    def forward(self, batch: Batch, bank: Bank) -> torch.Tensor:
        """Final hidden states, normed: [N, hidden]."""
        x = functional.embedding(batch.ids, self.embedding)
        for layer in self.layers:
            x = layer(x, batch, bank)
        return functional.rms_norm(x, (self.shape.hidden,), self._norm, self.shape.epsilon)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[N, hidden] → [N, V] in float32."""
        return self._head(hidden).float()


def layer_weights(folder: ModelFolder, prefix: str) -> dict[str, torch.Tensor]:
    """The tensors under `prefix`, without it."""
    return {name.removeprefix(prefix): value for name, value in folder.weights.items() if name.startswith(prefix)}


def _causal(positions: torch.Tensor, numbers: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """[B, S] positions, 0 … T - 1 → additive mask [B, 1, S, T]."""
    hidden = numbers > positions[:, None, :, None]
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))


def _pairs_side_by_side(size: int) -> torch.Tensor:
    """(0, D/2, 1, D/2 + 1, …): Qwen rotates dimension i with i + D/2, a complex product wants them as neighbours."""
    return torch.stack([torch.arange(size // 2), torch.arange(size // 2, size)], dim=1).reshape(-1)


def _reorder(weight: torch.Tensor, heads: int, order: torch.Tensor) -> torch.Tensor:
    return weight.view(heads, -1, weight.shape[1])[:, order].reshape(weight.shape)
