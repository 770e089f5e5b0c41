"""The host: one turn of one conversation, from admission to the stored record.

Always holds: a turn is admitted or refused before anything happens; a conversation has one turn at a time; its arm is
assigned once, at its start, by unit, and changes only on abort (at the next message) or when an urgent promotion or the
arm's own next release allows it; the turn is stored before its answer is given back. Every admitted turn ends in a reply,
a refusal or silence within the harness's deadline. Not here: HTTP (app), what the agent says (hat_harness).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from hat_harness import events as ev
from hat_harness.drive import run_async
from hat_harness.hooks import CompiledHooks, compile_hooks
from hat_harness.ports import AsyncToolBackend
from hat_harness.session import Session
from hat_harness.spec import Harness
from hat_harness.trace import Trace, TurnSummary, turns
from hat_serving.errors import MovedError, OverloadedError
from hat_serving.experiment.assignment import SLOTS, Assigned, place, slot
from hat_serving.gateway.conversations import Conversations, Stored, restore
from hat_serving.gateway.journal import Journal
from hat_serving.gateway.live import Deployment, LiveArm, Move, Source, going_on
from hat_serving.gateway.metrics import Metrics
from hat_serving.gateway.recording import Measured, Recorder
from hat_serving.gateway.shadow import Copy, Shadows
from hat_serving.gateway.toolbox import Toolbox
from hat_serving.gateway.traces import TraceWriter
from hat_serving.gateway.upstream import Engines

OnText = Callable[[str], Awaitable[None]]
OnOpen = Callable[[str, int], None]


class HostLimits(BaseModel):
    """Bounds of one gateway process."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    open_turns: int = Field(default=256, ge=1)
    """Turns in progress; more are refused at once with 429."""
    kept_sessions: int = Field(default=10_000, ge=1)
    """Sessions held in memory; the least recently used are restored from the store when they come back."""
    drain_s: float = Field(default=20.0, ge=0)
    """How long a stop waits for open turns."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One turn that a client asks for. `unit` and `conversation` are pseudonyms already."""

    name: str
    conversation: str
    unit: str
    event: ev.ViewerMessage | ev.RoomEvent
    room: dict[str, Any] = field(default_factory=dict)
    history: tuple[tuple[str, str], ...] = ()
    room_id: str = ""
    """For mute only; never stored."""
    room_key: str = ""
    """Pseudonym of the room, for mute."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How the turn ended."""

    conversation: str
    arm: str
    release: str
    harness: str
    turn: TurnSummary
    muted: bool = False
    seconds: float = 0.0
    first_s: float | None = None
    """To the first shown text."""

    @property
    def text(self) -> str:
        """What the viewer reads; "" for silence."""
        return self.turn.reply if self.turn.outcome in {"reply", "refuse", "safe"} else ""


class _Kept:
    """A conversation in memory."""

    __slots__ = ("head", "lock", "seen", "session")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.session: Session | None = None
        self.head: Stored | None = None
        self.seen = 0


@dataclass(frozen=True, slots=True)
class _Opened:
    """A conversation at the beginning of a turn. `place`: where its unit belongs, None while nothing is compared."""

    session: Session
    head: Stored
    arm: LiveArm
    move: Move = ""
    place: Assigned | None = None
    fresh: bool = False


class Host:
    """Runs turns. `conversations` None keeps them in memory only; `muted` says which rooms are silenced."""

    def __init__(
        self,
        source: Source,
        engines: Engines,
        tools: AsyncToolBackend,
        *,
        workspace: str = "default",
        conversations: Conversations | None = None,
        traces: TraceWriter | None = None,
        metrics: Metrics | None = None,
        limits: HostLimits | None = None,
        muted: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self.metrics = metrics or Metrics()
        self.limits = limits or HostLimits()
        self.draining = False
        self._source = source
        self._engines = engines
        self._tools = tools
        self.shadows = Shadows()
        self._recorder = Recorder(workspace, self.metrics, traces)
        self._store = conversations
        self._journal = Journal(conversations) if conversations is not None else None
        self._muted = muted
        self.traces = traces
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._older: dict[str, tuple[Harness, CompiledHooks]] = {}
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def turn(self, ask: Ask, on_text: OnText | None = None, on_open: OnOpen | None = None) -> Answer:
        """Run one turn. OverloadedError when full or draining, MovedError when another replica was faster.

        `on_open` is told arm and number of the turn before the model is asked; not for a room that is muted.
        """
        deployment = await self.admit(ask)
        silenced = self._muted()
        if silenced and not silenced.isdisjoint((ask.room_id, ask.room_key, "*")):
            return self._silent(ask, deployment)
        self._open += 1
        self._idle.clear()
        self.metrics.open_turns.set(self._open)
        kept = self._keep(ask.conversation)
        try:
            async with kept.lock:
                return await self._run(ask, deployment, kept, on_text, on_open)
        finally:
            self._open -= 1
            self.metrics.open_turns.set(self._open)
            if self._open == 0:
                self._idle.set()

    def names(self) -> list[str]:
        """Deployments that this gateway serves."""
        return self._source.names()

    async def admit(self, ask: Ask) -> Deployment:
        """What would serve the turn. Raises what would refuse it, so that a stream can be refused before it begins."""
        if self.draining or self._open >= self.limits.open_turns:
            self.metrics.refused.labels("draining" if self.draining else "full").inc()
            raise OverloadedError("too many turns are open", cure="try again in a second")
        if self._source.known(ask.name):
            return self._source.deployment(ask.name)
        return await asyncio.to_thread(self._source.deployment, ask.name)

    async def drain(self) -> bool:
        """Refuse new turns and wait for the open ones; False when some were still open at the limit."""
        self.draining = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), self.limits.drain_s)
        await self.shadows.close()
        if self._journal is not None:
            await asyncio.to_thread(self._journal.close)
        return self._open == 0

    # ---- one turn ---------------------------------------------------------------------------------------------

    async def _run(
        self, ask: Ask, deployment: Deployment, kept: _Kept, on_text: OnText | None, on_open: OnOpen | None
    ) -> Answer:
        opened = await self._conversation(ask, deployment, kept)
        session, head, arm = opened.session, opened.head, opened.arm
        if on_open is not None:
            on_open(arm.name, head.turns + 1)
        model = self._engines.model({"x-hatstack-arm": arm.name}, arm.engine, deployment.control.engine)
        first_text: list[float] = []
        began = time.monotonic()

        async def told(action: ev.Action) -> None:
            if isinstance(action, ev.Emit):
                if not first_text:
                    first_text.append(time.monotonic() - began)
                if on_text is not None:
                    await on_text(action.text)

        try:
            await run_async(session, [ask.event], model, self._tools, SessionClock(session.now), told)
            trace = session.trace
            fresh = trace.entries[kept.seen :]
            measured = Measured(
                ask.conversation,
                head.turns + 1,
                ask.unit,
                arm,
                opened.move,
                opened.fresh,
                opened.place,
                _summary(trace, fresh, ask),
                time.monotonic() - began,
                first_text[0] if first_text else None,
                model.fell_back,
            )
            if self._journal is not None:
                timed = [(entry.at, entry.type, entry.data) for entry in fresh if entry.kind == "event"]
                also = self._recorder.rows(deployment, measured)
                stored = await self._journal.append(head, timed, also)
            else:
                stored = replace(head, turns=head.turns + 1)
        except BaseException:
            # The turn was not stored, so memory must not be ahead of the store.
            kept.session = kept.head = None
            raise
        kept.session, kept.head, kept.seen = session, stored, len(trace.entries)
        self._recorder.done(measured, trace.model_copy(update={"entries": fresh, "segments": trace.segments[-1:]}))
        if opened.place is not None:
            self._shadow(ask, deployment, opened, trace)
        names = (ask.conversation, arm.name, arm.release, arm.digest)
        return Answer(*names, measured.turn, seconds=measured.seconds, first_s=measured.first_s)

    async def _conversation(self, ask: Ask, deployment: Deployment, kept: _Kept) -> _Opened:
        session, head = kept.session, kept.head
        if self._journal is not None:
            stored = await self._journal.find(ask.conversation)
            if stored is not None and (session is None or head is None or head.turns != stored.turns):
                session, head = await asyncio.to_thread(self._restored, stored), stored
                kept.seen = len(session.trace.entries)
        where = None
        if session is None or head is None or deployment.compares:
            units = {"viewer": ask.unit, "conversation": ask.conversation, "room": ask.room_key}
            where = place(units, deployment.split, deployment.trials)
        if session is None or head is None:
            assert where is not None
            arm = self._serving(where.arm, deployment)
            if isinstance(self._tools, Toolbox):
                await self._tools.admit(arm.harness)
            kept.seen = 0
            session = Session(
                arm.harness,
                session_id=ask.conversation,
                room=ask.room,
                hooks=arm.hooks,
                now=time.time(),
                history=ask.history,
            )
            blank = Stored(ask.conversation, ask.unit, arm.name, arm.release, arm.digest, ask.room, 0, ask.history)
            return _Opened(session, blank, arm, "", where if deployment.compares else None, fresh=True)
        if head.unit != ask.unit:
            raise MovedError("the conversation belongs to someone else", cure="use a conversation id of your own")
        arm, move = self._present(head, deployment)
        if arm.digest != head.harness:
            session.switch(arm.harness, arm.hooks)
        return _Opened(session, replace(head, arm=arm.name, release=arm.release, harness=arm.digest), arm, move, where)

    def _restored(self, stored: Stored) -> Session:
        assert self._store is not None
        history = self._store.events(stored.id)
        return restore(stored, history, {digest: self._source.harness(digest) for digest, _ in history})

    def _serving(self, name: str, deployment: Deployment) -> LiveArm:
        """The arm that serves a new conversation of arm `name`; the control stands in for one that cannot, counted."""
        if name not in deployment.aborted and name in deployment.arms:
            return deployment.arms[name]
        self.metrics.fallbacks.labels(*self._recorder.labels(deployment.control)).inc()
        return deployment.control

    def _present(self, head: Stored, deployment: Deployment) -> tuple[LiveArm, Move]:
        """The arm of a running conversation: its own, with the harness it began with unless it must change now."""
        going = going_on(deployment, head.arm, head.harness, head.release)
        if not going.digest:
            return going.arm, going.move
        if going.digest not in self._older:
            harness = self._source.harness(going.digest)
            self._older[going.digest] = (harness, compile_hooks(harness))
        harness, hooks = self._older[going.digest]
        return replace(going.arm, harness=harness, digest=going.digest, hooks=hooks), going.move

    def _shadow(self, ask: Ask, deployment: Deployment, opened: _Opened, trace: Trace) -> None:
        """Copies of a control turn for the shadow arms of its experiment, by their share."""
        trial = opened.place.trial if opened.place is not None else None
        if trial is None or opened.arm.name != trial.split.arms[0].name:
            return
        for name, percent in trial.shadows:
            arm = deployment.arms.get(name)
            turn = f"{ask.conversation}/{opened.head.turns}"
            if arm is None or slot(turn, f"shadow:{trial.name}:{name}") >= percent * SLOTS / 100:
                continue
            model = self._engines.model({"x-hatstack-arm": name}, arm.engine)
            copy = Copy(arm, ask.event, trace, {**opened.head.room, **ask.room}, opened.head.history)
            self.shadows.offer(copy, model, self._tools, self._recorder.shadow)

    # ---- sessions -------------------------------------------------------------------------------------------------

    def _keep(self, conversation: str) -> _Kept:
        kept = self._kept.setdefault(conversation, _Kept())
        self._kept.move_to_end(conversation)
        while len(self._kept) > self.limits.kept_sessions:
            oldest = next((key for key, value in self._kept.items() if not value.lock.locked()), None)
            if oldest is None or oldest == conversation:
                break
            del self._kept[oldest]
        return kept

    def _silent(self, ask: Ask, deployment: Deployment) -> Answer:
        arm = deployment.control
        return Answer(ask.conversation, arm.name, arm.release, arm.digest, _nothing(ask, "muted"), muted=True)


def _summary(trace: Trace, fresh: Any, ask: Ask) -> TurnSummary:
    """What the turn came to; an event that opens no turn (a new room state) is silence."""
    found = turns(trace.model_copy(update={"entries": fresh}))
    return found[-1] if found else _nothing(ask, "state")


def _nothing(ask: Ask, reason: str) -> TurnSummary:
    return TurnSummary(index=0, event=type(ask.event).__name__, texts=(), outcome="silence", reason=reason)


class SessionClock:
    """Continues the session's own time: never back, whatever the wall clock of this or another machine does."""

    def __init__(self, session_now: float) -> None:
        self._offset = max(session_now, time.time()) - time.monotonic()

    def now(self) -> float:
        """Seconds."""
        return time.monotonic() + self._offset

    async def sleep_until(self, when: float) -> None:
        """Sleep."""
        await asyncio.sleep(max(0.0, when - self.now()))
