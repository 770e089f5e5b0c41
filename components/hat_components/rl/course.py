"""Where a run of RL stands: steps, learning rate, curves, checkpoints, the reference. Shared by both loops.

Always holds: `begin` gives the rollouts of the step that comes, `after_step` counts it; a restored course begins the
very step that a straight run would; the reference is the model that the step started with, also after a restart.
Not here: the backward pass (plain, trl_loop).
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from hat_components.model.checkpoint import Checkpoints
from hat_components.model.muon import MuonAdamW
from hat_components.model.qwen import CAUSAL
from hat_components.model.train import TrainingError
from hat_components.rl.config import Config
from hat_components.rl.loss import k3, sampled_logps
from hat_components.rl.rollouts import Player, Rollouts
from hat_components.rl.rows import FlatRow
from hat_components.step import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

RECENT = 10
"""Steps that the reported means look back."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a step trains on. `reference` is [sampled] for each row, log-probabilities under the start model."""

    rollouts: Rollouts
    reference: Sequence[torch.Tensor]

    @property
    def rows(self) -> tuple[FlatRow, ...]:
        """The rollouts' rows, group by group."""
        return self.rollouts.rows


@contextmanager
def attention(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Run `model` with another attention for a while."""
    kept = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(kept)


class Course:
    """One run. Restores the newest checkpoint where there is one."""

    def __init__(
        self,
        model: PreTrainedModel,
        player: Player,
        config: Config,
        progress: Progress,
        checkpoints: Checkpoints | None = None,
        tokenizer: PreTrainedTokenizerFast | None = None,
    ) -> None:
        self.model, self.config, self.tokenizer = model, config, tokenizer
        self._player, self._progress, self._checkpoints = player, progress, checkpoints
        self.optimizer = MuonAdamW(
            model.named_parameters(),
            config.learning_rate,
            config.weight_decay,
            muon=config.optimizer == "muon",
        )
        self._reference = copy.deepcopy(model).eval().requires_grad_(False)
        self.steps = 0
        self._recent: dict[str, deque[float]] = {}
        state = checkpoints.load(model, self.optimizer) if checkpoints else None
        if state is not None:
            self.steps = int(state["steps"])
            self._recent = {name: deque(found, RECENT) for name, found in state["recent"].items()}

    @property
    def done(self) -> bool:
        """Whether all steps are made."""
        return self.steps >= self.config.steps

    def means(self) -> dict[str, float]:
        """Each curve's mean over its last points."""
        return {name: sum(found) / len(found) for name, found in sorted(self._recent.items())}

    def begin(self) -> Prepared:
        """Set the learning rate and play the next step's rollouts."""
        config = self.config
        warm = min(1.0, (self.steps + 1) / config.warmup_steps) if config.warmup_steps else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = config.learning_rate * warm
        self.model.eval()
        rollouts = self._player.play(self.steps, self.model)
        self.model.train()
        prepared = Prepared(rollouts, self._reference_logps(rollouts.rows))
        self._tell(prepared)
        return prepared

    def _reference_logps(self, rows: Sequence[FlatRow]) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        size = self.config.rows_at_once
        with torch.no_grad(), attention(self._reference, CAUSAL):
            for start in range(0, len(rows), size):
                found += sampled_logps(self._reference, rows[start : start + size], self.config.temperature)
        return found

    def _tell(self, prepared: Prepared) -> None:
        rows, composed = prepared.rows, prepared.rollouts.composed
        logps = torch.tensor([lp for row in rows for lp, kept in zip(row.logprobs, row.mask, strict=True) if kept])
        curves = {f"reward.{name}": value for name, value in composed.means.items()}
        curves |= {f"dead_groups.{name}": float(count) for name, count in composed.dead_terms.items()}
        curves |= {f"reasoning.{kind}": value for kind, value in prepared.rollouts.lengths.items()}
        curves |= {
            "dead_groups": float(composed.dead),
            "augmented": prepared.rollouts.augmented,
            "tokens": sum(row.sampled() for row in rows) / len(rows),
            "left_out": float(sum(row.left_out for row in rows)),
        }
        if len(logps):
            curves["entropy"] = -float(logps.mean())  # the sampled tokens' mean surprise: an unbiased estimate
            curves["kl"] = float(k3(logps, torch.cat(list(prepared.reference))).mean())
        for name, value in curves.items():
            self.tell(name, value)

    def tell(self, name: str, value: float) -> None:
        """One point of a curve, at the step that is under way."""
        if math.isfinite(value):
            self._recent.setdefault(name, deque(maxlen=RECENT)).append(value)
        self._progress.metric(f"rl.{name}", value, self.steps + 1)

    def check(self, loss: float) -> None:
        """Report the step's loss; raise where it is no number, before a weight is moved."""
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss} at step {self.steps + 1}", place="rl", cure="lower the learning rate"
            )
        self.tell("loss", loss)

    def after_step(self) -> None:
        """The optimiser has moved: count, report, save."""
        self.steps += 1
        self._progress.progress(self.steps, self.config.steps, "steps")
        every = self.config.checkpoint_every
        if self._checkpoints and every and (self.steps % every == 0 or self.done):
            state: dict[str, Any] = {
                "steps": self.steps,
                "recent": {name: list(found) for name, found in self._recent.items()},
            }
            self._checkpoints.save(state, self.model, self.optimizer)
