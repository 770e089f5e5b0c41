"""Which bank row is free, what it still holds, and moving prompts into the row that they will run in.

Always holds: running rows are the first ones without gaps; the lowest free row is given first, so that a prompt is mostly
computed where it will run; a row's leftovers are used again only for the same tokens under the same weights.
Not here: the requests (scheduler), prefixes that outlive a row (prefix).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import torch

from hat_serving.engine.bank import Bank
from hat_serving.engine.errors import ModelError
from hat_serving.engine.model import LoadedModel
from hat_serving.engine.options import EngineOptions
from hat_serving.engine.prefix import common_beginning
from hat_serving.engine.steps import Filling


class RowBook:
    """Free rows of one bank."""

    def __init__(self, bank: Bank, *, drafting: bool) -> None:
        """`drafting`: the last kept place of a row depends on the token after it, and is never used again."""
        self._bank = bank
        self._drafting = drafting
        self._free = list(range(bank.rows))
        self._left: list[list[int]] = [[] for _ in range(bank.rows)]

    def acquire(self) -> int:
        """The lowest free row."""
        return heapq.heappop(self._free)

    def release(self, row: int, holds: list[int]) -> None:
        """Give a row back; `holds` are the tokens whose keys and values it has."""
        self._left[row] = holds
        heapq.heappush(self._free, row)

    def forget(self) -> None:
        """Nothing that rows hold is good any more (the weights changed)."""
        self._left = [[] for _ in range(self._bank.rows)]

    def restore(self, row: int, prompt: list[int], found: int, segments: Sequence[torch.Tensor]) -> None:
        """Bring the first `found` tokens of a prompt into an acquired row, but for those that it still holds."""
        here = common_beginning([[*self._left[row], -1], [*prompt[:found], -2]]) if self._left[row] else 0
        here = max(here - 1, 0) if self._drafting else here
        at = 0
        for segment in segments:
            end = at + segment.shape[2]
            if end > here:
                start = max(at, here)
                self._bank.put(row, start, segment[:, :, start - at :])
            at = end
        self._left[row] = []

    def settle(self, part: Filling, target: int, others: Sequence[Filling]) -> None:
        """Make row `target` a complete prompt's; mostly it is already. Another prompt that is there makes room."""
        if part.row == target:
            return
        for other in others:
            if other.row == target:
                other.row = self.acquire()
                self._bank.move(target, other.row, other.done)
                break
        else:
            self._free.remove(target)
            heapq.heapify(self._free)
        self._bank.move(part.row, target, len(part.request.prompt))
        self.release(part.row, part.request.prompt)
        part.row = target


def make_bank(model: LoadedModel, options: EngineOptions) -> Bank:
    """A bank for the model and the options. ModelError where it could grow beyond `cache_gib`."""
    shape = model.folder.shape
    layers = shape.layers + (1 if model.draft is not None else 0)
    rows = options.max_running_requests + 1  # one to make room with
    capacity = options.context(shape.positions) + options.draft_tokens
    per_row = Bank.bytes_per_row(layers, shape.kv_heads, capacity, shape.head_dim, model.folder.dtype)
    if rows * per_row > options.cache_bytes:
        raise ModelError(
            f"{rows} rows of {capacity} tokens would take up to {rows * per_row >> 20} MiB",
            place=str(model.folder.path),
            cure="lower --context-length or --max-running-requests, or raise --cache-gib",
        )
    return Bank(layers, rows, shape.kv_heads, capacity, shape.head_dim, model.folder.dtype)
