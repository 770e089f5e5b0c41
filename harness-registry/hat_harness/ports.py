"""The two sides that a driver connects a session to: a model that samples, and a backend that carries out tools.

Only the shapes stand here. Implementations: the micro model (hat_components.model), HTTP engines
(hat_serving.gateway), scripted experts and tool backends (hat_scenarios), recorded tapes (hat_harness.tape).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hat_harness.events import CallModel, Failure, ModelOutput, ToolRequest, ToolResult


class BatchModel(Protocol):
    """A model that answers many sessions at once."""

    def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
        """One output per (session id, call), in order. A failure is data: it never raises for one bad call."""


class AsyncModel(Protocol):
    """A model behind a network."""

    async def generate(self, session_id: str, call: CallModel) -> ModelOutput | Failure:
        """One output. Bounded in time by the driver."""


class ToolBackend(Protocol):
    """Carries out tools by canonical id with canonical arguments; the session has undone every renaming before."""

    def call(self, session_id: str, request: ToolRequest) -> ToolResult:
        """The result as the text that the model reads, before the harness's result envelope."""


class AsyncToolBackend(Protocol):
    """The same behind MCP or HTTP."""

    async def call(self, session_id: str, request: ToolRequest) -> ToolResult:
        """The result; bounded in time by the driver."""
