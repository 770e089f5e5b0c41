"""The contract of a pipeline step: `run(config, inputs, out, progress) -> StepResult`.

The same function runs in process, in a KFP pod and in an Argo pod. A step reads only `inputs` and `config`, writes only
below `out`, and draws every random number from `config.seed`. Not here: run folders, caching, retries (hat_pipelines).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field

from hat_harness.errors import Kind, PlatformError


class StepError(PlatformError):
    """Root of everything that hat_components raises."""


class InputError(StepError):
    """An input is missing, broken, or not what its digest says."""

    kind: Kind = "invalid_input"


class StepConfig(BaseModel):
    """Base of every step's config: frozen, an unknown key is an error, one docstring line per field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = 1
    """Seed of every random choice in the step."""


class StepResult(BaseModel):
    """What a step made. Paths are relative to `out`; digests are `sha256:` + 64 hex."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    artifacts: dict[str, str] = Field(default_factory=dict)
    """Artifact name → path relative to `out` (a file or a folder)."""
    digests: dict[str, str] = Field(default_factory=dict)
    """Artifact name → digest of its content."""
    metrics: dict[str, float] = Field(default_factory=dict)
    notes: dict[str, Any] = Field(default_factory=dict)
    """Small JSON facts for the report."""


class Progress(Protocol):
    """Where a step reports to; becomes `progress.jsonl` (kinds start, progress, metric, artifact, warning, end)."""

    def progress(self, done: int, total: int, note: str = "") -> None:
        """`done` of `total` units are finished."""

    def metric(self, name: str, value: float, step: int) -> None:
        """One point of a curve."""

    def artifact(self, name: str, path: Path) -> None:
        """An artifact stands complete at `path`."""

    def warning(self, message: str) -> None:
        """Something the reader of the report should know."""


class NullProgress:
    """A `Progress` that drops everything; for tests and one-off calls."""

    def progress(self, done: int, total: int, note: str = "") -> None:
        """Drop it."""

    def metric(self, name: str, value: float, step: int) -> None:
        """Drop it."""

    def artifact(self, name: str, path: Path) -> None:
        """Drop it."""

    def warning(self, message: str) -> None:
        """Drop it."""


Run = Callable[[Any, Mapping[str, Path], Path, Progress], StepResult]
"""Signature of every `step.run`; the first argument is that step's own config class."""
