"""The host: one turn of one conversation, from admission to the stored record.

Always holds: a turn is admitted or refused before anything happens; a conversation has one turn at a time; its arm is
assigned once, at its start, by unit, and changes only on abort (at the next message) or when an urgent promotion or the
arm's own next release allows it; the turn is stored before its answer is given back. Every admitted turn ends in a reply,
a refusal or silence within the harness's deadline. Not here: HTTP (app), what the agent says (hat_harness).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from hat_harness import events as ev
from hat_harness.digest import harness_digest
from hat_harness.drive import run_async
from hat_harness.hooks import CompiledHooks, compile_hooks
from hat_harness.ports import AsyncToolBackend
from hat_harness.session import Session
from hat_harness.spec import Harness
from hat_harness.trace import Trace
from hat_serving.errors import MovedError, OverloadedError, RequestError
from hat_serving.experiment.assignment import SLOTS, Assigned, place, slot
from hat_serving.gateway import brought
from hat_serving.gateway.conversations import Conversations, Stored, restore
from hat_serving.gateway.held import Held, Holding
from hat_serving.gateway.journal import Journal
from hat_serving.gateway.live import Deployment, LiveArm, Move, Source, going_on
from hat_serving.gateway.metrics import Metrics
from hat_serving.gateway.recording import Measured, Recorder
from hat_serving.gateway.shadow import Copy, Shadows
from hat_serving.gateway.toolbox import Toolbox
from hat_serving.gateway.traces import TraceWriter
from hat_serving.gateway.turns import Answer, Ask, Heard, OnText, SessionClock, begun, nothing, summary
from hat_serving.gateway.upstream import Engines

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
class _Opened:
    """A conversation at the beginning of a turn. `place`: where its unit belongs, None while nothing is compared."""

    session: Session
    head: Stored
    arm: LiveArm
    move: Move = ""
    place: Assigned | None = None
    fresh: bool = False
    joined: brought.Joined | None = None
    """The harness with the client's tools."""


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
        self._kept = Holding(self.limits.kept_sessions)
        self._older: dict[str, tuple[Harness, CompiledHooks]] = {}
        self._joins = brought.Joins()
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
        kept = self._kept.of(ask.conversation)
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
        self, ask: Ask, deployment: Deployment, kept: Held, on_text: OnText | None, on_open: OnOpen | None
    ) -> Answer:
        opened = await self._conversation(ask, deployment, kept)
        session, head, arm = opened.session, opened.head, opened.arm
        if on_open is not None:
            on_open(arm.name, head.turns + 1)
        model = self._engines.model({"x-hatstack-arm": arm.name}, arm.engine, deployment.control.engine)
        theirs = opened.joined.theirs if opened.joined is not None else frozenset[str]()
        heard = Heard(theirs, on_text)
        began = time.monotonic()
        try:
            events: list[ev.Event] = list(ask.results) if ask.event is None else [ask.event]
            clock = SessionClock(session.now, still=ask.event is None)
            await run_async(session, events, model, self._tools, clock, heard.told, heard.away if theirs else None)
            waits = session.state != "idle"
            trace = session.trace
            turn = summary(trace, trace.entries[kept.told :], ask)
            measured = Measured(
                ask.conversation,
                head.turns + 1,
                ask.unit,
                arm,
                opened.move,
                opened.fresh,
                opened.place,
                turn,
                time.monotonic() - began if ask.event is not None else turn.ended - turn.started,
                heard.first_at - began if heard.first_at else None,
                model.fell_back,
            )
            stored = await self._stored(ask, deployment, kept, opened, measured, trace, waits)
        except BaseException as error:
            # The turn was not stored, so memory must not be ahead of the store.
            kept.session = kept.head = None
            if isinstance(error, asyncio.CancelledError):
                self._recorder.gone(arm, session.trace, kept.told)
            raise
        counted = self._counted(ask, kept, trace)
        kept.session, kept.head, kept.seen = session, stored, len(trace.entries)
        names = (ask.conversation, arm.name, arm.release, arm.digest)
        answer = Answer(*names, turn, seconds=measured.seconds, first_s=measured.first_s, counted=counted)
        if waits:
            self._recorder.moved(measured)
            out = session.waits_for
            calls = tuple(call for call in heard.asked if call.call_id in out)
            return replace(answer, calls=calls, shown="".join(heard.shown))
        fresh, kept.told = trace.entries[kept.told :], kept.seen
        self._recorder.done(measured, trace.model_copy(update={"entries": fresh, "segments": trace.segments[-1:]}))
        if opened.place is not None and not theirs:
            self._shadow(ask, deployment, opened, trace)
        return answer

    async def _stored(
        self,
        ask: Ask,
        deployment: Deployment,
        kept: Held,
        opened: _Opened,
        measured: Measured,
        trace: Trace,
        waits: bool,
    ) -> Stored:
        """The turn's new events in the store, with the rows that belong to it."""
        head, joined, tools = opened.head, opened.joined, kept.tools
        head = replace(head, played=joined.digest if joined is not None else "")
        if self._journal is None:
            return replace(head, turns=head.turns + 1)
        rows = self._recorder.rows(deployment, measured, waits=waits)
        workspace = self._journal.workspace

        def also(tx: Any) -> None:
            if joined is not None and tools is not None:
                brought.keep(tx, workspace, ask.conversation, measured.arm.digest, joined, tools)
            if rows is not None:
                rows(tx)

        timed = [(entry.at, entry.type, entry.data) for entry in trace.entries[kept.seen :] if entry.kind == "event"]
        return await self._journal.append(head, timed, rows if joined is None else also)

    def _counted(self, ask: Ask, kept: Held, trace: Trace) -> tuple[int, int]:
        """Tokens of the turn that were told with the calls that its client made."""
        if ask.event is not None:
            return (0, 0)
        before = summary(trace, trace.entries[kept.told : kept.seen], ask)
        return before.prompt_tokens, before.completion_tokens

    async def _conversation(self, ask: Ask, deployment: Deployment, kept: Held) -> _Opened:
        session, head = kept.session, kept.head
        if self._journal is not None:
            stored = await self._journal.find(ask.conversation)
            if stored is None:  # what was erased or is past its day is not known here any more either
                session = head = None
            elif session is None or head is None or head.turns != stored.turns:
                session, head = await asyncio.to_thread(self._restored, stored, kept), stored
        where = None
        if session is None or head is None or deployment.compares:
            units = {"viewer": ask.unit, "conversation": ask.conversation, "room": ask.room_key}
            where = place(units, deployment.split, deployment.trials)
        if session is None or head is None:
            assert where is not None
            return await self._fresh(ask, deployment, kept, where)
        if head.unit != ask.unit:
            raise MovedError("the conversation belongs to someone else", cure="use a conversation id of your own")
        arm, move = self._present(head, deployment)
        joined: brought.Joined | None
        if ask.event is None:
            self._goes_on(ask, kept, session)
            # The open turn ends as it began; a move comes with the next message.
            arm, move = replace(arm, name=head.arm, release=head.release, digest=head.harness), ""
            joined = brought.Joined(session.harness, harness_digest(session.harness), arm.hooks, kept.theirs)
        else:
            joined = self._switched(ask, kept, session, arm)
        head = replace(head, arm=arm.name, release=arm.release, harness=arm.digest)
        return _Opened(session, head, arm, move, where, joined=joined)

    async def _fresh(self, ask: Ask, deployment: Deployment, kept: Held, where: Assigned) -> _Opened:
        """A conversation that begins."""
        if ask.event is None:
            raise _nothing_waits()
        arm = self._serving(where.arm, deployment)
        kept.seen = kept.told = 0
        kept.tools = ask.tools
        joined = self._joins.of(arm.harness, arm.digest, ask.tools) if ask.tools is not None else None
        if isinstance(self._tools, Toolbox):
            await self._tools.admit(arm.harness)
        session = Session(
            joined.harness if joined is not None else arm.harness,
            session_id=ask.conversation,
            room=ask.room,
            hooks=joined.hooks if joined is not None else arm.hooks,
            now=time.time(),
            history=ask.history,
        )
        blank = Stored(ask.conversation, ask.unit, arm.name, arm.release, arm.digest, ask.room, 0, ask.history)
        compared = where if deployment.compares else None
        return _Opened(session, blank, arm, "", compared, fresh=True, joined=joined)

    def _goes_on(self, ask: Ask, kept: Held, session: Session) -> None:
        """Refuse results that the open turn does not wait for, all of them and no others."""
        wanted = session.waits_for
        if not wanted:
            raise _nothing_waits()
        if wanted != {one.call_id for one in ask.results}:
            raise RequestError("needs one result for each call", place="messages", cure="send all of them at once")
        if ask.tools is not None and (kept.tools is None or ask.tools.raw != kept.tools.raw):
            raise RequestError("may not change before the calls are answered", place="tools")

    def _switched(self, ask: Ask, kept: Held, session: Session, arm: LiveArm) -> brought.Joined | None:
        """Makes the session ready for a message under `arm` and the client's tools."""
        if session.state != "idle":
            session.handle(ev.Cancel("the client went on without its calls"))
        if ask.tools is not None:
            kept.tools = ask.tools
        elif not arm.harness.client_tools:
            kept.tools = None
        joined = self._joins.of(arm.harness, arm.digest, kept.tools) if kept.tools is not None else None
        if harness_digest(session.harness) != (joined.digest if joined is not None else arm.digest):
            session.switch(*(joined.harness, joined.hooks) if joined is not None else (arm.harness, arm.hooks))
        return joined

    def _restored(self, stored: Stored, kept: Held) -> Session:
        """The session as the store has it, and what `kept` knows beside it."""
        assert self._store is not None
        history = self._store.events(stored.id)
        digests = [digest for digest, _ in history]
        named = (self._store.database, self._store.workspace, stored.id, digests)
        harnesses, tools = brought.played(*named, self._source.harness)
        session = restore(stored, history, harnesses)
        trace = session.trace
        kept.tools, kept.seen = tools.get(digests[-1]), len(trace.entries)
        kept.told = kept.seen if session.state == "idle" else begun(trace)
        return session

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
        if trial is None or ask.event is None or opened.arm.name != trial.split.arms[0].name:
            return
        for name, percent in trial.shadows:
            arm = deployment.arms.get(name)
            turn = f"{ask.conversation}/{opened.head.turns}"
            if arm is None or slot(turn, f"shadow:{trial.name}:{name}") >= percent * SLOTS / 100:
                continue
            model = self._engines.model({"x-hatstack-arm": name}, arm.engine)
            copy = Copy(arm, ask.event, trace, {**opened.head.room, **ask.room}, opened.head.history)
            self.shadows.offer(copy, model, self._tools, self._recorder.shadow)

    def _silent(self, ask: Ask, deployment: Deployment) -> Answer:
        arm = deployment.control
        return Answer(ask.conversation, arm.name, arm.release, arm.digest, nothing(ask, "muted"), muted=True)


def _nothing_waits() -> RequestError:
    cure = "send them with the request that follows the calls, before anything else is said"
    return RequestError("no call of this conversation waits for a result", place="messages", cure=cure)
