"""Transition faults: time-outs, 429, 5xx, malformed results and schema drift between the agent and its tools.

Always holds: which call fails, and how, follows from the plan's seed, the session and the number of the call in it, not
from timing or from other sessions; a call with effects is carried out at most once per idempotency key, also when its
result is lost. Not here: retries and what the agent is told (session).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from random import Random
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hat_harness.augment.operators import FaultKind, Share
from hat_harness.events import ToolRequest, ToolResult
from hat_harness.ports import AsyncToolBackend, ToolBackend

KINDS: tuple[FaultKind, ...] = get_args(FaultKind)
_TEXT = {"timeout": "error : timed out", "rate_limit": "error : 429 too many requests", "server": "error : 503"}


class FaultPlan(BaseModel):
    """How often which fault happens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int
    rates: dict[FaultKind, Share]
    """Probability per call, together at most 1."""
    most_in_a_row: Annotated[int, Field(ge=0, le=8)] = 1
    """Calls of a session that may fail one after the other; the next is let through."""
    after_effect: Share = 0.5
    """Share of time-outs of calls with effects that happen after the effect: done, but the answer is lost."""

    @model_validator(mode="after")
    def _bounded(self) -> FaultPlan:
        if sum(self.rates.values()) > 1 + 1e-9:
            raise ValueError("the fault rates add up to more than 1")
        return self

    def draw(self, session_id: str, number: int) -> tuple[FaultKind | None, Random]:
        """The fault of the session's call with this number (from 0) or None, and the generator that shapes it."""
        key = f"{self.seed}\x1f{session_id}\x1f{number}".encode()
        rng = Random(int.from_bytes(hashlib.sha256(key).digest()[:8], "big"))
        point = rng.random()
        for kind in KINDS:
            point -= self.rates.get(kind, 0.0)
            if point < 0:
                return kind, rng
        return None, rng


class _Faults:
    """What both wrappers share: counts per session, and results of calls with effects."""

    def __init__(self, plan: FaultPlan) -> None:
        self.plan = plan
        self.counts: dict[str, int] = {}
        self.row: dict[str, int] = {}
        self.done: dict[str, ToolResult] = {}

    def next(self, request: ToolRequest, session_id: str) -> tuple[FaultKind | None, Random, bool]:
        """(fault, its generator, whether the backend is to be called although the call fails)."""
        number = self.counts.get(session_id, 0)
        self.counts[session_id] = number + 1
        kind, rng = self.plan.draw(session_id, number)
        if kind is not None and self.row.get(session_id, 0) >= self.plan.most_in_a_row:
            kind = None
        hidden = kind == "timeout" and bool(request.idempotency_key) and rng.random() < self.plan.after_effect
        lost = kind in ("timeout", "rate_limit", "server")
        self.row[session_id] = self.row.get(session_id, 0) + 1 if kind is not None else 0
        return kind, rng, hidden or not lost

    def known(self, request: ToolRequest) -> ToolResult | None:
        """The result of a call that has been carried out already."""
        found = self.done.get(request.idempotency_key) if request.idempotency_key else None
        return None if found is None else replace(found, call_id=request.call_id)

    def keep(self, request: ToolRequest, result: ToolResult) -> None:
        """Remembers the result of a call with effects."""
        if request.idempotency_key and not result.failure:
            self.done[request.idempotency_key] = result

    @staticmethod
    def shaped(kind: FaultKind | None, rng: Random, request: ToolRequest, result: ToolResult | None) -> ToolResult:
        """What the agent gets."""
        if kind is None:
            assert result is not None
            return result
        if kind in _TEXT:
            return ToolResult(request.call_id, _TEXT[kind], failure=kind)  # type: ignore[arg-type]  # all three are failure kinds
        assert result is not None
        if result.failure:
            return result
        if kind == "malformed":
            return replace(result, content=torn(result.content, rng), failure="malformed")
        return replace(result, content=drifted(result.content, rng))


class FaultyBackend:
    """A tool backend that shows the plan's faults; everything else is the wrapped backend's."""

    def __init__(self, backend: ToolBackend, plan: FaultPlan) -> None:
        self.backend = backend
        self.faults = _Faults(plan)

    def call(self, session_id: str, request: ToolRequest) -> ToolResult:
        """The wrapped result, or a fault in its place."""
        kind, rng, carried_out = self.faults.next(request, session_id)
        result = self.faults.known(request) if carried_out else None
        if result is None and carried_out:
            result = self.backend.call(session_id, request)
            self.faults.keep(request, result)
        return self.faults.shaped(kind, rng, request, result)


class AsyncFaultyBackend:
    """The same around a backend behind a network."""

    def __init__(self, backend: AsyncToolBackend, plan: FaultPlan) -> None:
        self.backend = backend
        self.faults = _Faults(plan)

    async def call(self, session_id: str, request: ToolRequest) -> ToolResult:
        """The wrapped result, or a fault in its place."""
        kind, rng, carried_out = self.faults.next(request, session_id)
        result = self.faults.known(request) if carried_out else None
        if result is None and carried_out:
            result = await self.backend.call(session_id, request)
            self.faults.keep(request, result)
        return self.faults.shaped(kind, rng, request, result)


def torn(content: str, rng: Random) -> str:
    """A result cut off in the middle, with the rest lost."""
    cut = rng.randint(0, max(0, len(content) - 1))
    return content[:cut] + ("\ufffd" if rng.random() < 0.5 else "")


def drifted(content: str, rng: Random) -> str:
    """The same facts in another shape: a JSON object is wrapped or its keys change case; text gets a new frame."""
    try:
        value: Any = json.loads(content)
    except ValueError:
        return rng.choice(("v2 : {}", "{} ;", "data = {}")).replace("{}", content)
    if isinstance(value, dict) and rng.random() < 0.5:
        value = {_camel(key): inner for key, inner in value.items()}
    else:
        value = {rng.choice(("data", "result", "payload")): value}
    return json.dumps(value, ensure_ascii=False)


def _camel(key: str) -> str:
    head, *rest = key.split("_")
    return head + "".join(part.capitalize() for part in rest) if rest else key.capitalize()
