"""Whatever models, tools, hooks and clocks do: a turn ends once, bounded, and the run replays to the same bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hat_harness import events as ev
from hat_harness.errors import SessionError
from hat_harness.hooks import ACTIONS
from hat_harness.session import Session
from hat_harness.spec import Harness, Hook, Limits, Recovery, Retry, Tool
from hat_harness.tape import dump, replay
from hat_harness.trace import turns
from tests.harness.kit import ITEM, ask, small

CONDITIONS = {
    "session_start": ["false", "room.size() > 3"],
    "before_model": ["turn == 2", "round > 0 && skills.size() == 0", "tools.exists(t, t.failed == true)"],
    "after_model": [
        "reply.contains('bad')",
        "calls.exists(c, c == 'order')",
        "1 / (turn - turn) == 1",
        "finish == 'length'",
    ],
    "before_tool": ["tool.id == 'order'", "skills.size() == 0", "tool.arguments.nothing == 'x'"],
    "after_tool": ["tool.failed == true", "tool.result.contains('39')"],
    "stop": ["true", "!reply.endsWith('bye')", "!numbers.all(n, n in known_numbers)", "skills.size() == 0"],
}
KINDS: tuple[ev.FailureKind, ...] = ("timeout", "rate_limit", "server", "malformed", "unavailable", "cancelled")
WORDS = st.sampled_from(["", " ", "bad", "it is 39 bye", "it is 41 bye", "hello", "x" * 300])


@st.composite
def hooks(draw: st.DrawFn) -> tuple[Hook, ...]:
    found = []
    for number in range(draw(st.integers(0, 4))):
        event = draw(st.sampled_from(sorted(ACTIONS)))
        when = draw(st.sampled_from(CONDITIONS[event]))
        action = draw(st.sampled_from(sorted(ACTIONS[event])))
        rounds = draw(st.integers(0, 3))
        found.append(
            Hook(id=f"h{number}", event=event, when=when, action=action, message=f"m{number}", max_rounds=rounds)
        )
    return tuple(found)


@st.composite
def harnesses(draw: st.DrawFn) -> Harness:
    limits = Limits(
        model_calls=draw(st.integers(1, 6)),
        tool_calls=draw(st.integers(0, 4)),
        parallel_tools=draw(st.integers(1, 3)),
        output_tokens=16,
        segment_tokens=draw(st.sampled_from([64, 120, 400, 8192])),
        deadline_s=draw(st.sampled_from([1.0, 60.0])),
        restarts=draw(st.integers(0, 2)),
    )
    retry = Retry(attempts=draw(st.integers(0, 2)), backoff_s=0.25)
    recovery = Recovery(retry=retry, fallback_model=draw(st.sampled_from(["", "spare"])))
    tools = (
        *small().tools,
        Tool(id="note", name="note", description="write it down", parameters=ITEM, read_only=False),
    )
    return small(limits=limits, recovery=recovery, hooks=draw(hooks()), tools=tools)


CALL = st.one_of(
    st.builds(lambda skill: ask("use_skill", skill=skill), st.sampled_from(["item_qa", "chat", "nope"])),
    st.builds(lambda name, item, i: ask(name, i, item=item), st.sampled_from(["get_item", "order", "note", "nope"]),
              st.sampled_from(["mug", "lamp"]), st.sampled_from(["", "a", "b"])),
    st.just(ask("order", "", itm=3)),
    st.just(ev.ToolCall("", "get_item", {}, "not JSON")),
)  # fmt: skip


class Driver(RuleBasedStateMachine):
    """An adversarial driver that keeps only the promises of a driver: no viewer message in an open turn."""

    @initialize(harness=harnesses(), room=st.sampled_from([{}, {"list": ["mug"]}, {"a": 1, "b": 2, "c": 3, "d": 4}]))
    def start(self, harness: Harness, room: dict[str, Any]) -> None:
        self.harness, self.room = harness, room
        self.session = Session(harness, session_id="s", room=room)
        self.model: list[str] = []
        self.tools: list[ev.ToolRequest] = []
        self.waits: list[float] = []
        self.requested: list[str] = []
        self.ended: list[ev.Action] = []
        self.shown = ""
        self.now = 0.0

    def send(self, event: ev.Event) -> None:
        actions = self.session.handle(event, self.now)
        for index, action in enumerate(actions):
            if isinstance(action, ev.CallModel):
                assert action.messages[: action.known] == self.sent(action)
                self.model.append(action.call_id)
            elif isinstance(action, ev.CallTools):
                assert 0 < len(action.calls) <= self.harness.limits.parallel_tools
                self.tools += action.calls
                self.requested += [c.idempotency_key for c in action.calls if c.idempotency_key]
            elif isinstance(action, ev.Wait):
                self.waits.append(action.until)
            elif isinstance(action, ev.Reply | ev.Refuse | ev.Silence):
                assert isinstance(actions[index + 1], ev.Done)
                self.ended.append(action)

    def sent(self, action: ev.CallModel) -> tuple[ev.Message, ...]:
        self.seen = getattr(self, "seen", {})
        before: tuple[ev.Message, ...] = self.seen.get(action.segment, ())
        self.seen[action.segment] = action.messages
        assert action.known == len(before)
        return before

    @rule(texts=st.lists(st.sampled_from(["how much", "9 or 7 ?"]), min_size=1, max_size=2))
    def viewer(self, texts: list[str]) -> None:
        event = ev.ViewerMessage(tuple(texts))
        if self.session.state == "idle":
            self.send(event)
        else:
            before = dump(self.session.trace)
            with pytest.raises(SessionError):
                self.session.handle(event, self.now)
            assert dump(self.session.trace) == before

    @rule(
        kind=st.sampled_from(["viewer_entered", "order_placed", "state"]),
        state=st.sampled_from([None, {}, {"list": ["x"]}]),
    )
    def room_event(self, kind: Any, state: Any) -> None:
        self.send(ev.RoomEvent(kind, {"name": "mia"}, state))

    @precondition(lambda self: self.model)
    @rule(
        data=st.data(),
        text=WORDS,
        calls=st.lists(CALL, max_size=3),
        finish=st.sampled_from(["stop", "length", "error"]),
    )
    def output(self, data: st.DataObject, text: str, calls: list[ev.ToolCall], finish: Any) -> None:
        call_id = data.draw(st.sampled_from(self.model[-3:]))
        self.send(ev.ModelOutput(call_id, text, "why", tuple(calls), finish))

    @precondition(lambda self: self.model)
    @rule(text=st.sampled_from(["", "he", "llo"]))
    def delta(self, text: str) -> None:
        self.send(ev.ModelDelta(self.model[-1], text))

    @precondition(lambda self: self.tools)
    @rule(data=st.data(), text=st.sampled_from(["price 39", "", "y" * 2000]), failure=st.sampled_from(["", "", *KINDS]))
    def result(self, data: st.DataObject, text: str, failure: Any) -> None:
        request = data.draw(st.sampled_from(self.tools))
        self.send(ev.ToolResult(request.call_id, text, failure))

    @rule(data=st.data(), kind=st.sampled_from(KINDS), scope=st.sampled_from(["call", "call", "trajectory"]))
    def failure(self, data: st.DataObject, kind: Any, scope: Any) -> None:
        call_id = data.draw(st.sampled_from([*self.model[-2:], *(r.call_id for r in self.tools[-2:]), "foreign"]))
        self.send(ev.Failure(scope, kind, call_id))

    @precondition(lambda self: self.waits)
    @rule(data=st.data())
    def tick(self, data: st.DataObject) -> None:
        until = self.waits.pop(data.draw(st.integers(0, len(self.waits) - 1)))
        self.now = max(self.now, until)
        self.send(ev.Tick(self.now))

    @rule()
    def cancel(self) -> None:
        self.send(ev.Cancel("muted"))

    @invariant()
    def effects_happen_at_most_once(self) -> None:
        assert len(set(self.requested)) == len(self.requested)

    @invariant()
    def nothing_is_waited_for_that_was_not_asked(self) -> None:
        state = self.session.state
        if state == "model":
            assert self.model
        elif state != "idle":
            assert self.waits

    def teardown(self) -> None:
        if not hasattr(self, "session"):
            return
        for _ in range(200):
            if self.session.state == "idle":
                break
            # With nothing but the clock left, every turn still ends.
            self.now = max([self.now, *self.waits]) + 0.001
            self.waits.clear()
            self.send(ev.Tick(self.now))
        assert self.session.state == "idle"
        trace = self.session.trace
        found = turns(trace)
        assert len(self.ended) == len(found)
        assert all(turn.outcome for turn in found)
        assert all(turn.model_calls <= self.harness.limits.model_calls for turn in found)
        assert all(turn.restarts <= self.harness.limits.restarts for turn in found)
        again = replay(trace, Session(self.harness, session_id="s", room=self.room))
        assert dump(again) == dump(trace)


TestAnyDriver = Driver.TestCase
TestAnyDriver.settings = settings(
    max_examples=150,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)


def test_a_hook_that_never_lets_the_session_stop_is_bounded() -> None:
    hook = Hook(id="never", event="stop", when="true", action="block", message="again", max_rounds=8)
    session = Session(small(hooks=(hook,), limits=Limits(model_calls=64)), session_id="s")
    actions = session.handle(ev.ViewerMessage(("hello",)))
    calls = 0
    while isinstance(actions[0], ev.CallModel):
        calls += 1
        actions = session.handle(ev.ModelOutput(actions[0].call_id, "fine"))
    assert calls == 9
    assert actions[0] == ev.Reply("one moment please", safe=True)
    assert turns(session.trace)[0].reason == "rounds of never"


def test_a_viewer_message_without_texts_is_the_drivers_mistake() -> None:
    with pytest.raises(SessionError, match="without texts"):
        Session(small(), session_id="s").handle(ev.ViewerMessage(()))
    with pytest.raises(SessionError, match="no event"):
        Session(small(), session_id="s").handle("hello")  # type: ignore[arg-type]
