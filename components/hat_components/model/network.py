"""The forward pass of Qwen3 for generation: a few fused matrices and a key-value cache that is written in place.

Always holds: in float32 it is the forward pass of transformers' Qwen3ForCausalLM, up to the order of additions; cache
positions beyond a row's length may hold anything finite and are never looked at. Shapes: L layers, B rows, T new
tokens, S cached positions, H heads, G key-value heads, D head dimension, V vocabulary. Not here: sampling (generate).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from transformers import Qwen3ForCausalLM

Precision = Literal["float32", "bfloat16"]


class Cache:
    """Keys and values of a batch: `store` is [2, L, B, G, S, D] in float32, reused from batch to batch."""

    def __init__(self, layers: int, heads: int, dim: int) -> None:
        self._shape = (layers, heads, dim)
        self._buffer = torch.zeros(0)
        self.store = self._buffer

    def reserve(self, rows: int, positions: int) -> None:
        """Make room for `rows` x `positions`; what was in it is lost."""
        layers, heads, dim = self._shape
        size = 2 * layers * rows * heads * positions * dim
        if self._buffer.numel() < size:
            self._buffer = self.store = torch.zeros(0)  # the old one goes before the new one comes
            self._buffer = torch.zeros(size)
        self.store = self._buffer[:size].view(2, layers, rows, heads, positions, dim)

    def put(self, row: int, kept: torch.Tensor, length: int) -> None:
        """Load the first `length` positions of `kept` [2, L, G, S, D] into `row`."""
        self.store[:, :, row, :, :length] = kept[:, :, :, :length]

    def take(self, row: int, length: int) -> torch.Tensor:
        """A copy of the first `length` positions of `row`, [2, L, G, length, D]."""
        return self.store[:, :, row, :, :length].clone()

    def move(self, old: int, new: int, length: int) -> None:
        """Copy the first `length` positions of row `old` over row `new`."""
        self.store[:, :, new, :, :length] = self.store[:, :, old, :, :length]


class Network:
    """Weights of a Qwen3ForCausalLM, laid out for generation."""

    def __init__(self, model: Qwen3ForCausalLM, precision: Precision = "float32") -> None:
        config = model.config
        self.layers = int(config.num_hidden_layers)
        self.heads, self.kv_heads = int(config.num_attention_heads), int(config.num_key_value_heads)
        self.dim = int(config.head_dim)
        self.positions = int(config.max_position_embeddings)
        self.vocabulary = int(config.vocab_size)
        self.precision = precision
        self._eps = float(config.rms_norm_eps)
        self._compute = getattr(torch, precision)
        self._load(model)

    def _load(self, model: Qwen3ForCausalLM) -> None:
        matrix, vector = self._compute, torch.float32

        def fuse(*parts: torch.nn.Linear) -> torch.Tensor:
            return torch.cat([part.weight.detach() for part in parts]).to(matrix).contiguous()

        self._embedding = model.model.embed_tokens.weight.detach().to(vector).clone()
        self._head = model.lm_head.weight.detach().to(matrix).clone()
        self._norm = model.model.norm.weight.detach().to(vector).clone()
        self._blocks = [
            {
                "norm1": layer.input_layernorm.weight.detach().to(vector).clone(),
                "qkv": fuse(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj),
                "qnorm": layer.self_attn.q_norm.weight.detach().to(vector).clone(),
                "knorm": layer.self_attn.k_norm.weight.detach().to(vector).clone(),
                "out": fuse(layer.self_attn.o_proj),
                "norm2": layer.post_attention_layernorm.weight.detach().to(vector).clone(),
                "up": fuse(layer.mlp.gate_proj, layer.mlp.up_proj),
                "down": fuse(layer.mlp.down_proj),
            }
            for layer in model.model.layers
        ]
        theta = float(model.config.rope_parameters["rope_theta"])
        inverse = 1.0 / theta ** (torch.arange(0, self.dim, 2, dtype=torch.int64).float() / self.dim)
        angles = torch.outer(torch.arange(self.positions).float(), inverse)
        angles = torch.cat((angles, angles), dim=-1)
        self._cos, self._sin = angles.cos(), angles.sin()

    def cache(self) -> Cache:
        """An empty cache of this network's shape."""
        return Cache(self.layers, self.kv_heads, self.dim)

    def _rms(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (x.shape[-1],), weight, self._eps)

    def _linear(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if self._compute is torch.float32:
            return functional.linear(x, weight)
        return functional.linear(x.to(self._compute), weight).float()

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        half = self.dim // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """`q` [B, H, T, D], `k`, `v` [B, G, S, D]; no mask means causal over T == S. Returns [B, H, T, D]."""
        fast = self._compute is not torch.float32 and q.shape[2] > 8
        if fast:
            q, k, v = q.to(self._compute), k.to(self._compute), v.to(self._compute)
        if self.kv_heads != self.heads:
            batch, _, new, dim = q.shape
            q = q.reshape(batch, self.kv_heads, -1, dim)  # the heads of a group stand as further queries
            mask = None if mask is None else mask.repeat(1, 1, self.heads // self.kv_heads, 1)
            return self._softmax(q, k, v, mask, new).reshape(batch, self.heads, new, dim).float()
        if mask is None and not fast:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)
        return self._softmax(q, k, v, mask, q.shape[2]).float()

    def _softmax(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, new: int
    ) -> torch.Tensor:
        scores = torch.matmul(q * self.dim**-0.5, k.transpose(-1, -2))
        if mask is None:
            causal = torch.full((new, new), float("-inf")).triu(1)
            mask = causal.repeat(q.shape[2] // new, 1)
        return torch.matmul(torch.softmax(scores + mask.to(scores.dtype), dim=-1, dtype=scores.dtype), v)

    @torch.inference_mode()
    def forward(
        self, ids: torch.Tensor, starts: torch.Tensor, cache: Cache, first: int, last: torch.Tensor
    ) -> torch.Tensor:
        """Run `ids` [B, T] at positions `starts` [B] + 0..T-1 into rows `first`.. of the cache.

        Returns the logits [B, V] at index `last` [B] of each row. A row shorter than T is padded on the right with any
        id: what its padding writes is overwritten before it is read.
        """
        batch, new = ids.shape
        at = (starts[:, None] + torch.arange(new)).clamp_(max=self.positions - 1)  # [B, T]
        cos, sin = self._cos[at][:, None], self._sin[at][:, None]  # [B, 1, T, D]
        fresh = new > 1 and not bool(starts.any())
        reach = new if fresh else int(starts.max()) + new
        mask = None
        if not fresh and new > 1:  # few shapes, as in batches.rounded; the mask hides what is too much
            reach = min(-(-reach // 32) * 32, cache.store.shape[4])
        if not fresh:
            mask = torch.where(torch.arange(reach) <= at[:, :, None], 0.0, float("-inf"))[:, None]  # [B, 1, T, S]
        x = self._embedding[ids]
        index, rows = torch.arange(batch), slice(first, first + batch)
        for number, block in enumerate(self._blocks):
            keys, values = cache.store[0, number, rows], cache.store[1, number, rows]  # [B, G, S, D]
            mixed = self._linear(self._rms(x, block["norm1"]), block["qkv"])
            mixed = mixed.view(batch, new, self.heads + 2 * self.kv_heads, self.dim)
            q, k, v = torch.split(mixed, [self.heads, self.kv_heads, self.kv_heads], dim=2)
            q = self._rotate(self._rms(q, block["qnorm"]).transpose(1, 2), cos, sin)
            k = self._rotate(self._rms(k, block["knorm"]).transpose(1, 2), cos, sin)
            v = v.transpose(1, 2)
            if fresh:
                keys[:, :, :new], values[:, :, :new] = k, v
                seen = self._attend(q, k, v, None)
            else:
                keys[index[:, None], :, at], values[index[:, None], :, at] = k.transpose(1, 2), v.transpose(1, 2)
                seen = self._attend(q, keys[:, :, :reach], values[:, :, :reach], mask)
            if number == self.layers - 1:  # only one position per row goes on
                seen, x = seen.transpose(1, 2)[index, last][:, None], x[index, last][:, None]
            else:
                seen = seen.transpose(1, 2)
            x = x + self._linear(seen.reshape(batch, seen.shape[1], -1), block["out"])
            gate, up = self._linear(self._rms(x, block["norm2"]), block["up"]).chunk(2, dim=-1)
            x = x + self._linear(functional.silu(gate) * up, block["down"])
        return self._linear(self._rms(x[:, 0], self._norm), self._head)
