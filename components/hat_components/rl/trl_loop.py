"""TRL's GRPOTrainer over our sessions: its loop, loss and batch scaling; our rollouts, reward and optimiser.

`rollout_func` is given nothing but prompts, so a prompt here is the number of a group; it comes once for each rollout.
The one reward function hands over the composite of `reward.compose`, which TRL centres on its group and divides by the
batch's deviation: GDPO's whitening (tested against both). What is replaced, and why: the reference's
log-probabilities (TRL would load a second model from a hub name), and the learning rate (the course's).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback

from hat_components.rl.course import Course, Prepared

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is told to be experimental; trl is pinned

from trl import GRPOConfig, GRPOTrainer


class _After(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    """Tells the course that a step is over."""

    def __init__(self, course: Course) -> None:
        self._course = course

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Count and save."""
        self._course.after_step()
        return control


class SessionTrainer(GRPOTrainer):  # type: ignore[misc]  # TRL has no types
    """GRPOTrainer for one course."""

    def __init__(self, course: Course, **arguments: Any) -> None:
        self._course = course
        self._prepared: Prepared | None = None
        self._loss = 0.0
        super().__init__(**arguments)
        self.beta = course.config.beta  # after the constructor, which would look for a reference model

    def roll_out(self, prompts: Sequence[str], _: Any) -> dict[str, Any]:
        """TRL's `rollout_func`. `prompts` are group numbers, each as often as a group has rollouts."""
        course = self._course
        first = course.steps * course.config.groups
        wanted = [str(first + i // course.config.group) for i in range(len(prompts))]
        if list(prompts) != wanted or len(prompts) != course.config.groups * course.config.group:
            raise RuntimeError(f"TRL asks for the groups {sorted(set(prompts))}, the course stands at {first}")
        prepared = self._prepared = course.begin()
        torch.manual_seed(course.steps)  # TRL shuffles the rows of a step: sums depend on the order
        self._loss = 0.0
        composite = prepared.rollouts.composed.composite
        return {
            "prompt_ids": [list(row.prompt) for row in prepared.rows],
            "completion_ids": [list(row.completion) for row in prepared.rows],
            "logprobs": [list(row.logprobs) for row in prepared.rows],
            "env_mask": [list(row.mask) for row in prepared.rows],
            "composite": [None if value != value else float(value) for value in composite],
        }

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        beta, self.beta = self.beta, 0.0  # or TRL asks a reference model of its own
        output = super()._generate_and_score_completions(inputs)
        self.beta = beta
        prepared = self._prepared
        if beta and prepared is not None:
            reference = torch.zeros(output["completion_ids"].shape)
            for number, (row, logps) in enumerate(zip(prepared.rows, prepared.reference, strict=True)):
                places = torch.tensor(row.mask).nonzero()[:, 0]
                reference[number, places] = logps.float()
            output["ref_per_token_logps"] = reference
        return output

    def compute_loss(self, *arguments: Any, **named: Any) -> Any:
        """TRL's loss; the course checks the step's sum before the optimiser moves."""
        loss = super().compute_loss(*arguments, **named)
        self._loss += float(loss.detach())
        if self.accelerator.sync_gradients:
            self._course.check(self._loss)
        return loss


def composite_reward(composite: Sequence[float | None], **_: Any) -> list[float | None]:
    """The composite that came along with the rollouts."""
    return list(composite)


def run_trl(course: Course) -> None:
    """Run the course to its end. Nothing is written but what the course writes."""
    from datasets import Dataset

    config = course.config
    if course.done:
        return
    groups = range(course.steps * config.groups, config.steps * config.groups)
    with tempfile.TemporaryDirectory(prefix="hatstack-") as scratch, torch.random.fork_rng(devices=[]):
        trainer = SessionTrainer(
            course,
            model=course.model,
            reward_funcs=[composite_reward],
            args=_arguments(scratch, course),
            train_dataset=Dataset.from_dict({"prompt": [str(number) for number in groups]}),
            processing_class=course.tokenizer,
            callbacks=[_After(course)],
            optimizers=(course.optimizer, torch.optim.lr_scheduler.LambdaLR(course.optimizer, lambda _: 1.0)),
            rollout_func=lambda prompts, trainer: trainer.roll_out(prompts, trainer),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()


def _arguments(scratch: str, course: Course) -> GRPOConfig:
    config = course.config
    passes = config.groups * config.group // config.rows_at_once
    return GRPOConfig(
        output_dir=scratch,
        max_steps=config.steps - course.steps,
        per_device_train_batch_size=config.rows_at_once,
        gradient_accumulation_steps=passes,
        steps_per_generation=passes,
        num_generations=config.group,
        num_iterations=1,
        shuffle_dataset=False,
        multi_objective_aggregation="sum_then_normalize",
        scale_rewards="batch",
        loss_type=config.loss,
        beta=0.0,
        temperature=config.temperature,
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
