"""A run of one of TRL's trainers: its arguments, its checkpoints, what it tells, and its ending.

Always holds: a killed run goes on after its newest whole checkpoint and ends with the same weights (same machine,
processes, versions); a checkpoint of another run is refused; a loss that is no number ends the run before a weight is
moved; of several processes one writes. Not here: what is trained on (sft, opd, rl).
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import torch
from torch import distributed
from torch.distributed.tensor import DTensor
from transformers import PrinterCallback, TrainerCallback

from hat_components.large.load import write
from hat_components.large.settings import Large
from hat_components.model.artifact import disk_errors
from hat_components.model.checkpoint import ResumeError
from hat_components.model.parallel import join
from hat_components.model.stages import MODEL, Identity, earlier
from hat_components.model.train import TrainingError
from hat_components.opd.config import Config as OpdConfig
from hat_components.rl.config import Config as RlConfig
from hat_components.step import InputError, NullProgress, Progress, StepResult

WHOLE = "whole.json"
"""Written last into a checkpoint."""


class Reporter(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    """Tells progress, seals checkpoints, and remembers what was told last."""

    def __init__(
        self, name: str, identity: Identity, progress: Progress, position: Callable[[], Any] = lambda: None
    ) -> None:
        """`position` is what to keep with a checkpoint: where the data stand."""
        self.name, self.progress = name, progress
        self._identity, self._position = identity, position
        self.last: dict[str, float] = {}
        self._loss = 0.0

    def tell(self, name: str, value: float, step: int) -> None:
        """One point of a curve; `step` counts from 1."""
        if math.isfinite(value):
            self.last[name] = value
        self.progress.metric(f"{self.name}.{name}", value, step)

    def add(self, loss: float, step: int) -> None:
        """A part of the loss of the step that is under way; raises where it is no number."""
        if not math.isfinite(loss):
            raise TrainingError(f"the loss is {loss} at step {step}", place=self.name, cure="lower the learning rate")
        self._loss += loss

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """The optimiser has moved.

        The last step is not saved: the model follows at once, and transformers makes one step more when it resumes there.
        """
        if state.global_step >= state.max_steps:
            control.should_save = False
        self.tell("loss", self._loss, state.global_step)
        self._loss = 0.0
        self.progress.progress(state.global_step, state.max_steps, "steps")
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Every process has written its part: seal it."""
        barrier()
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            draft = folder / f".{WHOLE}"
            sealed = {"identity": self._identity.digest(), "position": self._position(), "last": self.last}
            draft.write_text(json.dumps(sealed), encoding="utf-8")
            draft.replace(folder / WHOLE)
        barrier()
        return control


class Watched:
    """Put before a TRL trainer: each loss goes to `reporter` before the optimiser may move."""

    reporter: Reporter
    state: Any
    args: Any

    def compute_loss(self, *arguments: Any, **named: Any) -> Any:
        """The trainer's loss."""
        loss = super().compute_loss(*arguments, **named)  # type: ignore[misc]  # of the trainer that comes after
        mean = loss.detach().float()
        if world() > 1:
            distributed.all_reduce(mean)
            mean = mean / world()
        self.reporter.add(float(mean), self.state.global_step + 1)
        return loss


Train = Callable[[Any, Large, Mapping[str, Path], Identity, Path, Progress], None]
"""(config, large, inputs, identity, out, progress): trains and writes the artifact `model` below `out`."""


def together(train: Train) -> Callable[[Any, Large, Mapping[str, Path], Identity, Path, Progress], StepResult]:
    """Run a training in all processes, in the folder of the first one, unless it is done already; all give its result."""

    @wraps(train)
    def run(
        config: Any, large: Large, inputs: Mapping[str, Path], identity: Identity, out: Path, progress: Progress
    ) -> StepResult:
        join()
        told = progress if rank() == 0 else NullProgress()
        result = _first(earlier(out, identity, told) if rank() == 0 else None)
        if result is None:
            train(config, large, inputs, identity, Path(_first(str(out.absolute()))), told)
            result = _first(earlier(out, identity, told) if rank() == 0 else None)
        if rank():
            (out / MODEL).mkdir(parents=True, exist_ok=True)  # the first one's is the artifact
        assert isinstance(result, StepResult)
        return result

    return run


def _first(value: Any) -> Any:
    """What the first process says."""
    if not distributed.is_initialized():
        return value
    box = [value]
    distributed.broadcast_object_list(box, src=0)
    return box[0]


def world() -> int:
    """Processes that train together."""
    return distributed.get_world_size() if distributed.is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """This one's number, from 0."""
    return distributed.get_rank() if distributed.is_initialized() else int(os.environ.get("RANK", "0"))


def barrier() -> None:
    """Wait for the others."""
    if distributed.is_initialized():
        distributed.barrier()


def arguments(
    large: Large,
    folder: Path,
    *,
    steps: int,
    rows: int,
    passes: int,
    learning_rate: float,
    schedule: Literal["constant", "cosine"],
    warmup: int,
    decay: float,
    clip: float,
    every: int,
    seed: int,
) -> dict[str, Any]:
    """What all of TRL's configs take. `rows` a process holds at a time, `passes` add up to one step."""
    sharded = large.shard and world() > 1
    return {
        "output_dir": str(folder),
        "max_steps": steps,
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": passes,
        "learning_rate": learning_rate,
        "lr_scheduler_type": "constant_with_warmup" if schedule == "constant" else "cosine_with_min_lr",
        "lr_scheduler_kwargs": None if schedule == "constant" else {"min_lr_rate": 0.05},
        "warmup_steps": warmup,
        "weight_decay": decay,
        "max_grad_norm": clip,
        "optim": "adamw_torch",
        "bf16": large.dtype == "bfloat16",
        "use_cpu": not torch.cuda.is_available(),
        "activation_checkpointing": large.checkpointing and not sharded,
        "fsdp": True if sharded else None,
        "fsdp_config": {
            "version": 2,
            "reshard_after_forward": True,
            "activation_checkpointing": large.checkpointing,
            "state_dict_type": "SHARDED_STATE_DICT",
        }
        if sharded
        else None,
        "save_strategy": "steps" if every else "no",
        "save_steps": every or 1,
        "save_total_limit": 2,
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "seed": seed,
        "data_seed": seed,
    }


def steady(
    config: OpdConfig | RlConfig, large: Large, folder: Path, sampled: int, of: str
) -> tuple[dict[str, Any], int]:
    """What TRL's configs take where a step is over `sampled` rows that the policy wrote, and the passes that it takes.

    InputError when they are no multiple of what the processes hold at a time; `of` is the setting to change.
    """
    held = config.rows_at_once * world()
    if sampled % held:
        raise InputError(f"{sampled} rows are no multiple of {held}", place=of, cure="give a multiple")
    common = arguments(
        large,
        folder,
        steps=config.steps,
        rows=config.rows_at_once,
        passes=sampled // held,
        learning_rate=config.learning_rate,
        schedule="constant",
        warmup=config.warmup_steps,
        decay=config.weight_decay,
        clip=config.clip,
        every=config.checkpoint_every,
        seed=config.seed,
    )
    return common, sampled // held


def newest(folder: Path, identity: Identity) -> tuple[Path, dict[str, Any]] | None:
    """The newest whole checkpoint and what was sealed with it; ones that a kill cut off are removed."""
    found: list[tuple[int, Path, dict[str, Any]]] = []
    for path in folder.glob("checkpoint-*") if folder.is_dir() else ():
        if not (path / WHOLE).is_file():
            if rank() == 0:
                shutil.rmtree(path, ignore_errors=True)
            continue
        sealed = json.loads((path / WHOLE).read_text(encoding="utf-8"))
        if sealed["identity"] != identity.digest():
            cure = "give a new output folder, or run with the config, inputs and versions that it began with"
            raise ResumeError("the checkpoint belongs to a run with another config", place=str(path), cure=cure)
        found.append((int(path.name.rpartition("-")[2]), path, sealed))
    barrier()
    if not found:
        return None
    _, path, sealed = max(found, key=lambda entry: entry[0])
    return path, sealed


def run(trainer: Any, reporter: Reporter, resumed: tuple[Path, dict[str, Any]] | None) -> Mapping[str, torch.Tensor]:
    """Train to the end; the trained weights on the CPU of the first process (empty on the others)."""
    trainer.reporter = reporter
    trainer.remove_callback(PrinterCallback)
    if resumed is not None:
        reporter.last.update(resumed[1]["last"])
    with disk_errors(Path(trainer.args.output_dir)):
        trainer.train(resume_from_checkpoint=None if resumed is None else str(resumed[0]))
    state = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    whole = {name: _whole(tensor).detach().cpu() for name, tensor in state.items()}
    return whole if rank() == 0 else {}


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a weight whose parts the processes hold; all of them must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def finish(
    trainer: Any,
    state: Mapping[str, torch.Tensor],
    reporter: Reporter,
    identity: Identity,
    start: Path,
    out: Path,
    large: Large,
    dtype: Literal["float32", "bfloat16"],
) -> None:
    """Write the model folder and remove the checkpoints."""
    if rank() == 0:
        told = {name: round(value, 6) for name, value in reporter.last.items()}
        stages = {identity.step: {"steps": trainer.state.global_step, **told}}
        training = {**identity.record(), "identity": identity.digest(), "stages": stages}
        write(out / MODEL, start, large, state, training, dtype)
        shutil.rmtree(trainer.args.output_dir, ignore_errors=True)
    barrier()
