"""Config of the rl step."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from hat_components.large.settings import Large
from hat_components.rl.reward import Term, check_terms
from hat_components.step import StepConfig
from hat_harness.augment import AugmentPlan, training_plan

NAMES = ("accuracy", "effectiveness", "skill_selection", "tool_rationality", "length")
"""Rewards of a rollout (values)."""


def paper_terms() -> dict[str, Term]:
    """The paper's five terms: four scores, normalised apart, and the length of the reasoning at its own scale."""
    scores = {name: Term(floor=0.05) for name in NAMES[:4]}
    return {**scores, "length": Term(weight=-0.1, raw=True)}


class Config(StepConfig):
    """What is played, what is rewarded, how the policy moves."""

    threads: int = Field(default=2, ge=1)
    """CPU threads; the weights depend on it."""
    scenario: str = "live_commerce"
    """Scenario that the items are drawn from; of its split `train`."""
    settings: dict[str, Any] = Field(default={"mix": "balanced"})
    """Settings of the scenario."""
    states: Literal["augmented", "original"] = "augmented"
    """Harness state of a group: drawn from `plan` (a share of originals included), or always the original."""
    plan: AugmentPlan = Field(default_factory=training_plan)
    """Distribution over rewrites; not used with `original` states."""
    turns: int = Field(default=1, ge=1, le=50)
    """Turns of a session."""
    steps: int = Field(default=40, ge=1)
    """Optimiser steps, each on fresh rollouts."""
    groups: int = Field(default=8, ge=1)
    """Groups a step: items, each under one state."""
    group: int = Field(default=8, ge=2)
    """Rollouts of a group."""
    screen: int = Field(default=1, ge=1)
    """Items that are drawn for each group. Above 1 each is played once beforehand, and the groups are of those that went
    worst: a group of what always works teaches nothing."""
    rows_at_once: int = Field(default=16, ge=1)
    """Rollouts in one forward and backward pass; it must divide the rollouts of a step."""
    temperature: float = Field(default=1.0, gt=0)
    """Of sampling, and of the probabilities that are trained."""
    call_tokens: int = Field(default=160, ge=1)
    """Most tokens of one model call, where the harness allows more."""
    terms: dict[str, Term] = Field(default_factory=paper_terms)
    """Reward → how it enters the advantage (rewards: `NAMES`)."""
    length_free: float = Field(default=100.0, ge=0)
    """Tokens of reasoning in a call that cost nothing."""
    length_full: float = Field(default=200.0, gt=0)
    """Tokens of reasoning in a call from which the penalty is whole."""
    loss: Literal["dapo", "grpo"] = "dapo"
    """Mean over all sampled tokens of the step (dapo), or over rollouts of the mean over each one's tokens (grpo)."""
    beta: float = Field(default=0.0, ge=0)
    """Weight of the KL divergence towards the model that the step began with."""
    optimizer: Literal["muon", "adamw"] = "adamw"
    """Muon on the matrices and AdamW on the rest, or AdamW on everything."""
    learning_rate: float = Field(default=6e-5, gt=0)
    """After the warm-up; constant."""
    warmup_steps: int = Field(default=3, ge=0)
    """Steps over which the learning rate rises from nothing."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Of the matrices."""
    clip: float = Field(default=1.0, gt=0)
    """Bound of the gradient's norm."""
    freeze_embedding: bool = True
    """Leave the embedding, and with it a tied head, as it is."""
    trainer: Literal["trl", "plain"] = "trl"
    """Who runs the loop: TRL's GRPOTrainer, or a lean loop of the same rules."""
    score_every: int = Field(default=0, ge=0)
    """Steps between scores on held-out items, played greedily under the harness as it is; 0: none."""
    score_items: int = Field(default=32, ge=1)
    """Items of such a score, of split `dev`, always the same."""
    checkpoint_every: int = Field(default=10, ge=0)
    """Steps between checkpoints; 0 makes none."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the saved weights."""
    large: Large | None = None
    """How to train a given Hugging Face model; none: the small one is trained."""

    @model_validator(mode="after")
    def _fits(self) -> Config:
        if self.groups * self.group % self.rows_at_once:
            raise ValueError("rows_at_once must divide groups x group")
        if unknown := sorted(set(self.terms) - set(NAMES)):
            raise ValueError(f"there is no reward {', '.join(unknown)}; rewards: {', '.join(NAMES)}")
        if not self.terms:
            raise ValueError("at least one term is needed")
        if self.length_full <= self.length_free:
            raise ValueError("length_full must be above length_free")
        check_terms(self.terms)
        return self
