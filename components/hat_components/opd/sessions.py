"""Agentic distillation: the student plays sessions of the scenario, and the teacher says what it would have written there.

Always holds: items, states and random numbers of step n follow from the seed and n alone; what is distilled is what the
student sampled, token for token, and what the session added is context. Not here: rewards (rl), divergences.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hat_components.model.codec import Codec
from hat_components.model.generate import MicroModel
from hat_components.opd.config import Config, Play
from hat_components.rl.rows import FlatRow, flat_row
from hat_components.scenarios import load
from hat_components.sessions import States, draw_seed, play_scored, read_harness

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Sessions:
    """Plays the sessions of a step."""

    def __init__(
        self,
        config: Config,
        play: Play,
        harness: Path,
        codec: Codec,
        model: PreTrainedModel,
        policy: type[MicroModel] = MicroModel,
    ) -> None:
        """`policy` is what samples with the model."""
        self._config, self._play, self._codec = config, play, codec
        self._scenario = load(config.scenario, {**config.scenario_settings, **play.settings})
        plan = play.plan if play.states == "augmented" else None
        self._states = States(self._scenario, read_harness(harness), plan, config.seed)
        self._policy = policy(
            model,
            codec,
            temperature=config.temperature,
            seed=config.seed,
            rows=config.large.sampled_at_once if config.large else config.batch,
            cache_tokens=config.batch * int(model.config.max_position_embeddings),
        )

    def rows(self, step: int, model: PreTrainedModel) -> list[FlatRow]:
        """`batch` sessions of step `step`, from 0, played with the weights as they are."""
        self._policy.update(model)
        cases = []
        for number in range(step * self._config.batch, (step + 1) * self._config.batch):
            seed = draw_seed(self._config.seed, "opd", number) % 2**31
            item = next(iter(self._scenario.items(seed, "train", 1, self._play.turns)))
            cases.append((item, self._states.of(item, number)))
        played = play_scored(
            self._scenario, cases, self._policy, label=f"opd/{step}/", batch=len(cases),
            count=lambda text: len(self._codec.encode_text(text)),
        )  # fmt: skip
        rows = [flat_row(one.trace, self._codec) for one in played]
        self._policy.forget()
        return rows
