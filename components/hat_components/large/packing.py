"""Rows into sequences for a large model: several rows in one, or right-padded with a mask.

Always holds: a packed row sees nothing of its neighbours (positions begin anew; the boundaries go along for kernels of
linear attention), and its first token is never foreseen from the row before. Not here: the mixture (model.batches).
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hat_components.large.run import rank, world
from hat_components.model.batches import Batch, Stream
from hat_components.model.codec import IGNORED, Row


def can_pack(config: Any) -> bool:
    """Whether rows of a sequence can be kept apart: linear attention needs kernels that know boundaries."""
    linear = "linear_attention" in (getattr(config, "layer_types", None) or ())
    kernels = all(importlib.util.find_spec(name) for name in ("fla", "causal_conv1d"))
    return not linear or (kernels and torch.cuda.is_available())


@dataclass(frozen=True, slots=True)
class Packed(Batch):
    """`ids`, `labels` [1, T]; the rows stand one behind the other."""


class PackedStream(Stream):
    """A stream whose batches are one sequence of at most `batch_tokens` tokens."""

    def _group(self, rows: list[Row], rng: random.Random) -> list[list[Row]]:
        return pack(rows, self._batch_tokens, rng)

    def _collate(self, rows: Sequence[Row]) -> Packed:
        ids = [token for row in rows for token in row.ids]
        labels = [label for row in rows for label in (IGNORED, *list(row.labels)[1:])]
        lengths = tuple(len(row.ids) for row in rows)
        return Packed(torch.tensor([ids]), torch.tensor([labels]), self._position(), lengths)


def pack(rows: Sequence[Row], limit: int, rng: random.Random) -> list[list[Row]]:
    """Longest first, each into the fullest sequence that still has room; the sequences are shuffled."""
    mixed = list(rows)
    rng.shuffle(mixed)
    mixed.sort(key=lambda row: -len(row.ids))
    groups: list[tuple[int, list[Row]]] = []
    for row in mixed:
        size = len(row.ids)
        fitting = [number for number, (used, _) in enumerate(groups) if used + size <= limit]
        if fitting:
            best = max(fitting, key=lambda number: groups[number][0])
            groups[best] = (groups[best][0] + size, [*groups[best][1], row])
        else:
            groups.append((size, [row]))
    found = [group for _, group in groups]
    rng.shuffle(found)
    return found


def inputs_of(batch: Batch, linear: bool) -> dict[str, Any]:
    """What the model's forward pass is given. `linear`: the model has linear attention, whose kernels ask for bounds."""
    if not isinstance(batch, Packed):
        mask = torch.zeros_like(batch.ids)
        for number, length in enumerate(batch.rows):
            mask[number, :length] = 1
        return {"input_ids": batch.ids, "labels": batch.labels, "attention_mask": mask}
    places = torch.cat([torch.arange(length) for length in batch.rows])[None]
    # transformers tells rows apart by their positions, where no cache is kept
    found = {"input_ids": batch.ids, "labels": batch.labels, "position_ids": places, "use_cache": False}
    if linear:
        ends = torch.tensor([0, *batch.rows]).cumsum(0).int()
        numbers = torch.arange(len(batch.rows)).repeat_interleave(torch.tensor(batch.rows))
        found |= {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "seq_idx": numbers[None].int()}
        found |= {"max_length_q": max(batch.rows), "max_length_k": max(batch.rows)}
    return found


class Sequences(torch.utils.data.IterableDataset[dict[str, Any]]):
    """The stream's batches, one to each process in turn; all processes draw all of them."""

    def __init__(self, stream: Stream, linear: bool) -> None:
        self._stream, self._linear = stream, linear
        self.position: Mapping[str, Any] | None = None
        """Where the stream stands after the last batches that were given out."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            drawn = [next(self._stream) for _ in range(world())]
            self.position = drawn[-1].position
            yield inputs_of(drawn[rank()], self._linear)
