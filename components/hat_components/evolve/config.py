"""Config of the evolve step: policies, candidates, when to stop, how to propose."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hat_components.evolve.faults import Fault
from hat_components.judge.chat import EndpointConfig
from hat_components.step import StepConfig

NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"
Objective = Literal["average", "accuracy", "effectiveness"]


class Part(BaseModel):
    """Base of the config's parts: immutable, an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelPolicy(Part):
    """A trained model; input `model-<name>`, or `model` where there is only one."""

    type: Literal["model"] = "model"
    name: str = Field(default="policy", pattern=NAME)
    temperature: float = Field(default=0.0, ge=0, le=2)


class EndpointPolicy(Part):
    """Any OpenAI-compatible server."""

    type: Literal["endpoint"] = "endpoint"
    name: str = Field(default="policy", pattern=NAME)
    url: str = Field(pattern=r"^https?://")
    """Base URL up to and including `/v1`."""
    model: str = Field(min_length=1)
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; the key itself is never in a config."""
    parallel: int = Field(default=8, ge=1, le=256)
    """Requests in flight."""
    timeout_s: float = Field(default=60.0, gt=0)
    temperature: float = Field(default=0.0, ge=0, le=2)


class ExpertPolicy(Part):
    """The scenario's scripted expert with seeded faults; what it shows is what was put in."""

    type: Literal["expert"] = "expert"
    name: str = Field(default="policy", pattern=NAME)
    faults: tuple[Fault, ...] = ()


Policy = Annotated[ModelPolicy | EndpointPolicy | ExpertPolicy, Field(discriminator="type")]


class Config(StepConfig):
    """What is evolved, for whom, and by which rule an edit is kept."""

    policies: tuple[Policy, ...] = (ModelPolicy(),)
    """Fixed policies. The first decides what is kept; the others are measured on the same edits."""
    candidates: tuple[str, ...] = ()
    """Order in which the inputs `candidate-<name>` are tried; (): by name."""
    working_copies: tuple[str, ...] = ()
    """Those of the candidates that are an operator's working copy."""
    objective: Objective = "average"
    """What an edit must raise to be kept: AVG, Accuracy or Effectiveness over items."""
    min_gain: float = Field(default=0.0, ge=0, lt=1)
    """By how much, in shares; at 0 any gain counts."""
    over_refusal_rise: float | None = Field(default=None, ge=0, le=1)
    """Most by which the over-refusal rate may exceed the base's for an edit to be kept. None: no limit."""
    patience: int = Field(default=2, ge=0)
    """Edits in a row that may fail to become the best before the rest is left untried; 0: try all."""
    items: int | None = Field(default=None, ge=1)
    """Development items that are played, the first in order; None: all."""
    held_out_items: int | None = Field(default=None, ge=1)
    """The same for the held-out check."""
    proposals: int = Field(default=0, ge=0, le=20)
    """Edits that the proposer writes after the given ones, each from the best harness so far."""
    proposer: EndpointConfig | None = None
    """Model that writes proposals."""
    proposal_tries: int = Field(default=3, ge=1, le=10)
    """How often it may correct a proposal that does not load."""
    batch: int = Field(default=64, ge=1, le=4096)
    """Sessions that are played side by side; never changes a result."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of local models."""
    draws: int = Field(default=2000, ge=100)
    """Draws of the bootstrap intervals."""
    traces: bool = True
    """Keep every session in traces.jsonl."""

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        doubled = [name for name, count in Counter(one.name for one in self.policies).items() if count > 1]
        if doubled or not self.policies:
            raise ValueError(f"two policies are called {doubled[0]}" if doubled else "name at least one policy")
        if len(set(self.candidates)) != len(self.candidates):
            raise ValueError("a candidate is named twice")
        if self.proposals and self.proposer is None:
            raise ValueError("proposals need a proposer")
        return self
