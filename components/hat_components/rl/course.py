"""A run of RL: plays the rollouts of each step, scores them under the start model, and tells the curves.

Always holds: `begin` gives the rollouts of the step that comes; the reference is the model that the step started with,
also after a restart. Not here: the backward pass (plain, trl_loop), counting and checkpoints (model.course).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hat_components.model.checkpoint import Checkpoints
from hat_components.model.course import Pace, StepCourse, attention
from hat_components.model.qwen import CAUSAL
from hat_components.rl.config import Config
from hat_components.rl.loss import k3, sampled_logps
from hat_components.rl.rollouts import Player, Rollouts
from hat_components.rl.rows import FlatRow
from hat_components.step import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a step trains on. `reference` is [sampled] for each row, log-probabilities under the start model; of no row
    where no KL term needs them."""

    rollouts: Rollouts
    reference: Sequence[torch.Tensor]

    @property
    def rows(self) -> tuple[FlatRow, ...]:
        """The rollouts' rows, group by group."""
        return self.rollouts.rows


class Course(StepCourse):
    """One run of RL."""

    def __init__(
        self,
        model: PreTrainedModel,
        player: Player,
        config: Config,
        progress: Progress,
        checkpoints: Checkpoints | None = None,
        tokenizer: PreTrainedTokenizerFast | None = None,
    ) -> None:
        """`model` is as the step was given it: what it is now is the reference."""
        self._reference = copy.deepcopy(model).eval().requires_grad_(False)
        super().__init__("rl", model, Pace.of(config), progress, checkpoints)
        self.config, self.tokenizer = config, tokenizer
        self._player = player

    def begin(self) -> Prepared:
        """Set the learning rate and play the next step's rollouts."""
        self.set_rate()
        self.model.eval()
        self._score()
        rollouts = self._player.play(self.steps, self.model)
        self.model.train()
        watched = rollouts.rows if self.config.beta else rollouts.rows[:: self.config.group]  # one of each group
        reference = self._reference_logps(watched)
        self._tell_all(rollouts, watched, reference)
        return Prepared(rollouts, reference if self.config.beta else ())

    def score_end(self) -> None:
        """What the finished policy is worth on held-out items."""
        self.model.eval()
        self._score()

    def _score(self) -> None:
        """Every `score_every` steps and at the end: what the policy is worth on held-out items."""
        every = self.config.score_every
        if every and (self.steps % every == 0 or self.done):
            for name, value in self._player.score(self.model).items():
                self.tell(f"score.{name}", value)

    def _reference_logps(self, rows: Sequence[FlatRow]) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        size = self.config.rows_at_once
        with torch.no_grad(), attention(self._reference, CAUSAL):
            for start in range(0, len(rows), size):
                found += sampled_logps(self._reference, rows[start : start + size], self.config.temperature)
        return found

    def _tell_all(self, rollouts: Rollouts, watched: Sequence[FlatRow], reference: Sequence[torch.Tensor]) -> None:
        rows, composed = rollouts.rows, rollouts.composed
        logps = _sampled_with(rows)
        curves = {f"reward.{name}": value for name, value in composed.means.items()}
        curves |= {f"dead_groups.{name}": float(count) for name, count in composed.dead_terms.items()}
        curves |= {f"screened.{name}": value for name, value in rollouts.screened.items()}
        curves |= {f"reasoning.{kind}": value for kind, value in rollouts.lengths.items()}
        curves |= {
            "dead_groups": float(composed.dead),
            "augmented": rollouts.augmented,
            "tokens": sum(row.sampled() for row in rows) / len(rows),
            "left_out": float(sum(row.left_out for row in rows)),
        }
        if len(logps):
            curves["entropy"] = -float(logps.mean())  # the sampled tokens' mean surprise: an unbiased estimate
        if len(logps := _sampled_with(watched)):
            curves["kl"] = float(k3(logps, torch.cat(list(reference))).mean())
        for name, value in curves.items():
            self.tell(name, value)


def _sampled_with(rows: Sequence[FlatRow]) -> torch.Tensor:
    """[sampled] log-probabilities that the rows' tokens were drawn with."""
    return torch.tensor([lp for row in rows for lp, kept in zip(row.logprobs, row.mask, strict=True) if kept])
