"""TRL's DistillationTrainer over our prompts: its loop and its chunked divergence; our sampling and optimiser.

What is replaced, and why: generation (transformers' `generate` is several times slower at this size, and a restart has
to repeat it), and the learning rate (the course's). A prompt here is the number of a row. Not here: the lean loop.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback
from trl import DistillationConfig, DistillationTrainer

from hat_components.opd.course import Course


class _After(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    """Tells the course that a step is over."""

    def __init__(self, course: Course) -> None:
        self._course = course

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Count and save."""
        self._course.after_step()
        return control


class PromptTrainer(DistillationTrainer):  # type: ignore[misc]  # TRL has no types
    """DistillationTrainer for one course."""

    def __init__(self, course: Course, **arguments: Any) -> None:
        self._course = course
        self._sum = 0.0
        super().__init__(**arguments)

    def _generate(self, prompts: Sequence[str]) -> Any:
        course = self._course
        first = course.steps * course.config.batch
        if list(prompts) != [str(first + i) for i in range(course.config.batch)]:
            raise RuntimeError(f"TRL asks for the prompts {list(prompts)[:4]}, the course stands at {first}")
        rows = course.begin()
        torch.manual_seed(course.steps)  # TRL shuffles the rows of a step: sums depend on the order
        self._sum = 0.0
        return [list(row.prompt) for row in rows], [list(row.completion) for row in rows], None, None, []

    def compute_loss(self, *arguments: Any, **named: Any) -> Any:
        """TRL's loss; the course checks the step's sum before the optimiser moves."""
        loss = super().compute_loss(*arguments, **named)
        self._sum += float(loss.detach())
        if self.accelerator.sync_gradients:
            self._course.check(self._sum)
        return loss


def run_trl(course: Course) -> None:
    """Run the course to its end. Nothing is written but what the course writes."""
    from datasets import Dataset

    if course.done:
        return
    config = course.config
    numbers = range(course.steps * config.batch, config.steps * config.batch)
    with tempfile.TemporaryDirectory(prefix="hatstack-") as scratch, torch.random.fork_rng(devices=[]):
        trainer = PromptTrainer(
            course,
            model=course.model,
            teacher_model=course.teacher,
            args=_arguments(scratch, course),
            train_dataset=Dataset.from_dict({"prompt": [str(number) for number in numbers]}),
            processing_class=course.codec.tokenizer,
            callbacks=[_After(course)],
            optimizers=(course.optimizer, torch.optim.lr_scheduler.LambdaLR(course.optimizer, lambda _: 1.0)),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()


def _arguments(scratch: str, course: Course) -> DistillationConfig:
    config = course.config
    return DistillationConfig(
        output_dir=scratch,
        max_steps=config.steps - course.steps,
        per_device_train_batch_size=config.rows_at_once,
        gradient_accumulation_steps=config.batch // config.rows_at_once,
        shuffle_dataset=False,
        beta=config.divergence,
        temperature=config.temperature,
        max_completion_length=config.reply_tokens,
        max_grad_norm=config.clip,
        use_cpu=True,
        bf16=False,
        activation_checkpointing=False,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=config.seed,
    )
