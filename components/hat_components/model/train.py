"""Supervised training: one course of batches, run by a plain loop or by TRL's SFTTrainer with the same result.

Always holds: the loss is the mean negative log-likelihood of the supervised tokens of a batch, and the head is computed
at those positions only; learning rates depend on tokens done, not on time; a loss that is no number ends the run with
an error before a weight is saved. Not here: the rows (batches), the SFTTrainer (trl_trainer), steps.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from hat_components.model import parallel
from hat_components.model.batches import Batch, Stream
from hat_components.model.codec import IGNORED
from hat_components.model.muon import MuonAdamW
from hat_components.model.qwen import CAUSAL
from hat_components.model.settings import FitConfig
from hat_components.step import Progress, StepError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from hat_components.model.checkpoint import Checkpoints


class TrainingError(StepError):
    """Training broke: the loss is no number."""


@dataclass(frozen=True, slots=True)
class FitReport:
    """What a course did. `loss` is the mean of its last 50 steps; `seconds` is wall time."""

    steps: int
    tokens: int
    supervised: int
    loss: float
    seconds: float
    shares: Mapping[str, float]
    """Measured share of the tokens by source."""

    def facts(self) -> dict[str, Any]:
        """Everything but the time, rounded where a digit more would say nothing."""
        shares = {name: round(share, 4) for name, share in self.shares.items()}
        counts = {"steps": self.steps, "tokens": self.tokens, "supervised": self.supervised}
        return {**counts, "loss": round(self.loss, 5), "shares": shares}


class Course:
    """Where a training stands: counts, losses, learning rate, checkpoints. Shared by both loops."""

    def __init__(
        self,
        model: PreTrainedModel,
        stream: Stream,
        config: FitConfig,
        progress: Progress,
        name: str = "",
        checkpoints: Checkpoints | None = None,
        tokenizer: PreTrainedTokenizerFast | None = None,
    ) -> None:
        """`name` prefixes the metrics. A checkpoint of the same run, if there is one, is restored here."""
        self.model, self.config, self.stream, self.tokenizer = model, config, stream, tokenizer
        self.optimizer = MuonAdamW(
            model.named_parameters(),
            config.learning_rate,
            config.weight_decay,
            config.momentum,
            muon=config.optimizer == "muon",
        )
        self._progress, self._prefix, self._checkpoints = progress, f"{name}." if name else "", checkpoints
        self.steps = self.tokens = self.supervised = 0
        self._recent: deque[float] = deque(maxlen=100)
        self._began = time.monotonic()
        restored = checkpoints.load(model, self.optimizer) if checkpoints else None
        state = parallel.join().as_first(restored, model, self.optimizer)  # of several processes one has checkpoints
        if state is not None:
            self.steps, self.tokens, self.supervised = state["steps"], state["tokens"], state["supervised"]
            self._recent.extend(state["recent"])
            stream.restore(state["stream"])

    @property
    def done(self) -> bool:
        """Whether the budget is used up or the loss is low enough."""
        full = len(self._recent) == self._recent.maxlen
        low = full and self.config.stop_below > 0 and self.loss(100) < self.config.stop_below
        return self.tokens >= self.config.tokens or low

    def loss(self, last: int = 50) -> float:
        """Mean loss of the `last` steps (at most 100)."""
        recent = list(self._recent)[-last:]
        return sum(recent) / len(recent) if recent else math.nan

    def factor(self) -> float:
        """Learning rate of the next step, as a factor of the configured one."""
        warm = min(1.0, (self.steps + 1) / self.config.warmup_steps) if self.config.warmup_steps else 1.0
        if self.config.schedule == "constant":
            return warm
        done = min(1.0, self.tokens / self.config.tokens)
        return warm * (0.05 + 0.95 * 0.5 * (1.0 + math.cos(math.pi * done)))

    def count(self, tokens: int, supervised: int, loss: float) -> None:
        """Account for a batch whose loss is known, before its optimiser step."""
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss} at step {self.steps + 1}",
                place="training",
                cure="lower the learning rate or look for broken rows",
            )
        self.steps += 1
        self.tokens += tokens
        self.supervised += supervised
        self._recent.append(loss)

    def after_step(self, position: Mapping[str, Any]) -> None:
        """Report and save, after the optimiser's step; `position` is that of the batch."""
        if self.steps % self.config.log_every == 0 or self.done:
            self._progress.metric(f"{self._prefix}loss", self.loss(self.config.log_every), self.steps)
            self._progress.progress(min(self.tokens, self.config.tokens), self.config.tokens, "tokens")
        every = self.config.checkpoint_every
        if self._checkpoints and every and (self.steps % every == 0 or self.done):
            state = {
                "steps": self.steps,
                "tokens": self.tokens,
                "supervised": self.supervised,
                "recent": list(self._recent),
                "stream": position,
            }
            self._checkpoints.save(state, self.model, self.optimizer)

    def report(self) -> FitReport:
        """What was done so far."""
        seconds = time.monotonic() - self._began
        return FitReport(self.steps, self.tokens, self.supervised, self.loss(), seconds, self.stream.shares())


def supervised_loss(
    model: PreTrainedModel, ids: torch.Tensor, labels: torch.Tensor, precision: str = "bfloat16"
) -> torch.Tensor:
    """Mean negative log-likelihood of the supervised tokens of `ids`, `labels` [B, T]; the head runs on those alone."""
    following = functional.pad(labels[:, 1:], (0, 1), value=IGNORED).flatten()  # what each position predicts, [B * T]
    picked = (following != IGNORED).nonzero()[:, 0]
    fill = -picked.numel() % 64  # few shapes (batches.rounded); the filled-up rows count for nothing
    wanted = functional.pad(following[picked], (0, fill), value=IGNORED)
    with torch.autocast(ids.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state  # [B, T, hidden]
        logits = model.lm_head(hidden.flatten(0, 1)[functional.pad(picked, (0, fill))])  # [supervised + fill, V]
    return functional.cross_entropy(logits.float(), wanted, ignore_index=IGNORED)


def fit(
    model: PreTrainedModel,
    stream: Stream,
    config: FitConfig,
    progress: Progress,
    *,
    name: str = "",
    checkpoints: Checkpoints | None = None,
    tokenizer: PreTrainedTokenizerFast | None = None,
) -> FitReport:
    """Train `model` in place over `stream` until the token budget is used up; resumes where a checkpoint stands.

    `tokenizer` is what TRL's trainer asks for; the plain loop does without.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    course = Course(model, stream, config, progress, name, checkpoints, tokenizer)
    kept = model.config._attn_implementation
    if device.type == "cpu":
        model.set_attn_implementation(CAUSAL)
    model.train()
    try:
        if config.trainer == "trl":
            if parallel.join().size > 1:
                raise TrainingError(
                    "several processes train by the plain loop alone", place="trainer", cure="set trainer: plain"
                )
            from hat_components.model.trl_trainer import run_trl

            run_trl(course)
        else:
            _run_plain(course)
    finally:
        model.set_attn_implementation(kept)
        model.eval()
        model.to("cpu")
    for parameter_name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise TrainingError(f"the weight {parameter_name} is not finite after training", place="training")
    return course.report()


def _run_plain(course: Course) -> None:
    config, optimizer = course.config, course.optimizer
    trained = [parameter for parameter in course.model.parameters() if parameter.requires_grad]
    device = trained[0].device
    peers = parallel.join()
    while not course.done:
        batch: Batch = next(course.stream)
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * course.factor()
        ids, labels = peers.share(batch.ids.to(device), batch.labels.to(device))
        supervised = int((batch.labels[:, 1:] != IGNORED).sum())
        mine = int((labels[:, 1:] != IGNORED).sum())
        loss = torch.zeros((), device=device)
        if mine or peers.size == 1:  # weighted by its share of the tokens, so that the sum is the batch's mean
            loss = supervised_loss(course.model, ids, labels, config.precision) * (mine / max(1, supervised))
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        course.count(batch.tokens, supervised, peers.total(loss).item())
        peers.add_gradients(trained)
        torch.nn.utils.clip_grad_norm_(trained, config.clip)
        optimizer.step()
        optimizer.zero_grad()
        course.after_step(batch.position)
