"""TRL's SFTTrainer over our batches: its loop, callbacks and clipping; our loss, optimiser and stream.

What it replaces of SFTTrainer, and why: the data loader (token batches, bucketed by length, that a restart repeats),
and `compute_loss` (the head on supervised positions only, no entropy and accuracy of every token). Measured as it
comes, SFTTrainer reaches two thirds of a plain loop at this size; so it reaches nine tenths and more (bench).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from transformers import PrinterCallback, TrainerCallback
from trl import SFTConfig, SFTTrainer

from hat_components.model.codec import IGNORED
from hat_components.model.train import supervised_loss

if TYPE_CHECKING:
    from hat_components.model.train import Course

_NEVER = 1_000_000_000


class _Batches(torch.utils.data.IterableDataset[dict[str, Any]]):
    """The course's batches until it is done, each with the position that the stream has after it."""

    def __init__(self, course: Course) -> None:
        self._course = course

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while not self._course.done:
            batch = next(self._course.stream)
            yield {"input_ids": batch.ids, "labels": batch.labels, "position": batch.position}


class _After(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    """Tells the course that a step is over, and the trainer that the course is."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self.position: Mapping[str, Any] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Save and report; stop when done."""
        self._course.after_step(self.position)
        control.should_training_stop = self._course.done
        return control


class CourseTrainer(SFTTrainer):  # type: ignore[misc]  # TRL has no types
    """SFTTrainer for one course."""

    def __init__(self, course: Course, after: _After, **arguments: Any) -> None:
        self._course, self._after = course, after
        super().__init__(**arguments)

    def get_train_dataloader(self) -> torch.utils.data.DataLoader[dict[str, Any]]:
        """Whole batches as they come; no prefetching, so that the stream stands where training stands."""
        return torch.utils.data.DataLoader(_Batches(self._course), batch_size=None)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> tuple[list[Any], None]:
        """One batch; its supervised tokens are counted by the loss itself."""
        return [next(epoch_iterator)], None

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Our loss; the course counts it before the optimiser steps."""
        labels = inputs["labels"]
        loss = supervised_loss(model, inputs["input_ids"], labels, self._course.config.precision)
        self._after.position = inputs["position"]
        self._course.count(labels.numel(), int((labels[:, 1:] != IGNORED).sum()), loss.item())
        return loss


def run_trl(course: Course) -> None:
    """Run the course in an SFTTrainer. Nothing is written but what the course writes."""
    from datasets import Dataset

    config = course.config
    factor = torch.optim.lr_scheduler.LambdaLR(course.optimizer, lambda _: course.factor())
    after = _After(course)
    with tempfile.TemporaryDirectory(prefix="hatstack-") as scratch:
        trainer = CourseTrainer(
            course,
            after,
            model=course.model,
            args=_arguments(scratch, config.clip),
            train_dataset=Dataset.from_dict({"input_ids": [[0]], "labels": [[0]]}),
            processing_class=course.tokenizer,
            optimizers=(course.optimizer, factor),
            callbacks=[after],
        )
        trainer.remove_callback(PrinterCallback)
        if not course.done:
            trainer.train()


def _arguments(scratch: str, clip: float) -> SFTConfig:
    return SFTConfig(
        output_dir=scratch,
        max_steps=_NEVER,
        max_grad_norm=clip,
        use_cpu=not torch.cuda.is_available(),
        bf16=False,  # the loss casts; a wrapped forward would cast twice
        activation_checkpointing=False,
        dataset_kwargs={"skip_prepare_dataset": True},
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )
