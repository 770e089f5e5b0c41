"""Config of the opd step."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from hat_components.large.settings import Large
from hat_components.model.settings import Settings
from hat_components.step import StepConfig
from hat_harness.augment import AugmentPlan, trained_plan
from hat_scenarios.general import Kind


class TeacherEndpoint(Settings):
    """A teacher behind SGLang's native API. It must have the student's vocabulary; the step checks."""

    url: str
    """http(s)://HOST:PORT, without a path."""
    parallel: int = Field(default=8, ge=1)
    """Requests at a time."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Of one request."""
    attempts: int = Field(default=3, ge=1)
    """Tries of one request before the step ends; its checkpoints stay."""


class Play(Settings):
    """Sessions that the student plays instead of general prompts (agentic distillation)."""

    states: Literal["augmented", "original"] = "augmented"
    """Harness state of a session: drawn from `plan`, or always the original."""
    plan: AugmentPlan = Field(default_factory=trained_plan)
    """Distribution over rewrites; not used with `original` states."""
    settings: dict[str, Any] = Field(default={"mix": "balanced"})
    """Settings of the scenario."""
    turns: int = Field(default=1, ge=1, le=50)
    """Turns of a session."""


class Config(StepConfig):
    """What is asked, how the two distributions are brought together, how the student moves."""

    threads: int = Field(default=2, ge=1)
    """CPU threads; the weights depend on it."""
    scenario: str = "live_commerce"
    """Scenario whose held-out words the prompts avoid; "" for none."""
    scenario_settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the scenario."""
    prompts: dict[Kind, float] = Field(default={"instruction": 0.5, "session": 0.3, "copy": 0.2})
    """Shares of the prompts by kind of general data."""
    play: Play | None = None
    """Sessions instead of prompts; the teacher is then a policy of the same environment, such as one trained by RL.
    Needs the input `harness` and trainer `plain`."""
    steps: int = Field(default=60, ge=1)
    """Optimiser steps, each on fresh prompts."""
    batch: int = Field(default=16, ge=1)
    """Prompts of a step."""
    rows_at_once: int = Field(default=16, ge=1)
    """Prompts in one forward and backward pass; it must divide `batch`."""
    reply_tokens: int = Field(default=40, ge=1)
    """Longest text that the student writes to a prompt."""
    temperature: float = Field(default=1.0, gt=0)
    """Of sampling and of both distributions."""
    divergence: float = Field(default=1.0, ge=0, le=1)
    """1: reverse KL (the student gives up what the teacher would not write), 0: forward KL, between: the generalised
    Jensen-Shannon divergence (arXiv 2306.13649)."""
    endpoint: TeacherEndpoint | None = None
    """A teacher that is served instead of the input `teacher`. It gives the log-probabilities of the student's tokens
    alone, so that the divergence is the reverse KL, estimated from one sample a token."""
    optimizer: Literal["muon", "adamw"] = "adamw"
    """Muon on the matrices and AdamW on the rest, or AdamW on everything."""
    learning_rate: float = Field(default=2e-4, gt=0)
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
    """Who runs the loop: TRL's DistillationTrainer, or a lean loop of the same rules. An endpoint needs `plain`."""
    checkpoint_every: int = Field(default=10, ge=0)
    """Steps between checkpoints; 0 makes none."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the saved weights."""
    large: Large | None = None
    """How to train a given Hugging Face model; none: the small one is trained."""

    @model_validator(mode="after")
    def _fits(self) -> Config:
        if self.batch % self.rows_at_once:
            raise ValueError("rows_at_once must divide batch")
        if sum(self.prompts.values()) <= 0 or min(self.prompts.values()) < 0:
            raise ValueError("prompts need shares of 0 and more, and at least one above 0")
        if self.large and self.endpoint:
            raise ValueError("a large model is distilled from the input teacher, not from an endpoint")
        if self.play and not self.large and (self.trainer != "plain" or not self.scenario):
            raise ValueError("sessions need a scenario and trainer plain: TRL's would train what the session added")
        if self.endpoint and (self.trainer, self.divergence, self.temperature) != ("plain", 1.0, 1.0):
            raise ValueError("an endpoint needs trainer plain, divergence 1 and temperature 1")
        return self
