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
from collections import deque
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, cast

from hat_harness import events as ev
from hat_harness.clocks import Clock, SystemClock
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


OnAction = Callable[[Action], Awaitable[None] | None]
Away = Callable[[ev.ToolRequest], bool]
"""Whether somebody else carries out a call, so that its result comes with a later event."""


class _AsyncRun:
    """One session under the async driver.

    A call that is out alone, with nothing but the deadline to wait for, is awaited where it was asked for: no task, no
    trip through the loop. Several calls at once, streams and backoffs go through tasks and one queue of events.
    """

    def __init__(
        self,
        session: Session,
        model: AsyncModel,
        tools: AsyncToolBackend | ToolBackend,
        clock: Clock,
        on_action: OnAction | None,
        away: Away | None = None,
    ) -> None:
        self.session = session
        self.away = away
        self.model = model
        self.tools = tools
        self.clock = clock
        self.on_action = on_action
        self.stream = getattr(model, "stream", None)
        self.asked: list[ev.CallModel | ev.ToolRequest] = []
        """Calls that have not gone out yet."""
        self.results: deque[Event] = deque()
        self.arrived: asyncio.Future[None] | None = None
        """What `_next` sleeps on while `results` is empty."""
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.timer: Any = None
        self.timer_at = 0.0
        self.waits: list[float] = []
        self.driver = asyncio.current_task()
        self.inline = False
        self.last: asyncio.Task[None] | None = None
        """The deadline's tick, when it came while a call was awaited inline."""

    async def feed(self, event: Event) -> None:
        """Gives one event and notes what the session asks for."""
        on_action = self.on_action
        for action in self.session.handle(event, self.clock.now()):
            if isinstance(action, ev.CallModel):
                self.asked.append(action)
            elif isinstance(action, ev.CallTools):
                away = self.away
                self.asked += action.calls if away is None else [one for one in action.calls if not away(one)]
            elif isinstance(action, ev.Wait):
                heapq.heappush(self.waits, action.until)
            if on_action is not None:
                told = on_action(action)
                if inspect.isawaitable(told):
                    self._start()  # what was asked for does not wait for who is told
                    await told

    async def turn(self) -> None:
        """Goes on until the session is idle, or waits for nothing but calls that are away."""
        if self.away is not None and not self.waits and (deadline := self.session.deadline) is not None:
            heapq.heappush(self.waits, deadline)  # of a turn that an earlier run began
        while self.session.state != "idle" and not self._suspended():
            self._set_timer()
            if self._alone():
                event = await self._awaited(self.asked.pop())
            else:
                self._start()
                event = await self._next()
            if event is not None:
                await self.feed(event)
        self.waits.clear()
        self.asked.clear()
        await self.stop()

    def _suspended(self) -> bool:
        """Whether nothing is out here, and nothing but the deadline to wait for."""
        if self.away is None or self.session.state != "tools":
            return False
        return not (self.asked or self.tasks or self.results) and len(self.waits) <= 1

    async def stop(self) -> None:
        """Ends every task that is still out; what it would have brought is late."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.results.clear()
        if not self.tasks and self.last is None:
            return
        tasks = [task for task in (*self.tasks.values(), self.last) if task is not None and not task.done()]
        self.tasks, self.last = {}, None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.results.clear()

    # ---- one call alone ---------------------------------------------------------------------------------------

    def _alone(self) -> bool:
        """Whether the one call that was asked for may be awaited here: a wait before the deadline must find it out."""
        if len(self.asked) != 1 or self.tasks or self.results or len(self.waits) > 1:
            return False
        return self.stream is None or not isinstance(self.asked[0], ev.CallModel)

    async def _awaited(self, call: ev.CallModel | ev.ToolRequest) -> Event | None:
        """The call's result; None when the deadline's tick was fed instead and the call broken off."""
        driver = self.driver
        assert driver is not None  # a coroutine runs in a task
        before = driver.cancelling()
        self.inline = True
        try:
            event = await (self._sample(call) if isinstance(call, ev.CallModel) else self._call(call))
        except asyncio.CancelledError:
            # Ours (the alarm's) alone, or somebody cancels the driver as well: the way of asyncio.timeout.
            if self.last is None or driver.uncancel() > before:
                raise
        else:
            if self.last is None:
                return event
            driver.uncancel()  # the call ended in spite of it; it is late
        finally:
            self.inline = False
        tick, self.last = self.last, None
        await tick
        return None

    # ---- several at once --------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Every call that was asked for goes out as a task."""
        for call in self.asked:
            work = self._sample(call) if isinstance(call, ev.CallModel) else self._call(call)
            self.tasks[call.call_id] = asyncio.ensure_future(self._bring(call.call_id, work))
        self.asked.clear()

    async def _bring(self, call_id: str, work: Coroutine[Any, Any, Event]) -> None:
        self._arrive(await work)
        self.tasks.pop(call_id, None)

    def _arrive(self, event: Event) -> None:
        self.results.append(event)
        if self.arrived is not None and not self.arrived.done():
            self.arrived.set_result(None)

    async def _next(self) -> Event:
        while not self.results:
            self.arrived = asyncio.get_running_loop().create_future()
            await self.arrived
        event = self.results.popleft()
        while isinstance(event, ev.Tick) and self.waits and self.waits[0] <= event.now:
            heapq.heappop(self.waits)
        return event

    # ---- time -------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """One timer, for the earliest wait; waits stay listed until their tick came."""
        if not self.waits or (self.timer is not None and self.waits[0] >= self.timer_at):
            return
        if self.timer is not None:
            self.timer.cancel()
        self.timer_at = self.waits[0]
        alarm = getattr(self.clock, "alarm", None)
        self.timer = asyncio.ensure_future(self._sleep()) if alarm is None else alarm(self.timer_at, self._ring)

    async def _sleep(self) -> None:
        await self.clock.sleep_until(self.timer_at)
        self._ring()

    def _ring(self) -> None:
        """The earliest wait is over."""
        self.timer = None
        tick = ev.Tick(self.timer_at)
        if self.inline and self.driver is not None:
            # The tick is fed by a task of its own, so that the reply does not wait for the call to clean up.
            self.last = asyncio.ensure_future(self.feed(tick))
            self.driver.cancel()
        else:
            self._arrive(tick)

    # ---- carrying calls out -----------------------------------------------------------------------------------

    async def _sample(self, call: ev.CallModel) -> Event:
        session_id = self.session.session_id
        try:
            if self.stream is None:
                return await self.model.generate(session_id, call)
            async for piece in cast(AsyncIterator[Any], self.stream(session_id, call)):
                if not isinstance(piece, ev.ModelDelta):
                    return cast(Event, piece)
                self._arrive(piece)
            return ev.Failure("call", "malformed", call.call_id, "the stream ended without an output")
        except asyncio.CancelledError:
            if _asked_to_end():
                raise
            return ev.Failure("call", "cancelled", call.call_id)
        except Exception as error:  # a model's fault is data to the session, whatever it raised
            return ev.Failure("call", "server", call.call_id, f"{type(error).__name__}: {error}"[:200])

    async def _call(self, request: ev.ToolRequest) -> Event:
        try:
            given = self.tools.call(self.session.session_id, request)
            if inspect.isawaitable(given):
                async with asyncio.timeout(request.timeout_s):
                    given = await given
            if type(given) is ev.ToolResult and given.call_id == request.call_id:
                return given
            return ev.ToolResult(request.call_id, given.content, given.failure)
        except asyncio.CancelledError:
            if _asked_to_end():
                raise
            return ev.Failure("call", "cancelled", request.call_id)
        except TimeoutError:
            return ev.Failure("call", "timeout", request.call_id)
        except Exception as error:  # as above
            return ev.Failure("call", "server", request.call_id, f"{type(error).__name__}: {error}"[:200])


def _asked_to_end() -> bool:
    """Whether somebody cancelled the task that runs; else the cancellation is the call's own fault."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def run_async(
    session: Session,
    events: Iterable[Event] | AsyncIterable[Event],
    model: AsyncModel,
    tools: AsyncToolBackend | ToolBackend,
    clock: Clock | None = None,
    on_action: OnAction | None = None,
    away: Away | None = None,
) -> None:
    """Runs one session through its events, each when the turn before it is over.

    `on_action` is told every action as it comes (to stream `Emit` and `Reply`). A model that has
    `stream(session_id, call)` is streamed: it yields `ModelDelta` and ends with a `ModelOutput` or `Failure`.
    Cancelling the task ends the turn with `Cancel`, and everything that is out. A tool call is given up after its
    `timeout_s`; what it still does is the backend's. Calls that are `away` are not made here: when the open turn waits
    for nothing else, the run ends with the turn open, and another run goes on with their `ToolResult`s.
    """
    run = _AsyncRun(session, model, tools, clock or SystemClock(), on_action, away)
    try:
        if isinstance(events, AsyncIterable):
            async for event in events:
                await run.feed(event)
                await run.turn()
        else:
            for event in events:
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
