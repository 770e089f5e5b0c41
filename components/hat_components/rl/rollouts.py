"""Rollouts of a step: groups of sessions, each group one item under one harness state, played by the current policy.

Always holds: the items, states and random numbers of step n follow from the config's seed and n alone, so that a
restarted run plays the same; all rollouts of a group share item and state and differ only in what was sampled.
Not here: the optimiser (course), the loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hat_components.model.codec import Codec
from hat_components.model.generate import MicroModel
from hat_components.rl.config import NAMES, Config
from hat_components.rl.reward import Composed, compose
from hat_components.rl.rows import FlatRow, flat_row
from hat_components.rl.values import reasoning_lengths, values_of
from hat_components.scenarios import load
from hat_components.sessions import Played, State, States, draw_seed, play_scored, read_harness
from hat_harness.events import CallModel, Failure, ModelOutput
from hat_scenarios.base import Item

if TYPE_CHECKING:
    from transformers import PreTrainedModel


SCORES = NAMES[:4]
"""Scores of a turn (hat_scenarios.base.Scores)."""


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Everything that one step trains on, N rollouts, group by group."""

    rows: tuple[FlatRow, ...]
    composed: Composed
    lengths: Mapping[str, float]
    """What a model call led to → mean tokens of its reasoning."""
    augmented: float
    """Share of the groups that met a rewritten harness."""
    screened: Mapping[str, float] = field(default_factory=dict)
    """Score → mean over all items that were drawn, before any was chosen; empty where none was."""


class Player:
    """Plays rollouts with a policy."""

    def __init__(
        self,
        config: Config,
        harness: Path,
        codec: Codec,
        model: PreTrainedModel,
        greedy: bool = False,
        policy: type[MicroModel] = MicroModel,
    ) -> None:
        """`greedy` plays without chance, whatever the config's temperature; `policy` is what samples with the model."""
        self._config, self._codec, self._make = config, codec, policy
        self._at_once = config.large.sampled_at_once if config.large else 0
        self._scenario = load(config.scenario, config.settings)
        plan = config.plan if config.states == "augmented" else None
        self._harness = read_harness(harness)
        self._states = States(self._scenario, self._harness, plan, config.seed)
        rollouts = config.groups * config.group
        self._policy = policy(
            model,
            codec,
            temperature=0.0 if greedy else config.temperature,
            seed=config.seed,
            rows=self._at_once or rollouts,
            cache_tokens=rollouts * int(model.config.max_position_embeddings),  # no context is ever encoded anew
        )

    def cases(self, step: int) -> list[tuple[Item, State]]:
        """The items of step `step`, from 0, each under its state; `screen` of them for each group."""
        found = []
        count = self._config.groups * self._config.screen
        for number in range(step * count, (step + 1) * count):
            seed = draw_seed(self._config.seed, "rl", number) % 2**31
            item = next(iter(self._scenario.items(seed, "train", 1, self._config.turns)))
            found.append((item, self._states.of(item, number)))
        return found

    def play(self, step: int, model: PreTrainedModel) -> Rollouts:
        """Play the groups of a step with the weights as they are."""
        self._policy.update(model)
        groups = self.cases(step)
        screened: dict[str, float] = {}
        if self._config.screen > 1:
            groups, screened = self._worst(groups, f"rl/{step}/screen/")
        played = self._played([case for case in groups for _ in range(self._config.group)], f"rl/{step}/")
        return self._gather(played, sum(bool(state.families) for _, state in groups) / len(groups), screened)

    def once(self, step: int, model: PreTrainedModel) -> list[FlatRow]:
        """Rows of the items of a step, each played once."""
        self._policy.update(model)
        return [flat_row(one.trace, self._codec) for one in self._played(self.cases(step), f"rl/{step}/once/")]

    def _worst(
        self, drawn: Sequence[tuple[Item, State]], label: str
    ) -> tuple[list[tuple[Item, State]], dict[str, float]]:
        """Play each case once; the `groups` that went worst, in the order they were drawn, and the means over all."""
        scores = [one.scores for one in self._played(drawn, label)]
        earned = [float(np.mean([getattr(score, name) for score in found for name in SCORES])) for found in scores]
        order = sorted(sorted(range(len(drawn)), key=earned.__getitem__)[: self._config.groups])
        every = [score for found in scores for score in found]
        means = {name: float(np.mean([getattr(score, name) for score in every])) for name in SCORES}
        return [drawn[place] for place in order], means

    def _played(self, cases: Sequence[tuple[Item, State]], label: str) -> list[Played]:
        policy = _Shortened(self._policy, self._config.call_tokens)
        size = self._config.groups * self._config.group
        played = list(play_scored(self._scenario, cases, policy, label=label, batch=size, count=self._count))
        self._policy.forget()
        return played

    def score(self, model: PreTrainedModel) -> dict[str, float]:
        """Mean of each of the four scores over the held-out items, greedy, under the harness as it is."""
        config = self._config
        items = list(self._scenario.items(config.seed, "dev", config.score_items, config.turns))
        states = States(self._scenario, self._harness, None, config.seed)
        policy = self._make(
            model,
            self._codec,
            temperature=0.0,
            rows=self._at_once or len(items),
            cache_tokens=len(items) * int(model.config.max_position_embeddings),
        )
        cases = [(item, states.of(item)) for item in items]
        short = _Shortened(policy, config.call_tokens)
        played = play_scored(self._scenario, cases, short, label="rl/score/", batch=len(cases), count=self._count)
        scores = [score for one in played for score in one.scores]
        return {name: float(np.mean([getattr(score, name) for score in scores])) for name in SCORES}

    def _count(self, text: str) -> int:
        return len(self._codec.encode_text(text))

    def _gather(self, played: Sequence[Played], augmented: float, screened: Mapping[str, float]) -> Rollouts:
        config = self._config
        values = [values_of(one, self._count, config.length_free, config.length_full) for one in played]
        rewards = {name: np.array([value[name] for value in values], dtype=np.float64) for name in config.terms}
        lengths: dict[str, list[int]] = {"skill": [], "tool": [], "reply": []}
        for one in played:
            for kind, tokens in reasoning_lengths(one.trace, self._count):
                lengths[kind].append(tokens)
        return Rollouts(
            rows=tuple(flat_row(one.trace, self._codec) for one in played),
            composed=compose(rewards, config.terms, config.group),
            lengths={kind: float(np.mean(found)) for kind, found in lengths.items() if found},
            augmented=augmented,
            screened=screened,
        )


class _Shortened:
    """A model whose calls are bounded, so that a policy that babbles costs no more than one that works."""

    def __init__(self, model: MicroModel, tokens: int) -> None:
        self._model, self._tokens = model, tokens

    def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
        """The model's outputs to the shortened calls."""
        short = [(name, replace(call, max_tokens=min(call.max_tokens, self._tokens))) for name, call in calls]
        return self._model.generate(short)
