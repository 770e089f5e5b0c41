"""Config of the mtp step."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hat_components.large.settings import Large
from hat_components.step import StepConfig
from hat_harness.augment import AugmentPlan, training_plan


class Config(StepConfig):
    """What the policy plays, and how the head learns to foresee it."""

    threads: int = Field(default=2, ge=1)
    """CPU threads; the weights depend on it."""
    scenario: str = "live_commerce"
    """Scenario that the items are drawn from; of its split `train`."""
    settings: dict[str, Any] = Field(default={"mix": "balanced"})
    """Settings of the scenario."""
    states: Literal["augmented", "original"] = "augmented"
    """Harness state of an item: drawn from `plan`, or always the original."""
    plan: AugmentPlan = Field(default_factory=training_plan)
    """Distribution over rewrites; not used with `original` states."""
    turns: int = Field(default=1, ge=1, le=50)
    """Turns of a session."""
    sessions: int = Field(default=1024, ge=2)
    """Sessions of the policy to learn from; it does not change, so they are played once."""
    held_out: int = Field(default=32, ge=2)
    """Further sessions, played greedily, on which acceptance is measured before and after."""
    temperature: float = Field(default=1.0, gt=0)
    """Of the sessions to learn from."""
    call_tokens: int = Field(default=160, ge=1)
    """Most tokens of one model call, where the harness allows more."""
    depth: int = Field(default=3, ge=1, le=8)
    """Tokens that the head foresees, one after the other."""
    decay: float = Field(default=0.6, gt=0, le=1)
    """Weight of each depth as a share of the one before (FastMTP, arXiv 2509.18362)."""
    copying: int = Field(default=200, ge=0)
    """Steps of a fresh head before those, on general texts that are copied: they teach it to look into its context, without
    which it learns its sessions by heart. A head that is carried over makes none."""
    steps: int = Field(default=500, ge=1)
    """Optimiser steps on sessions."""
    batch: int = Field(default=4, ge=1)
    """Sessions of a step."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """Muon on the matrices and AdamW on the rest, or AdamW on everything."""
    learning_rate: float = Field(default=1.2e-2, gt=0)
    """After the warm-up."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """The rate goes down to a twentieth at the last step, or stays."""
    warmup_steps: int = Field(default=10, ge=0)
    """Steps over which the learning rate rises from nothing."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Of the matrices."""
    clip: float = Field(default=1.0, gt=0)
    """Bound of the gradient's norm."""
    precision: Literal["bfloat16", "float32"] = "bfloat16"
    """Of the products in training; weights, sums and what acceptance is measured with are float32."""
    checkpoint_every: int = Field(default=50, ge=0)
    """Steps between checkpoints; 0 makes none."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the saved weights."""
    large: Large | None = None
    """The policy is a given Hugging Face model; none: a small one."""
