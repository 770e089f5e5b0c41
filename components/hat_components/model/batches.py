"""Rows into batches: drawn fresh or from a file, mixed by tokens, bucketed by length, the same after a restart.

Always holds: batch n is a function of the seed and the sources alone, and `position` (small JSON) says where a stream
stands, so that a restored stream goes on with the very same batches. Not here: what rows say (codec, the steps).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hat_components.model.codec import IGNORED, Row
from hat_components.step import InputError

if TYPE_CHECKING:
    import torch

Draw = Callable[[random.Random], Sequence[Row]]
"""A source of fresh examples: one or several rows (a bundle of short ones) from the given random state."""

TRIES = 100
"""Draws without a supervised token after which a source counts as useless."""

CHUNK_BATCHES = 64
"""Rows of about this many batches are drawn at a time and sorted by length within."""


@dataclass(frozen=True, slots=True)
class Batch:
    """`ids` and `labels` [B, T], padded on the right; `position` is where the stream stands after it."""

    ids: torch.Tensor
    labels: torch.Tensor
    position: Mapping[str, Any]
    rows: tuple[int, ...] = ()
    """Length of each row without its padding."""

    @property
    def tokens(self) -> int:
        """Tokens that are computed, padding included."""
        return self.ids.numel()


class FileRows:
    """Rows of a data set, in a new order every epoch. Equal seeds give equal orders."""

    def __init__(self, rows: Sequence[Row], seed: int) -> None:
        if not rows:
            raise InputError("the data set has no usable row", cure="check the trajectories")
        self._rows, self._seed = rows, seed
        self._order: list[int] = []
        self._epoch = -1

    def at(self, cursor: int) -> Row:
        """The row drawn at position `cursor` of an endless pass."""
        epoch, offset = divmod(cursor, len(self._rows))
        if epoch != self._epoch:
            self._order = list(range(len(self._rows)))
            random.Random(f"{self._seed}/epoch/{epoch}").shuffle(self._order)
            self._epoch = epoch
        return self._rows[self._order[offset]]


@dataclass(slots=True)
class Source:
    """One part of a mixture: `share` of the tokens comes from it."""

    name: str
    share: float
    draw: Draw | FileRows
    tokens: int = 0
    cursor: int = 0


class Stream:
    """An endless stream of batches over a mixture of sources, whose shares hold in tokens, not in examples."""

    def __init__(
        self, sources: Sequence[Source], batch_tokens: int, seed: int | str, max_length: int, pad: int = 0
    ) -> None:
        """`batch_tokens` bounds rows x longest row; a longer row than `max_length` is cut off there."""
        total = sum(source.share for source in sources)
        if total <= 0:
            raise InputError("no source has a share", cure="give at least one source a positive share")
        self._sources = [source for source in sources if source.share > 0]
        self._total = total
        self._batch_tokens, self._seed, self._max_length, self._pad = batch_tokens, seed, max_length, pad
        self._chunk = 0
        self._start: dict[str, list[int]] = {}
        self._groups: list[list[Row]] = []
        self._taken = 0
        self.cut = 0
        """Rows that were cut at `max_length` so far."""

    def restore(self, position: Mapping[str, Any]) -> None:
        """Stand where `Batch.position` says."""
        for source in self._sources:
            source.tokens, source.cursor = position["sources"][source.name]
        self._chunk = int(position["chunk"])
        self._groups, self._taken = [], 0
        if position["taken"]:
            self._fill()
            self._taken = int(position["taken"])

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._taken >= len(self._groups):
            self._fill()
        rows = self._groups[self._taken]
        self._taken += 1
        return self._collate(rows)

    def shares(self) -> dict[str, float]:
        """Measured share of the tokens by source name."""
        total = sum(source.tokens for source in self._sources) or 1
        return {source.name: source.tokens / total for source in self._sources}

    def _position(self) -> dict[str, Any]:
        if self._taken < len(self._groups):
            return {"chunk": self._chunk - 1, "taken": self._taken, "sources": self._start}
        now = {source.name: [source.tokens, source.cursor] for source in self._sources}
        return {"chunk": self._chunk, "taken": 0, "sources": now}

    def _fill(self) -> None:
        self._start = {source.name: [source.tokens, source.cursor] for source in self._sources}
        rng = random.Random(f"{self._seed}/chunk/{self._chunk}")
        rows: list[Row] = []
        tokens = 0
        while tokens < CHUNK_BATCHES * self._batch_tokens:
            source = min(self._sources, key=lambda source: source.tokens / source.share)
            drawn = self._draw(source, rng)
            size = sum(len(row.ids) for row in drawn)
            source.tokens += size
            tokens += size
            rows += drawn
        self._groups = self._group(rows, rng)
        self._chunk += 1
        self._taken = 0

    def _group(self, rows: list[Row], rng: random.Random) -> list[list[Row]]:
        """The rows of each batch."""
        return bucket(rows, self._batch_tokens, rng)

    def _draw(self, source: Source, rng: random.Random) -> list[Row]:
        """At least one row with something to learn within the longest length."""
        for _ in range(TRIES):
            if isinstance(source.draw, FileRows):
                drawn: Sequence[Row] = [source.draw.at(source.cursor)]
                source.cursor += 1
            else:
                drawn = source.draw(rng)
            limit = self._max_length
            self.cut += sum(1 for row in drawn if len(row.ids) > limit)
            fitting = [Row(row.ids[:limit], row.labels[:limit]) for row in drawn]
            useful = [row for row in fitting if row.supervised()]
            if useful:
                return useful
        raise InputError(
            f"{TRIES} draws in a row had nothing to learn within {self._max_length} tokens",
            place=source.name,
            cure="raise max_length, or look at the data",
        )

    def _collate(self, rows: Sequence[Row]) -> Batch:
        import torch

        width = rounded(max(len(row.ids) for row in rows))
        ids = [[*row.ids, *([self._pad] * (width - len(row.ids)))] for row in rows]
        labels = [[*row.labels, *([IGNORED] * (width - len(row.labels)))] for row in rows]
        lengths = tuple(len(row.ids) for row in rows)
        return Batch(torch.tensor(ids), torch.tensor(labels), self._position(), lengths)


def rounded(length: int) -> int:
    """The next length that batches may have. Every new shape costs the CPU kernels a compilation and memory: with few
    shapes training is a third faster and needs half the memory (measured at rows of 400 to 1,000 tokens)."""
    step = 8 if length <= 128 else 32
    return -(-length // step) * step


def bucket(rows: Sequence[Row], batch_tokens: int, rng: random.Random) -> list[list[Row]]:
    """Group rows of like length so that rows x longest row stays within `batch_tokens`; the groups are shuffled."""
    mixed = list(rows)
    rng.shuffle(mixed)
    mixed.sort(key=lambda row: len(row.ids))  # stable: equal lengths stay shuffled
    groups: list[list[Row]] = []
    for row in mixed:
        if groups and rounded(len(row.ids)) * (len(groups[-1]) + 1) <= batch_tokens:
            groups[-1].append(row)
        else:
            groups.append([row])
    rng.shuffle(groups)
    return groups
