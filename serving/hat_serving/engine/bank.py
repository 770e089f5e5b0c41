"""Keys and values of the rows that are being generated: one fixed slot of `capacity` tokens per row and layer.

Always holds: memory is taken from the system only where tokens were written; never-written places hold zeros, so that a
masked place never spreads a NaN. Shapes: R rows, G key heads, C capacity, D head dimension. Not here: which row belongs
to whom (scheduler), prefixes that outlive a request (prefix).
"""

from __future__ import annotations

import numpy as np
import torch

_ITEM = {torch.float32: np.float32, torch.bfloat16: np.int16}


class Bank:
    """`keys[layer]` and `values[layer]` are [R, G, C, D]."""

    def __init__(self, layers: int, rows: int, kv_heads: int, capacity: int, head_dim: int, dtype: torch.dtype) -> None:
        self.layers, self.rows, self.capacity, self.kv_heads, self.head_dim = layers, rows, capacity, kv_heads, head_dim
        shape = (rows, kv_heads, capacity, head_dim)
        self.keys = [_lazy(shape, dtype) for _ in range(layers)]
        self.values = [_lazy(shape, dtype) for _ in range(layers)]
        self._flat = [(k.view(-1, head_dim), v.view(-1, head_dim)) for k, v in zip(self.keys, self.values, strict=True)]
        self._heads = torch.arange(kv_heads) * capacity

    def places(self, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Where the tokens at `positions` [N] of `rows` [N] lie, for `write`: [N*G]."""
        starts = rows * (self.kv_heads * self.capacity) + positions
        return (starts[:, None] + self._heads).view(-1)

    def write(self, layer: int, places: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store `keys` and `values` [N, G, D]."""
        flat_keys, flat_values = self._flat[layer]
        flat_keys.index_copy_(0, places, keys.reshape(-1, self.head_dim))
        flat_values.index_copy_(0, places, values.reshape(-1, self.head_dim))

    def take(self, row: int, start: int, end: int) -> torch.Tensor:
        """A copy of tokens `start` to `end` of all layers: [2 * layers, G, end - start, D]."""
        pieces = [tensor[row, :, start:end] for tensor in (*self.keys, *self.values)]
        return torch.stack(pieces)

    def put(self, row: int, start: int, segment: torch.Tensor) -> None:
        """Write back what `take` gave, at token `start`."""
        end = start + segment.shape[2]
        for index, tensor in enumerate((*self.keys, *self.values)):
            tensor[row, :, start:end] = segment[index]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` tokens of one row to another."""
        for tensor in (*self.keys, *self.values):
            tensor[target, :, :length] = tensor[source, :, :length]

    @staticmethod
    def bytes_per_row(layers: int, kv_heads: int, capacity: int, head_dim: int, dtype: torch.dtype) -> int:
        """What a full row takes."""
        return 2 * layers * kv_heads * capacity * head_dim * dtype.itemsize


def _lazy(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Zeros that cost no memory until written to; torch.zeros would touch every page."""
    tensor = torch.from_numpy(np.zeros(shape, dtype=_ITEM[dtype]))
    return tensor if tensor.dtype == dtype else tensor.view(dtype)
