"""A small harness, scripted models and a recording backend for the tests of hat_harness."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hat_harness.events import CallModel, Failure, Message, ModelOutput, ToolCall, ToolRequest, ToolResult
from hat_harness.session import Session
from hat_harness.spec import Harness, Hook, Limits, Prompt, Recovery, Retry, Skill, Tool

ITEM = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
GATE = Hook(
    id="gate",
    event="stop",
    when="!reply.endsWith(args.gate)",
    action="require",
    message="end with {gate}",
    arguments={"gate": "bye"},
)


def small(**changes: Any) -> Harness:
    """Two skills, a tool that reads and one that has effects; `changes` replace fields."""
    fields: dict[str, Any] = {
        "name": "small",
        "skills": (
            Skill(
                id="item_qa",
                name="item_qa",
                description="answer about a product",
                body='open with "hi" .',
                tools=("get_item",),
            ),
            Skill(id="chat", name="chat", description="talk", body="be nice ."),
        ),
        "tools": (
            Tool(id="get_item", name="get_item", description="look up one product", parameters=ITEM),
            Tool(id="order", name="order", description="order it", parameters=ITEM, read_only=False, idempotent=False),
        ),
        "prompts": (Prompt(id="rules", section="rules", text="end every reply with = bye"),),
    }
    return Harness(**{**fields, **changes})


def bounded(**limits: Any) -> Harness:
    """The small harness with other limits and no waiting between retries."""
    return small(limits=Limits(**limits), recovery=Recovery(retry=Retry(attempts=1, backoff_s=0.5)))


def output(call: CallModel, content: str = "", *calls: ToolCall, **more: Any) -> ModelOutput:
    """An output for a call."""
    return ModelOutput(call.call_id, content, tool_calls=calls, **more)


def ask(name: str, identifier: str = "", /, **arguments: Any) -> ToolCall:
    """A tool call."""
    return ToolCall(identifier, name, arguments)


Step = Callable[[CallModel], ModelOutput | Failure]


class Scripted:
    """A model that plays steps by the number of outputs it has given to a session; the last one repeats."""

    def __init__(self, *steps: Step) -> None:
        self.steps = steps
        self.calls: list[tuple[str, CallModel]] = []
        self.given: dict[str, int] = {}

    def one(self, session_id: str, call: CallModel) -> ModelOutput | Failure:
        self.calls.append((session_id, call))
        number = self.given.get(session_id, 0)
        self.given[session_id] = number + 1
        return self.steps[min(number, len(self.steps) - 1)](call)

    def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
        return [self.one(session_id, call) for session_id, call in calls]


class AsyncScripted(Scripted):
    """The same behind `await`."""

    async def generate(self, session_id: str, call: CallModel) -> ModelOutput | Failure:  # type: ignore[override]
        await asyncio.sleep(0)
        return self.one(session_id, call)


class Shop:
    """A backend that answers every call and remembers those with effects."""

    def __init__(self, answer: Callable[[ToolRequest], ToolResult] | None = None) -> None:
        self.answer = answer
        self.requests: list[ToolRequest] = []

    def call(self, session_id: str, request: ToolRequest) -> ToolResult:
        self.requests.append(request)
        if self.answer is not None:
            return self.answer(request)
        return ToolResult(request.call_id, f"{request.arguments['item']} : price 39")

    @property
    def effects(self) -> list[str]:
        return [request.idempotency_key for request in self.requests if request.idempotency_key]


class VirtualClock:
    """Async time that jumps to the earliest sleeper once everything else has run."""

    def __init__(self) -> None:
        self.time = 0.0
        self.sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self.count = 0

    def now(self) -> float:
        return self.time

    async def sleep_until(self, when: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.count += 1
        heapq.heappush(self.sleepers, (when, self.count, future))
        # Everything that is ready runs first; 50 rounds of the loop are far more than any chain of awaits here needs.
        try:
            for _ in range(50):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            future.cancel()
            raise
        while self.sleepers and not future.done():
            due, _, waiting = heapq.heappop(self.sleepers)
            if not waiting.done():
                self.time = max(self.time, due)
                waiting.set_result(None)
        await future


def texts(messages: Iterable[Message], role: str) -> list[str]:
    """Contents of one role."""
    return [message.content for message in messages if message.role == role]


def session(harness: Harness | None = None, **more: Any) -> Session:
    """A fresh session."""
    return Session(harness or small(), session_id="s", **more)
