"""Fits a draft head to what the policy writes, and measures what a server would accept of it.

    loss = sum_k w[k] mean over sampled tokens of -log p_k(token)      w[k] = decay^(k-1), summing to 1

Depth k is unrolled from the head's own outputs (FastMTP, arXiv 2509.18362); its targets are the tokens of the
trajectory. Always holds: policy, embedding and vocabulary head get no gradient. Not here: files (tensors, step).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Padded:
    """Rows on the right-padded width N: `ids` [B, N], `sampled` [B, N] whether the policy wrote the token."""

    ids: torch.Tensor
    sampled: torch.Tensor


def padded(rows: Sequence[FlatRow], device: torch.device | str = "cpu") -> Padded:
    """Pad rows with token 0, which nothing before it sees."""
    width = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    sampled = torch.zeros(len(rows), width, dtype=torch.bool)
    for number, row in enumerate(rows):
        ids[number, : len(row.ids)] = torch.tensor(row.ids)
        sampled[number, len(row.prompt) : len(row.ids)] = torch.tensor(row.mask, dtype=torch.bool)
    return Padded(ids.to(device), sampled.to(device))


def _logits(model: PreTrainedModel, state: torch.Tensor) -> torch.Tensor:
    """The model's own vocabulary head over states in float32."""
    logits: torch.Tensor = model.lm_head(state.to(model.lm_head.weight.dtype))
    return logits.float()


def head_loss(
    model: PreTrainedModel, head: DraftHead, batch: Padded, depth: int, decay: float
) -> tuple[torch.Tensor, list[float]]:
    """The loss, and each depth's mean negative log-likelihood."""
    with torch.no_grad():
        hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state  # normed
    outputs = head(model, batch.ids, hidden, depth)
    total = torch.zeros((), device=hidden.device)
    told: list[float] = []
    for k, (state, weight) in enumerate(zip(outputs, depth_weights(depth, decay), strict=False), 1):
        targets, wanted = batch.ids[:, k + 1 :], batch.sampled[:, k + 1 :]
        if not wanted.any():
            break
        loss = _likelihood(model, state[:, : targets.shape[1]][wanted], targets[wanted])
        total = total + weight * loss
        told.append(loss.item())
    return total, told


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
def measure(model: PreTrainedModel, head: DraftHead, rows: Sequence[FlatRow], depth: int, size: int = 16) -> Acceptance:
    """What an exact server would accept on greedily played rows."""
    tokens = verifications = accepted = 0
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        batch = padded(part, model.device)
        hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state
        outputs = head(model, batch.ids, hidden, depth)
        drafted = [_logits(model, state).argmax(-1) for state in outputs]
        width = batch.ids.shape[1]
        for number, row in enumerate(part):
            right = [
                (drafts[number, : width - k - 1] == batch.ids[number, k + 1 :]).tolist()
                for k, drafts in enumerate(drafted, 1)
            ]
            found = walk(right, spans_of(len(row.prompt), row.mask), len(right))
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
    ) -> None:
        super().__init__("mtp", head, Pace.of(config), progress, checkpoints)
        self._policy, self._head, self._rows, self._config = model, head, rows, config

    def run(self) -> None:
        """Train to the end."""
        config = self._config
        while not self.done:
            self.set_rate()
            rng = random.Random(f"{config.seed}/mtp/{self.steps}")
            drawn = rng.sample(list(self._rows), min(config.batch, len(self._rows)))
            batch = padded(drawn, self._policy.device)
            loss, told = head_loss(self._policy, self._head, batch, config.depth, config.decay)
            self.check(loss.item())
            for k, value in enumerate(told, 1):
                self.tell(f"loss.{k}", value)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            self.move()
