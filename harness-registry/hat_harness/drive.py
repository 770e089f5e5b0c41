"""The drivers: they carry out what sessions ask for. Batch (training, evaluation), async (gateway), tape (tests).

Always holds: all three give the same trace for the same model outputs, tool results and times (one contract test
holds them to it). A driver never raises for what a model or tool does: it becomes a `Failure`. Time is virtual in the
batch driver (it jumps to the next wait when nothing else can go on), the given clock's in the async one, the recorded
one on tape. Not here: models, tools, HTTP.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

from hat_harness import events as ev
from hat_harness.errors import ModelError
from hat_harness.events import Action, Event
from hat_harness.ports import AsyncModel, AsyncToolBackend, BatchModel, ToolBackend
from hat_harness.session import Session
from hat_harness.spec import Harness
from hat_harness.tape import replay
from hat_harness.trace import Trace

# ---- batch ----------------------------------------------------------------------------------------------------


class _Case:
    """One session of a batch with its events, waits and virtual clock."""

    __slots__ = ("calls", "events", "now", "session", "tools", "waits")

    def __init__(self, session: Session, events: Iterator[Event], tools: ToolBackend) -> None:
        self.session = session
        self.events = events
        self.tools = tools
        self.now = session.now
        self.waits: list[float] = []
        self.calls: deque[ev.CallModel] = deque()

    def feed(self, event: Event) -> None:
        """Gives one event and carries out everything but model calls."""
        pending = deque(self.session.handle(event, self.now))
        while pending:
            action = pending.popleft()
            if isinstance(action, ev.CallModel):
                self.calls.append(action)
            elif isinstance(action, ev.Wait):
                heapq.heappush(self.waits, action.until)
            elif isinstance(action, ev.CallTools):
                for request in action.calls:
                    result = call_tool(self.tools, self.session.session_id, request)
                    pending.extend(self.session.handle(result, self.now))

    def advance(self) -> bool:
        """Goes on until the session wants the model (True) or its events are used up (False)."""
        while not self.calls:
            if self.session.state == "idle":
                self.waits.clear()
                event = next(self.events, None)
                if event is None:
                    return False
                self.feed(event)
            elif self.waits:
                self.now = max(self.now, heapq.heappop(self.waits))
                self.feed(ev.Tick(self.now))
            else:
                raise ModelError(f"session {self.session.session_id} waits for nothing")
        return True


def call_tool(tools: ToolBackend, session_id: str, request: ev.ToolRequest) -> ev.ToolResult | ev.Failure:
    """Carries out one call; a backend that raises is a failure of the kind `server`."""
    try:
        result = tools.call(session_id, request)
    except Exception as error:  # a tool's fault is data to the session, whatever it raised
        return ev.Failure("call", "server", request.call_id, f"{type(error).__name__}: {error}"[:200])
    if result.call_id != request.call_id:
        return ev.ToolResult(request.call_id, result.content, result.failure)
    return result


def run_batch(
    cases: Sequence[tuple[Session, Sequence[Event]]],
    model: BatchModel,
    tools: ToolBackend | Callable[[str], ToolBackend],
) -> None:
    """Runs every session through its events; the model calls of a round are sampled together.

    `tools` is one backend for all, or gives one by session id. Sessions hold their traces afterwards. ModelError when
    the model gives another number of outputs than it was asked for.
    """
    found = [
        _Case(session, iter(events), cast(ToolBackend, tools if hasattr(tools, "call") else tools(session.session_id)))
        for session, events in cases
    ]
    active = [case for case in found if case.advance()]
    while active:
        asked = [(case.session.session_id, case.calls.popleft()) for case in active]
        outputs = model.generate(asked)
        if len(outputs) != len(asked):
            raise ModelError(f"{len(asked)} calls, {len(outputs)} outputs", place=type(model).__name__)
        for case, output in zip(active, outputs, strict=True):
            case.feed(output)
        active = [case for case in active if case.advance()]


# ---- async ----------------------------------------------------------------------------------------------------


class Clock(Protocol):
    """Time of the async driver."""

    def now(self) -> float:
        """Seconds, never going back."""

    async def sleep_until(self, when: float) -> None:
        """Returns when `now()` has reached `when`."""


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()

    async def sleep_until(self, when: float) -> None:
        """Sleeps."""
        await asyncio.sleep(max(0.0, when - time.monotonic()))


OnAction = Callable[[Action], Awaitable[None] | None]


class _AsyncRun:
    """One session under the async driver: tasks for model and tools, one queue of events for their results."""

    def __init__(
        self,
        session: Session,
        model: AsyncModel,
        tools: AsyncToolBackend | ToolBackend,
        clock: Clock,
        on_action: OnAction | None,
    ) -> None:
        self.session = session
        self.model = model
        self.tools = tools
        self.clock = clock
        self.on_action = on_action
        self.results: asyncio.Queue[Event] = asyncio.Queue()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.timer: asyncio.Task[None] | None = None
        self.timer_at = 0.0
        self.waits: list[float] = []

    async def feed(self, event: Event) -> None:
        """Gives one event and starts what the session asks for."""
        for action in self.session.handle(event, self.clock.now()):
            if isinstance(action, ev.CallModel):
                self._start(action.call_id, self._sample(action))
            elif isinstance(action, ev.CallTools):
                for request in action.calls:
                    self._start(request.call_id, self._call(request))
            elif isinstance(action, ev.Wait):
                heapq.heappush(self.waits, action.until)
            if self.on_action is not None:
                told = self.on_action(action)
                if inspect.isawaitable(told):
                    await told

    async def turn(self) -> None:
        """Goes on until the session is idle."""
        while self.session.state != "idle":
            self._set_timer()
            event = await self.results.get()
            while isinstance(event, ev.Tick) and self.waits and self.waits[0] <= event.now:
                heapq.heappop(self.waits)
            await self.feed(event)
        self.waits.clear()
        await self.stop()

    async def stop(self) -> None:
        """Ends every task that is still out; what it would have brought is late."""
        tasks = [task for task in (*self.tasks.values(), self.timer) if task is not None and not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.tasks.clear()
        self.timer = None
        self.results = asyncio.Queue()

    def _start(self, call_id: str, work: Any) -> None:
        self.tasks[call_id] = asyncio.ensure_future(work)

    def _set_timer(self) -> None:
        """One timer, for the earliest wait; waits stay listed until their tick came."""
        if not self.waits:
            return
        if self.timer is not None and not self.timer.done():
            if self.waits[0] >= self.timer_at:
                return
            self.timer.cancel()
        self.timer_at = self.waits[0]
        self.timer = asyncio.ensure_future(self._tick(self.timer_at))

    async def _tick(self, when: float) -> None:
        await self.clock.sleep_until(when)
        self.results.put_nowait(ev.Tick(when))

    async def _sample(self, call: ev.CallModel) -> None:
        session_id = self.session.session_id
        stream = getattr(self.model, "stream", None)
        result: Event
        try:
            if stream is None:
                result = await self.model.generate(session_id, call)
            else:
                result = ev.Failure("call", "malformed", call.call_id, "the stream ended without an output")
                async for piece in cast(AsyncIterator[Any], stream(session_id, call)):
                    if isinstance(piece, ev.ModelDelta):
                        self.results.put_nowait(piece)
                    else:
                        result = piece
        except Exception as error:  # a model's fault is data to the session, whatever it raised
            result = ev.Failure("call", "server", call.call_id, f"{type(error).__name__}: {error}"[:200])
        self.results.put_nowait(result)

    async def _call(self, request: ev.ToolRequest) -> None:
        session_id = self.session.session_id
        result: Event
        try:
            async with asyncio.timeout(request.timeout_s):
                given = self.tools.call(session_id, request)
                found = await given if inspect.isawaitable(given) else given
            result = ev.ToolResult(request.call_id, found.content, found.failure)
        except TimeoutError:
            result = ev.Failure("call", "timeout", request.call_id)
        except Exception as error:  # as above
            result = ev.Failure("call", "server", request.call_id, f"{type(error).__name__}: {error}"[:200])
        self.results.put_nowait(result)


async def _each(events: Iterable[Event] | AsyncIterable[Event]) -> AsyncIterator[Event]:
    if isinstance(events, AsyncIterable):
        async for event in events:
            yield event
    else:
        for event in events:
            yield event


async def run_async(
    session: Session,
    events: Iterable[Event] | AsyncIterable[Event],
    model: AsyncModel,
    tools: AsyncToolBackend | ToolBackend,
    clock: Clock | None = None,
    on_action: OnAction | None = None,
) -> None:
    """Runs one session through its events, each when the turn before it is over.

    `on_action` is told every action as it comes (to stream `Emit` and `Reply`). A model that has
    `stream(session_id, call)` is streamed: it yields `ModelDelta` and ends with a `ModelOutput` or `Failure`.
    Cancelling the task ends the turn with `Cancel`, and everything that is out. A tool call is given up after its
    `timeout_s`; what it still does is the backend's.
    """
    run = _AsyncRun(session, model, tools, clock or SystemClock(), on_action)
    try:
        async for event in _each(events):
            await run.feed(event)
            await run.turn()
    except asyncio.CancelledError:
        session.handle(ev.Cancel("driver cancelled"), run.clock.now())
        raise
    finally:
        await run.stop()


# ---- tape -----------------------------------------------------------------------------------------------------


def run_tape(session: Session, trace: Trace, harnesses: Mapping[str, Harness] | None = None) -> Trace:
    """Feeds a recorded trace's events to a fresh session; see `hat_harness.tape.replay`."""
    return replay(trace, session, harnesses)
