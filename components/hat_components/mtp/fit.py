"""Fits a draft head to what the policy writes, and measures what a server would accept of it.

    loss = sum_k w[k] mean over sampled tokens of -log p_k(token)      w[k] = decay^(k-1), summing to 1

Depth k is unrolled from the head's own outputs (FastMTP, arXiv 2509.18362); its targets are the tokens of the
trajectory. Always holds: policy, embedding and vocabulary head get no gradient. Not here: files (tensors, step).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from hat_components.model.checkpoint import Checkpoints
from hat_components.model.course import Pace, StepCourse
from hat_components.mtp.acceptance import Acceptance, spans_of, walk
from hat_components.mtp.config import Config
from hat_components.mtp.head import DraftHead, depth_weights
from hat_components.rl.rows import FlatRow
from hat_components.step import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel


MOST = 2**28
"""Logits that are held at a time; what is more is computed in pieces, again in the backward pass."""
COPIES = 16
"""Texts of a step of copying."""
KEPT = 2**30
"""Bytes of states of the policy that are kept from step to step; what is more is computed when it is needed."""


@dataclass(frozen=True, slots=True)
class Padded:
    """Rows on the right-padded width N: `ids` [B, N], `sampled` [B, N] whether the policy wrote the token, and `hidden`
    [B, N, width], the policy's normed states (computed where they are not given)."""

    ids: torch.Tensor
    sampled: torch.Tensor
    hidden: torch.Tensor | None = None

    def chains(self, depth: int) -> torch.Tensor:
        """The chains [B, C] of which some depth foresees a token that the policy wrote; rows with fewer repeat the
        last one, which foresees nothing."""
        foreseen = torch.zeros_like(self.sampled)
        for k in range(1, depth + 1):
            foreseen[:, : -k - 1] |= self.sampled[:, k + 1 :]
        most = int(foreseen.sum(dim=1).max())
        places = torch.arange(foreseen.shape[1], device=foreseen.device).masked_fill(~foreseen, foreseen.shape[1] - 2)
        return places.sort(dim=1).values[:, :most]

    def targets(self, chains: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What depth k of `chains` foresees, [B, C], and whether the policy wrote it."""
        after, last = chains + k + 1, self.ids.shape[1] - 1
        wanted = self.sampled.gather(1, after.clamp(max=last)) & (after <= last)
        return self.ids.gather(1, after.clamp(max=last)), wanted


def padded(
    rows: Sequence[FlatRow], device: torch.device | str = "cpu", states: Sequence[torch.Tensor] | None = None
) -> Padded:
    """Pad rows, and the policy's `states` of them, each [its length, width], with token 0, which nothing before it sees."""
    width = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    sampled = torch.zeros(len(rows), width, dtype=torch.bool)
    for number, row in enumerate(rows):
        ids[number, : len(row.ids)] = torch.tensor(row.ids)
        sampled[number, len(row.prompt) : len(row.ids)] = torch.tensor(row.mask, dtype=torch.bool)
    hidden = torch.nn.utils.rnn.pad_sequence(list(states), batch_first=True) if states else None
    return Padded(ids.to(device), sampled.to(device), hidden)


class Trunk:
    """The frozen policy's states of a list of rows. Each row is computed alone, so that its states are the same bits
    whatever stands beside it, and whether they were kept or not."""

    def __init__(self, model: PreTrainedModel, rows: Sequence[FlatRow], kept: int = KEPT) -> None:
        """At most `kept` bytes are kept."""
        self._model, self._rows, self._free = model, rows, kept
        self._states: dict[int, torch.Tensor] = {}

    @torch.no_grad()
    def of(self, number: int) -> torch.Tensor:
        """Normed states [length, width] of row `number`."""
        if number in self._states:
            return self._states[number]
        ids = torch.tensor([self._rows[number].ids], device=self._model.device)
        found: torch.Tensor = self._model.model(input_ids=ids, use_cache=False).last_hidden_state[0]
        if found.nbytes <= self._free:
            self._free -= found.nbytes
            self._states[number] = found
        return found

    def batch(self, numbers: Sequence[int]) -> Padded:
        """The rows `numbers` together with their states."""
        rows = [self._rows[number] for number in numbers]
        return padded(rows, self._model.device, [self.of(number) for number in numbers])


def _logits(model: PreTrainedModel, state: torch.Tensor) -> torch.Tensor:
    """The model's own vocabulary head over states, in float32 at least."""
    logits: torch.Tensor = model.lm_head(state.to(model.lm_head.weight.dtype))
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def head_loss(
    model: PreTrainedModel, head: DraftHead, batch: Padded, depth: int, decay: float
) -> tuple[torch.Tensor, list[float]]:
    """The loss, and each depth's mean negative log-likelihood."""
    hidden = _hidden(model, batch)
    chains = batch.chains(depth)
    outputs = head(model, batch.ids, hidden, depth, chains)
    total = torch.zeros((), device=hidden.device)
    told: list[float] = []
    for k, (state, weight) in enumerate(zip(outputs, depth_weights(depth, decay), strict=False), 1):
        targets, wanted = batch.targets(chains, k)
        if not wanted.any():
            break
        loss = _likelihood(model, state[wanted], targets[wanted])
        total = total + weight * loss
        told.append(loss.item())
    return total, told


@torch.no_grad()
def _hidden(model: PreTrainedModel, batch: Padded) -> torch.Tensor:
    if batch.hidden is not None:
        return batch.hidden
    found: torch.Tensor = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state  # normed
    return found


def _likelihood(model: PreTrainedModel, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean negative log-likelihood of `targets` [S] from `states` [S, width]; in pieces where the logits are many."""
    size = max(1, MOST // model.lm_head.weight.shape[0])
    if len(targets) <= size:
        return functional.cross_entropy(_logits(model, states), targets)

    def piece(part: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(_logits(model, part), wanted, reduction="sum")

    total = torch.zeros((), device=states.device)
    for part, wanted in zip(torch.split(states, size), torch.split(targets, size), strict=True):
        total = total + checkpoint(piece, part, wanted, use_reentrant=False)
    return total / len(targets)


@torch.no_grad()
def measure(
    model: PreTrainedModel,
    head: DraftHead,
    rows: Sequence[FlatRow],
    depth: int,
    size: int = 16,
    trunk: Trunk | None = None,
) -> Acceptance:
    """What an exact server would accept on greedily played rows; `trunk` may hold their states."""
    trunk = trunk or Trunk(model, rows, kept=0)
    tokens = verifications = accepted = 0
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        batch = trunk.batch(range(start, start + len(part)))
        chains = batch.chains(depth)
        right = torch.zeros(depth, *batch.ids.shape, dtype=torch.bool, device=batch.ids.device)
        for k, state in enumerate(head(model, batch.ids, _hidden(model, batch), depth, chains), 1):
            targets, wanted = batch.targets(chains, k)
            hits = torch.zeros_like(wanted)
            hits[wanted] = _logits(model, state[wanted]).argmax(-1) == targets[wanted]
            right[k - 1].scatter_(1, chains, hits)
        for number, row in enumerate(part):
            found = walk(right[:, number].tolist(), spans_of(len(row.prompt), row.mask), depth)
            tokens += found.tokens
            verifications += found.verifications
            accepted += found.accepted
    return Acceptance(tokens, verifications, accepted, depth)


class Course(StepCourse):
    """One run: the head moves, the policy does not."""

    def __init__(
        self,
        model: PreTrainedModel,
        head: DraftHead,
        rows: Sequence[FlatRow],
        config: Config,
        progress: Progress,
        checkpoints: Checkpoints | None = None,
        copy: Callable[[random.Random], FlatRow] | None = None,
    ) -> None:
        """`copy` draws a text that is copied; with it the config's steps of copying come first."""
        first = config.copying if copy else 0
        pace = replace(Pace.of(config), steps=first + config.steps)
        super().__init__("mtp", head, pace, progress, checkpoints)
        self._policy, self._head, self._config = model, head, config
        self._count, self._trunk = len(rows), Trunk(model, rows)
        self._first, self._copy = first, copy

    def set_rate(self) -> None:
        """Warm-up, then down to a twentieth along a cosine, where the config says so."""
        super().set_rate()
        if self._config.schedule == "cosine":
            factor = 0.05 + 0.475 * (1.0 + math.cos(math.pi * self.steps / self.pace.steps))
            for group in self.optimizer.param_groups:
                group["lr"] *= factor

    def run(self) -> None:
        """Train to the end."""
        config = self._config
        while not self.done:
            self.set_rate()
            batch = self._batch(random.Random(f"{config.seed}/mtp/{self.steps}"))
            # Entered anew in every step: it keeps the weights' 16-bit copies as long as it lasts.
            with torch.autocast(batch.ids.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
                loss, told = head_loss(self._policy, self._head, batch, config.depth, config.decay)
            self.check(loss.item())
            for k, value in enumerate(told, 1):
                self.tell(f"loss.{k}", value)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            self.move()

    def _batch(self, rng: random.Random) -> Padded:
        if self._copy and self.steps < self._first:
            return padded([self._copy(rng) for _ in range(COPIES)], self._policy.device)
        return self._trunk.batch(rng.sample(range(self._count), min(self._config.batch, self._count)))
