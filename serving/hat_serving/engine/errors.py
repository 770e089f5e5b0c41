"""Errors of the dev engine.

    ServingError
    └── EngineError          root of hat_serving.engine
        ├── ModelError       a model folder that cannot be served
        └── CallError        a call that is refused; carries the HTTP status and type that SGLang would answer

Not here: their JSON (api).
"""

from __future__ import annotations

from hat_harness.errors import Kind
from hat_serving.errors import ServingError


class EngineError(ServingError):
    """Root of everything that the dev engine raises."""


class ModelError(EngineError):
    """The folder is no model that this engine can serve; `place` is the file."""

    kind: Kind = "invalid_input"


class CallError(EngineError):
    """A request is refused. `status` is the HTTP status, `type_name` the `type` of OpenAI-style error bodies."""

    kind: Kind = "invalid_input"

    def __init__(self, message: str, *, status: int = 400, type_name: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.type_name = type_name

    def __str__(self) -> str:
        return self.message
