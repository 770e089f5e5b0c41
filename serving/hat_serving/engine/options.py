"""Settings of the dev engine. Flags that SGLang has too bear its names and mean the same.

Always holds: importing this loads no torch; options are valid by themselves. Whether they fit the model is checked when
it is loaded.
Not here: SGLang's own flags and profiles (hat_serving.sglang).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Precision = Literal["auto", "float32", "bfloat16"]
ReasoningParser = Literal["qwen3"]
ToolCallParser = Literal["qwen", "qwen25"]


class EngineOptions(BaseModel):
    """How to serve one model folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model_path: Path
    """Folder with config.json, safetensors, tokenizer.json and chat_template.jinja."""
    host: str = "127.0.0.1"
    port: int = Field(default=8720, ge=0, le=65535)
    """0 takes a free one."""
    served_model_name: str = ""
    """What `/v1/models` shows; the model path where empty. As in SGLang, requests may name any model."""
    dtype: Precision = "auto"
    context_length: int | None = Field(default=None, ge=1)
    """Most tokens of prompt and answer together; the model's own limit where None."""
    max_running_requests: int = Field(default=32, ge=1, le=1024)
    """Rows that are generated at the same time."""
    max_queued_requests: int | None = Field(default=256, ge=0)
    """Requests that may wait; more are answered 503. None: no limit, as SGLang by default."""
    chunked_prefill_size: int = Field(default=1024, ge=16)
    """Prompt tokens computed between two steps of the running rows."""
    cache_tokens: int = Field(default=200_000, ge=0)
    """Tokens whose keys and values are kept for prompts to come."""
    cache_gib: float = Field(default=8.0, gt=0)
    """Most memory that running rows may come to take, in GiB; taken only as it is used."""
    disable_radix_cache: bool = False
    filling_rows: int = Field(default=8, ge=1)
    """Prompts that may be under way at the same time."""
    threads: int = Field(default=1, ge=0)
    """Threads inside one operation; 0 leaves it to torch. One is best below about 20 million parameters."""
    random_seed: int = 1
    weight_version: str = "default"
    reasoning_parser: ReasoningParser | None = None
    tool_call_parser: ToolCallParser | None = None
    enable_metrics: bool = False
    extra_metric_labels: dict[str, str] = Field(default_factory=dict)
    enable_cache_report: bool = False
    api_key: str = Field(default="", repr=False)
    """Bearer token that requests must carry, where set; health and metrics need none."""
    max_body_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    """Larger request bodies are answered 413."""
    drain_s: float = Field(default=30.0, ge=0)
    """How long running requests may go on after SIGTERM."""
    speculative_algorithm: Literal["NEXTN"] | None = None
    speculative_num_steps: int = Field(default=3, ge=1, le=16)
    speculative_eagle_topk: int = Field(default=1, ge=1, le=1)
    """Drafts are chains here."""
    speculative_num_draft_tokens: int = Field(default=4, ge=2, le=17)
    speculative_accept_threshold_single: float = Field(default=1.0, ge=0, le=1)
    speculative_accept_threshold_acc: float = Field(default=1.0, gt=0, le=1)

    @model_validator(mode="after")
    def _chain(self) -> EngineOptions:
        if self.speculative_algorithm and self.speculative_num_draft_tokens != self.speculative_num_steps + 1:
            raise ValueError("speculative_num_draft_tokens is speculative_num_steps + 1 for a chain (topk 1)")
        return self

    @property
    def name(self) -> str:
        """The name that the model is served under."""
        return self.served_model_name or str(self.model_path)

    @property
    def draft_tokens(self) -> int:
        """Tokens of one verification; 0 without speculation."""
        return self.speculative_num_draft_tokens if self.speculative_algorithm else 0

    @property
    def cache_bytes(self) -> int:
        """`cache_gib` in bytes."""
        return int(self.cache_gib * 2**30)

    def context(self, positions: int) -> int:
        """The longest context of a model with `positions`."""
        return min(self.context_length or positions, positions)
