"""Sizes and settings of model, tokenizer and training, as pydantic models.

Always holds: importing this loads nothing heavy, so that a profile is checked without torch. Not here: their use.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Settings(BaseModel):
    """Base of everything here: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TokenizerConfig(Settings):
    """Size of the vocabulary and the weight of words."""

    vocab_size: int = Field(default=5120, ge=300, le=65536)
    """Entries of the BPE, its two special tokens included; the fused tokens come on top."""
    word_weight: int = Field(default=60, ge=0, le=10_000)
    """How often each given word counts in each of its three forms (bare, after a space, after an underscore)."""


class ModelConfig(Settings):
    """Shape of the network. The default has 2.3 million parameters at a vocabulary of 5,132."""

    hidden: int = Field(default=192, ge=8)
    """Width of the residual stream."""
    layers: int = Field(default=3, ge=1)
    """Transformer blocks."""
    heads: int = Field(default=6, ge=1)
    """Query heads of each block."""
    kv_heads: int = Field(default=6, ge=1)
    """Key and value heads; fewer than `heads` shares them and makes the cache smaller."""
    feed_forward: int = Field(default=512, ge=8)
    """Width of the gated feed-forward layer."""
    max_positions: int = Field(default=2048, ge=16)
    """Longest segment in tokens."""
    rope_theta: float = Field(default=10_000.0, gt=0)
    """Base of the rotary position encoding."""
    initializer_range: float = Field(default=0.02, gt=0)
    """Standard deviation of fresh weights."""

    @model_validator(mode="after")
    def _divides(self) -> ModelConfig:
        if self.hidden % self.heads or self.heads % self.kv_heads or (self.hidden // self.heads) % 2:
            raise ValueError("hidden must be an even multiple of heads, and heads a multiple of kv_heads")
        return self


class FitConfig(Settings):
    """One course of supervised training."""

    tokens: int = Field(default=1_000_000, ge=1)
    """Tokens to compute, padding included."""
    batch_tokens: int = Field(default=2048, ge=16)
    """Bound of rows x longest row in a batch."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """Muon on the matrices and AdamW on the rest, or AdamW on everything."""
    learning_rate: float = Field(default=3e-3, gt=0)
    """At its height, after the warm-up."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Cosine falls to 5 % of the learning rate at the last token."""
    warmup_steps: int = Field(default=20, ge=0)
    """Steps over which the learning rate rises from nothing."""
    weight_decay: float = Field(default=0.05, ge=0)
    """Of the matrices; vectors and embeddings have none."""
    momentum: float = Field(default=0.95, ge=0, lt=1)
    """Muon's."""
    clip: float = Field(default=1.0, gt=0)
    """Bound of the gradient's norm."""
    stop_below: float = Field(default=0.0, ge=0)
    """End early when the mean loss of the last 100 steps is below this; 0 never does."""
    precision: Literal["bfloat16", "float32"] = "bfloat16"
    """Of the matrix products; weights and optimiser stay in float32."""
    trainer: Literal["plain", "trl"] = "plain"
    """Who runs the loop. Both give the same weights; TRL's trainer costs a few seconds of import."""
    checkpoint_every: int = Field(default=0, ge=0)
    """Steps between checkpoints; 0 makes none."""
    log_every: int = Field(default=20, ge=1)
    """Steps between points of the loss curve."""
