"""Failures of calls are retried, then the fallback model, then the trajectory restarts, then the safe reply."""

from __future__ import annotations

from hat_harness import events as ev
from hat_harness.session import Session
from hat_harness.spec import Harness, Hook, Limits, Recovery, Retry
from hat_harness.trace import turns
from tests.harness.kit import GATE, ask, output, session, small

SAFE = ev.Reply("one moment please", safe=True)


def _harness(**recovery: object) -> Harness:
    return small(recovery=Recovery(**{"retry": Retry(attempts=2, backoff_s=1.0, backoff_max_s=1.5), **recovery}))


def _begin(harness: Harness) -> tuple[Session, ev.CallModel]:
    found = session(harness)
    call = found.handle(ev.ViewerMessage(("hello",)))[0]
    assert isinstance(call, ev.CallModel)
    return found, call


def _fail(one: Session, call: ev.CallModel) -> list[ev.Action]:
    return one.handle(ev.Failure("call", "server", call.call_id))


def test_a_failed_call_is_tried_again_after_a_bounded_doubling_wait() -> None:
    one, call = _begin(_harness())
    assert _fail(one, call) == [ev.Wait(1.0)]
    assert one.state == "backoff"
    assert one.handle(ev.Tick(0.9)) == []
    (second,) = one.handle(ev.Tick(1.0))
    assert isinstance(second, ev.CallModel)
    assert (second.messages, second.call_id) == (call.messages, "m2")
    assert _fail(one, second) == [ev.Wait(2.5)]
    (third,) = one.handle(ev.Tick(2.5))
    assert isinstance(third, ev.CallModel)
    assert one.handle(output(third, "hello")) == [ev.Reply("hello"), ev.Done()]


def test_the_fallback_model_then_a_restart_then_the_safe_reply() -> None:
    one, call = _begin(_harness(retry=Retry(attempts=0), fallback_model="spare"))
    (second,) = _fail(one, call)
    assert isinstance(second, ev.CallModel)
    assert second.model == "spare"
    restart, third = _fail(one, second)
    assert restart == ev.Restart(1, "server")
    assert isinstance(third, ev.CallModel)
    assert (third.model, third.segment) == ("spare", 1)
    assert _fail(one, third) == [SAFE, ev.Done()]
    assert one.context[-1] == ev.Message("assistant", "one moment please")


def test_a_restart_keeps_the_conversation_and_drops_the_trajectory() -> None:
    one, call = _begin(_harness())
    one.handle(output(call, "hi there"))
    (call, _) = one.handle(ev.ViewerMessage(("how much",)))
    assert isinstance(call, ev.CallModel)
    (call,) = one.handle(output(call, "", ask("use_skill", skill="item_qa")))
    assert isinstance(call, ev.CallModel)
    assert call.messages[-1].content == 'open with "hi" .'
    _, again = one.handle(ev.Failure("trajectory", "malformed"))
    assert isinstance(again, ev.CallModel)
    assert [(m.role, m.content) for m in again.messages[1:]] == [
        ("user", "hello"),
        ("assistant", "hi there"),
        ("user", "how much"),
    ]
    assert one.trace.segments[1].sampled == ()


def test_an_empty_output_is_malformed_unless_a_hook_makes_it_silence() -> None:
    one, call = _begin(_harness())
    before = one.context
    assert one.handle(output(call, "  ")) == [ev.Wait(1.0)]
    assert one.context == before
    hook = Hook(id="quiet", event="stop", when="reply == ''", action="silence", message="nothing to say")
    one, call = _begin(small(hooks=(hook,)))
    assert one.handle(output(call, "")) == [ev.Silence("nothing to say"), ev.Done()]


def test_the_deadline_ends_the_turn_and_what_comes_after_is_late() -> None:
    one, call = _begin(small(limits=Limits(deadline_s=2.0)))
    (call,) = one.handle(output(call, "", ask("use_skill", skill="chat")), 1.0)
    assert isinstance(call, ev.CallModel)
    assert one.handle(output(call, "too late"), 2.0) == [SAFE, ev.Done()]
    assert one.trace.ignored == {"late": 1}
    assert turns(one.trace)[0].reason == "deadline"
    assert (turns(one.trace)[0].started, turns(one.trace)[0].ended) == (0.0, 2.0)


def test_calls_that_are_out_at_the_deadline_leave_a_well_formed_context() -> None:
    one, call = _begin(small(limits=Limits(deadline_s=2.0)))
    one.handle(output(call, "", ask("get_item", "a", item="mug"), ask("get_item", "b")))
    assert one.handle(ev.Tick(2.0)) == [SAFE, ev.Done()]
    roles = [message.role for message in one.context]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert [call.failure for call in turns(one.trace)[0].calls] == ["cancelled", "malformed"]


def test_model_calls_are_bounded_whatever_they_say() -> None:
    one, call = _begin(small(limits=Limits(model_calls=3)))
    for _ in range(2):
        (call,) = one.handle(output(call, "", ask("use_skill", skill="nope")))
        assert isinstance(call, ev.CallModel)
    assert one.handle(output(call, "", ask("use_skill", skill="nope"))) == [SAFE, ev.Done()]


def test_text_that_was_shown_is_taken_back_by_a_restart() -> None:
    one, call = _begin(_harness())
    assert one.handle(ev.ModelDelta(call.call_id, "it is 4")) == [ev.Emit("it is 4")]
    restart, again = _fail(one, call)
    assert restart == ev.Restart(1, "server after text was shown")
    assert isinstance(again, ev.CallModel)


def test_nothing_is_shown_while_a_hook_may_still_reject_it() -> None:
    one, call = _begin(small(hooks=(GATE,)))
    assert one.handle(ev.ModelDelta(call.call_id, "it is 40")) == []
    (again,) = one.handle(output(call, "it is 40"))
    assert isinstance(again, ev.CallModel)
    assert one.handle(output(again, "it is 39 bye")) == [ev.Reply("it is 39 bye"), ev.Done()]
    assert turns(one.trace)[0].emitted == ""


def test_cancel_ends_the_turn_in_silence_and_the_session_goes_on() -> None:
    one, call = _begin(small())
    assert one.handle(ev.Cancel("muted")) == [ev.Silence("cancelled: muted"), ev.Done()]
    assert one.handle(output(call, "late")) == []
    (call, _) = one.handle(ev.ViewerMessage(("again",)))
    assert isinstance(call, ev.CallModel)
    assert one.handle(ev.Cancel()) == [ev.Silence("cancelled"), ev.Done()]
    assert one.handle(ev.Cancel()) == []


def test_an_output_that_ended_in_an_error_counts_as_a_failed_call() -> None:
    one, call = _begin(_harness())
    assert one.handle(output(call, "half a sen", finish_reason="error")) == [ev.Wait(1.0)]
