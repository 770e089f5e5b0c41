"""RL of a given model: TRL's GRPOTrainer over real sessions, sampled with the model as it is.

Always holds: items, states and random numbers of step n follow from the seed and n alone; every process has its part of
the same rollouts; the advantage is that of `rl.reward.compose`. Not here: sessions and rewards (hat_components.rl).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hat_components.large.load import load_large, trainable
from hat_components.large.opd import curves
from hat_components.large.run import Reporter, Watched, finish, newest, rank, run, steady, together, world
from hat_components.large.settings import Large
from hat_components.model.anymodel import AnyModel
from hat_components.model.stages import Identity
from hat_components.rl.config import Config
from hat_components.rl.rollouts import Player, Rollouts
from hat_components.step import Progress

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is told to be experimental; trl is pinned

from trl import GRPOConfig, GRPOTrainer


class GroupTrainer(Watched, GRPOTrainer):  # type: ignore[misc]  # TRL has no types
    """GRPOTrainer whose rollouts are sessions. A prompt is the number of a group."""

    def __init__(self, config: Config, player: Player, **given: Any) -> None:
        self._config, self._player = config, player
        super().__init__(rollout_func=lambda prompts, trainer: trainer.roll_out(prompts), **given)

    def roll_out(self, prompts: Sequence[str]) -> dict[str, Any]:
        """TRL's `rollout_func`: this process's part of the step's rollouts."""
        config, step = self._config, self.state.global_step
        begin = rank() * len(prompts)
        wanted = [str(step * config.groups + (begin + i) // config.group) for i in range(len(prompts))]
        if list(prompts) != wanted or len(prompts) * world() != config.groups * config.group:
            raise RuntimeError(f"TRL asks for the groups {sorted(set(prompts))}, the step has {wanted[0]} on")
        if config.score_every and step % config.score_every == 0:
            self.score(step)
        rollouts = self._player.play(step, self.accelerator.unwrap_model(self.model_wrapped))
        for name, value in {**curves(rollouts.rows), **told(rollouts)}.items():
            self.reporter.tell(name, value, step + 1)
        rows = rollouts.rows[begin : begin + len(prompts)]
        composite = rollouts.composed.composite[begin : begin + len(prompts)]
        return {
            "prompt_ids": [list(row.prompt) for row in rows],
            "completion_ids": [list(row.completion) for row in rows],
            "logprobs": [list(row.logprobs) for row in rows],
            "env_mask": [list(row.mask) for row in rows],
            "composite": [None if value != value else float(value) for value in composite],
        }

    def score(self, step: int) -> None:
        """What the policy is worth on held-out items."""
        for name, value in self._player.score(self.accelerator.unwrap_model(self.model_wrapped)).items():
            self.reporter.tell(f"score.{name}", value, step + 1)


def told(rollouts: Rollouts) -> dict[str, float]:
    """The curves of a step's rollouts."""
    composed = rollouts.composed
    found = {f"reward.{name}": value for name, value in composed.means.items()}
    found |= {f"dead_groups.{name}": float(count) for name, count in composed.dead_terms.items()}
    found |= {f"reasoning.{kind}": value for kind, value in rollouts.lengths.items()}
    left_out = float(sum(row.left_out for row in rollouts.rows))
    return {**found, "dead_groups": float(composed.dead), "augmented": rollouts.augmented, "left_out": left_out}


def composite_reward(composite: Sequence[float | None], **_: Any) -> list[float | None]:
    """The composite that came along with the rollouts."""
    return list(composite)


@together
def train(
    config: Config, large: Large, inputs: Mapping[str, Path], identity: Identity, out: Path, progress: Progress
) -> None:
    """Optimise `start` and write the artifact `model`."""
    from datasets import Dataset

    start = Path(inputs["start"])
    loaded = load_large(start, large)
    reporter = Reporter("rl", identity, progress)
    folder = out / "checkpoints" / "rl"
    resumed = newest(folder, identity)
    trainer = GroupTrainer(
        config,
        Player(config, Path(inputs["harness"]), loaded.codec, loaded.model, policy=AnyModel),
        model=trainable(loaded.model, large, config.seed, config.freeze_embedding),
        reward_funcs=[composite_reward],
        args=_arguments(config, large, folder, bool(getattr(loaded.model.config, "num_experts", 0))),
        train_dataset=Dataset.from_dict({"prompt": [str(number) for number in range(config.steps * config.groups)]}),
        processing_class=loaded.codec.tokenizer,
        callbacks=[reporter],
    )
    state = run(trainer, reporter, resumed)
    if config.score_every:
        trainer.score(config.steps)
    finish(trainer, state, reporter, identity, start, out, large, config.dtype)


def _arguments(config: Config, large: Large, folder: Path, experts: bool) -> GRPOConfig:
    common, passes = steady(config, large, folder, config.groups * config.group, "groups")
    return GRPOConfig(
        **common,
        steps_per_generation=passes,
        num_generations=config.group,
        num_iterations=1,
        shuffle_dataset=False,
        multi_objective_aggregation="sum_then_normalize",
        scale_rewards="batch",
        loss_type=config.loss,
        beta=config.beta,
        temperature=config.temperature,
        router_aux_loss_coef=0.0 if experts else None,
    )
