"""A run of distillation: the student writes to fresh prompts, the teacher says how likely it would have written that.

Always holds: every reply comes from the student as it is at that step. Not here: counting (model.course), the losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from hat_components.model.checkpoint import Checkpoints
from hat_components.model.codec import Codec
from hat_components.model.course import Pace, StepCourse, attention
from hat_components.model.generate import MicroModel
from hat_components.model.qwen import CAUSAL
from hat_components.opd.config import Config
from hat_components.opd.divergence import divergence, others_mean, sampled_reverse
from hat_components.opd.prompts import Prompts
from hat_components.opd.sessions import Sessions
from hat_components.rl.loss import sampled_logits
from hat_components.rl.rows import FlatRow
from hat_components.step import Progress

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Teacher(Protocol):
    """What can say how likely it would have written something (teacher.ServedTeacher)."""

    def logps(self, rows: Sequence[tuple[Sequence[int], int]]) -> list[list[float]]:
        """For each (ids, start): natural-log probabilities of ids[start:]."""


class Course(StepCourse):
    """One run of distillation. `teacher` is a model with the same vocabulary, or an endpoint."""

    def __init__(
        self,
        student: PreTrainedModel,
        teacher: PreTrainedModel | Teacher,
        codec: Codec,
        prompts: Prompts | Sessions,
        config: Config,
        progress: Progress,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        super().__init__("opd", student, Pace.of(config), progress, checkpoints)
        self.config, self.codec, self.teacher = config, codec, teacher
        self._prompts = prompts
        self._longest = int(student.config.max_position_embeddings) - config.reply_tokens
        self._sampler = MicroModel(student, codec, temperature=config.temperature, seed=config.seed, rows=config.batch)

    def begin(self) -> list[FlatRow]:
        """Set the learning rate; the student writes to the next step's prompts, or plays its sessions."""
        self.set_rate()
        self.model.eval()
        source = self._prompts
        rows = source.rows(self.steps, self.model) if isinstance(source, Sessions) else self._written(source)
        self.model.train()
        count = max(1, sum(row.sampled() for row in rows))
        self.tell("tokens", count / len(rows))
        self.tell("entropy", -sum(sum(row.logprobs) for row in rows) / count)
        return rows

    def _written(self, prompts: Prompts) -> list[FlatRow]:
        config = self.config
        self._sampler.update(self.model)
        drawn_prompts = prompts.of(self.steps, config.batch, self._longest)
        drawn = self._sampler.sample(drawn_prompts, config.reply_tokens, key=f"opd/{self.steps}")
        return [
            FlatRow(prompt, one.ids, (1,) * len(one.ids), one.logprobs)
            for prompt, one in zip(drawn_prompts, drawn, strict=True)
        ]

    def loss(self, rows: Sequence[FlatRow], total: int) -> torch.Tensor:
        """The part of the step's loss that `rows` bring: their divergences' sum over the step's `total` tokens."""
        temperature = self.config.temperature
        with attention(self.model, CAUSAL):
            logits, tokens = sampled_logits(self.model, rows, temperature)  # [S, V], [S]
        if isinstance(self.teacher, torch.nn.Module):
            with torch.no_grad(), attention(self.teacher, CAUSAL):
                theirs, _ = sampled_logits(self.teacher, rows, temperature)
            return divergence(logits, theirs, self.config.divergence).sum() / total
        scored = self.teacher.logps([(row.ids, len(row.prompt)) for row in rows])
        other = torch.tensor([logp for row in scored for logp in row])
        own = torch.log_softmax(logits, -1).gather(1, tokens[:, None])[:, 0]
        baseline = others_mean((own - other).detach(), [row.sampled() for row in rows])
        return sampled_reverse(own, other, baseline).sum() / total


def run_plain(course: Course) -> None:
    """Run the course to its end with the lean loop. Equal to TRL's on every step (tested)."""
    size = course.config.rows_at_once
    while not course.done:
        rows = course.begin()
        total = max(1, sum(row.sampled() for row in rows))
        loss = 0.0
        for start in range(0, len(rows), size):
            wanted = [row for row in rows[start : start + size] if row.sampled()]
            if not wanted:
                continue
            part = course.loss(wanted, total)
            part.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            loss += part.item()
        course.check(loss)
        course.move()
