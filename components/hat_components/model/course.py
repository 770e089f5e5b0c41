"""Where a training of steps on fresh samples stands (opd, rl, mtp): learning rate, curves, checkpoints, the ending.

Always holds: step n is made from the config's seed, n and the weights alone, so that a restored course makes the very
step that a straight run would; a loss that is no number ends the run before a weight is moved. Not here: courses of
supervised batches (train), what a step samples (the steps).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from hat_components.model.checkpoint import Checkpoints
from hat_components.model.folder import Loaded, save_folder
from hat_components.model.muon import MuonAdamW
from hat_components.model.stages import MODEL, Identity, earlier
from hat_components.model.train import TrainingError
from hat_components.step import Progress, StepResult

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RECENT = 10
"""Steps that the reported means look back."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How far and how fast: the fields of a step's config that have these names."""

    steps: int
    learning_rate: float
    warmup_steps: int
    weight_decay: float
    clip: float
    optimizer: Literal["muon", "adamw"]
    checkpoint_every: int

    @classmethod
    def of(cls, config: Any) -> Pace:
        """Taken from a config that has all of them."""
        return cls(**{name: getattr(config, name) for name in cls.__slots__})


class StepCourse:
    """One run. Restores the newest checkpoint where there is one."""

    def __init__(
        self, name: str, model: torch.nn.Module, pace: Pace, progress: Progress, checkpoints: Checkpoints | None = None
    ) -> None:
        """`name` prefixes the curves."""
        self.model, self.pace = model, pace
        self._name, self._progress, self._checkpoints = name, progress, checkpoints
        self.optimizer = MuonAdamW(
            model.named_parameters(), pace.learning_rate, pace.weight_decay, muon=pace.optimizer == "muon"
        )
        self.steps = 0
        self._recent: dict[str, deque[float]] = {}
        state = checkpoints.load(model, self.optimizer) if checkpoints else None
        if state is not None:
            self.steps = int(state["steps"])
            self._recent = {key: deque(found, RECENT) for key, found in state["recent"].items()}

    @property
    def done(self) -> bool:
        """Whether all steps are made."""
        return self.steps >= self.pace.steps

    def means(self) -> dict[str, float]:
        """Each curve's mean over its last points."""
        return {name: sum(found) / len(found) for name, found in sorted(self._recent.items())}

    def set_rate(self) -> None:
        """Give the optimiser the learning rate of the step that comes."""
        warm = min(1.0, (self.steps + 1) / self.pace.warmup_steps) if self.pace.warmup_steps else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = self.pace.learning_rate * warm

    def tell(self, name: str, value: float) -> None:
        """One point of a curve, at the step that is under way."""
        if math.isfinite(value):
            self._recent.setdefault(name, deque(maxlen=RECENT)).append(value)
        self._progress.metric(f"{self._name}.{name}", value, self.steps + 1)

    def check(self, loss: float) -> None:
        """Report the step's loss; raise where it is no number, before a weight is moved."""
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss} at step {self.steps + 1}", place=self._name, cure="lower the learning rate"
            )
        self.tell("loss", loss)

    def move(self) -> None:
        """Clip the gradient, let the optimiser move, and count the step."""
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        torch.nn.utils.clip_grad_norm_(trained, self.pace.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.after_step()

    def after_step(self) -> None:
        """The optimiser has moved: count, report, save."""
        self.steps += 1
        self._progress.progress(self.steps, self.pace.steps, "steps")
        every = self.pace.checkpoint_every
        if self._checkpoints and every and (self.steps % every == 0 or self.done):
            state: dict[str, Any] = {
                "steps": self.steps,
                "recent": {name: list(found) for name, found in self._recent.items()},
            }
            self._checkpoints.save(state, self.model, self.optimizer)


@contextmanager
def attention(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Run `model` with another attention for a while."""
    kept = model.config._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(kept)


def checkpoints_of(out: Path, identity: Identity, pace: Pace) -> Checkpoints | None:
    """Where the run's checkpoints are; None where it makes none."""
    if not pace.checkpoint_every:
        return None
    return Checkpoints(out / "checkpoints" / identity.step, identity.digest())


def check_finite(model: torch.nn.Module, place: str) -> None:
    """Raise TrainingError where a weight is no number."""
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise TrainingError(f"the weight {name} is not finite after training", place=place)


def finish(
    course: StepCourse,
    loaded: Loaded,
    identity: Identity,
    out: Path,
    progress: Progress,
    dtype: Literal["float32", "bfloat16"],
    facts: Mapping[str, Any] | None = None,
) -> StepResult:
    """Write the model folder, remove the checkpoints, and tell the result."""
    loaded.model.eval()
    check_finite(loaded.model, identity.step)
    means = {name: round(value, 6) for name, value in course.means().items()}
    training = {
        **identity.record(),
        "identity": identity.digest(),
        "parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "stages": {identity.step: {"steps": course.steps, **means, **(facts or {})}},
    }
    save_folder(out / MODEL, loaded.model, loaded.codec, training, dtype, loaded.folder)
    if course._checkpoints:
        course._checkpoints.clear()
    result = earlier(out, identity, progress)
    assert result is not None
    return result
