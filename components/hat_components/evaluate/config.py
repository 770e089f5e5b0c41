"""Config of the evaluate step."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hat_components.step import StepConfig


class Config(StepConfig):
    """What is evaluated, by which suites, with how much effort."""

    arm: str = Field(default="model", pattern=r"^[a-z][a-z0-9_-]*$")
    """Name of what is evaluated: base, naive, hsa, opd, rl, expert…"""
    suites: tuple[str, ...] = ("t1", "t2")
    """Ids of suites (hat_components.suites), in the order of the result."""
    policy: Literal["model", "expert", "endpoint"] = "model"
    """`model`: the input folder. `expert`: the scenario's scripted expert, whose scores show what the suites allow.
    `endpoint`: any OpenAI-compatible server."""
    items: int | None = Field(default=None, ge=1)
    """Items that are played, the first in order; None: all."""
    instructions: int = Field(default=200, ge=1)
    """Prompts of suite t4m."""
    ifeval: int | None = Field(default=None, ge=1)
    """Prompts of suite t4, the first in order; None: all 541. A part is not comparable with published figures."""
    conversations: int | None = Field(default=None, ge=1)
    """Conversations of suite calls, the first in order; None: all."""
    t5: int | None = Field(default=None, ge=1)
    """Entries of suites t5, in an order that mixes the categories; None: all of the held-out half."""
    t3: int | None = Field(default=None, ge=1)
    """Items of each of the suites t3, the first in order; None: all 2,023 of the two."""
    batch: int = Field(default=64, ge=1, le=4096)
    """Sessions that are played side by side. It never changes a result."""
    answer_tokens: int = Field(default=128, ge=1)
    """Limit of an answer in suites t4m and t4 and of the calls in suites calls and t5, tokens; sessions have the
    harness's own."""
    temperature: float = Field(default=0.0, ge=0, le=2)
    """0: greedy."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the local model."""
    draws: int = Field(default=2000, ge=100)
    """Draws of the bootstrap intervals."""
    traces: bool = True
    """Keep every session in traces.jsonl."""
    endpoint: str = ""
    """Base URL of the server for policy `endpoint`, up to and including `/v1`."""
    endpoint_model: str = ""
    """Name of the model at the endpoint."""
    endpoint_key: str = "OPENAI_API_KEY"
    """Environment variable that holds the endpoint's key; the key itself is never in a config."""
    endpoint_parallel: int = Field(default=8, ge=1, le=256)
    """Requests in flight."""
    endpoint_timeout_s: float = Field(default=60.0, gt=0)
    """Limit of one request."""
