"""A call with effects is requested at most once a turn per tool and arguments; its result is what every repetition gets."""

from __future__ import annotations

from hat_harness import events as ev
from hat_harness.drive import run_batch
from hat_harness.session import Session
from hat_harness.spec import Recovery, Retry
from hat_harness.tape import RecordedTools
from hat_harness.trace import turns
from tests.harness.kit import Scripted, Shop, ask, output, session, small, texts

MUG = ask("order", "a", item="mug")


def _begin(**changes: object) -> tuple[Session, ev.CallModel]:
    found = session(small(**changes))
    (call, wait) = found.handle(ev.ViewerMessage(("order the mug",)))
    assert isinstance(call, ev.CallModel)
    assert isinstance(wait, ev.Wait)
    return found, call


def _requests(actions: list[ev.Action]) -> list[ev.ToolRequest]:
    return [request for action in actions if isinstance(action, ev.CallTools) for request in action.calls]


def test_the_same_call_twice_in_one_output_is_made_once() -> None:
    steps = [
        lambda c: output(c, "", MUG, ask("order", "b", item="mug"), ask("order", "c", item="lamp")),
        lambda c: output(c, "ok"),
    ]
    one, shop = session(), Shop()
    run_batch([(one, [ev.ViewerMessage(("x",))])], Scripted(*steps), shop)
    assert [r.arguments["item"] for r in shop.requests] == ["mug", "lamp"]
    assert len(set(shop.effects)) == 2
    first, second, _ = turns(one.trace)[0].calls
    assert (first.recorded, second.recorded) == (False, True)
    assert first.result == second.result == "mug : price 39"
    assert texts(one.context, "tool")[0] == texts(one.context, "tool")[1]


def test_a_repetition_in_a_later_output_gets_the_recorded_result() -> None:
    step = lambda c: output(c, "", ask("order", item="mug"))  # noqa: E731 (a step is a lambda in all these tests)
    one, shop = session(), Shop()
    run_batch(
        [(one, [ev.ViewerMessage(("x",))] * 2)],
        Scripted(step, step, lambda c: output(c, "ok"), step, lambda c: output(c, "ok")),
        shop,
    )
    assert len(shop.requests) == 2
    assert len(set(shop.effects)) == 2
    assert [[call.recorded for call in turn.calls] for turn in turns(one.trace)] == [[False, True], [False]]


def test_a_restart_waits_for_the_effect_that_is_still_out() -> None:
    one, call = _begin()
    (request,) = _requests(one.handle(output(call, "", MUG)))
    restart, again = one.handle(ev.Failure("trajectory", "server", detail="gone"))
    assert isinstance(restart, ev.Restart)
    assert isinstance(again, ev.CallModel)
    assert one.handle(output(again, "", ask("order", "b", item="mug"))) == []
    (last,) = one.handle(ev.ToolResult(request.call_id, "done"))
    assert isinstance(last, ev.CallModel)
    assert last.messages[-1].content == "done"
    one.handle(output(last, "ordered"))
    calls = turns(one.trace)[0].calls
    assert [(c.result, c.failure, c.recorded) for c in calls] == [("", "cancelled", False), ("done", "", True)]


def test_an_effect_that_failed_is_not_tried_again_but_a_read_is() -> None:
    one, call = _begin(recovery=Recovery(retry=Retry(attempts=2, backoff_s=1.0)))
    requests = _requests(one.handle(output(call, "", MUG, ask("get_item", "b", item="mug"))))
    assert one.handle(ev.ToolResult(requests[0].call_id, "", "timeout")) == []
    assert one.handle(ev.Failure("call", "rate_limit", requests[1].call_id)) == [ev.Wait(1.0)]
    assert one.handle(ev.Tick(0.5)) == []
    assert _requests(one.handle(ev.Tick(1.0))) == [requests[1]]
    assert one.handle(ev.ToolResult(requests[1].call_id, "", "server")) == [ev.Wait(3.0)]
    assert _requests(one.handle(ev.Tick(3.0))) == [requests[1]]
    (last,) = one.handle(ev.ToolResult(requests[1].call_id, "", "server"))
    assert isinstance(last, ev.CallModel)
    assert texts(last.messages, "tool") == ["error : timeout", "error : server"]


def test_results_may_come_in_any_order_and_foreign_ones_are_counted() -> None:
    one, call = _begin()
    requests = _requests(
        one.handle(output(call, "", ask("get_item", "a", item="mug"), ask("get_item", "b", item="lamp")))
    )
    assert one.handle(ev.ToolResult("foreign", "x")) == []
    assert one.handle(ev.ToolResult(requests[1].call_id, "second")) == []
    assert one.handle(ev.ToolResult(requests[1].call_id, "again")) == []
    (last,) = one.handle(ev.ToolResult(requests[0].call_id, "first"))
    assert isinstance(last, ev.CallModel)
    assert texts(last.messages, "tool") == ["first", "second"]
    assert one.handle(ev.ModelDelta("m1", "late")) == []
    assert one.handle(ev.ModelOutput("m1", "late")) == []
    assert one.trace.ignored == {"late": 4}


def test_parallel_calls_keep_to_the_limit_and_to_the_number_of_a_turn() -> None:
    limits = small().limits.model_copy(update={"parallel_tools": 2, "tool_calls": 3})
    one, call = _begin(limits=limits)
    asked = [ask("get_item", str(i), item=str(i)) for i in range(4)]
    first = _requests(one.handle(output(call, "", *asked)))
    assert [r.arguments["item"] for r in first] == ["0", "1"]
    (third,) = _requests(one.handle(ev.ToolResult(first[0].call_id, "r0")))
    assert third.arguments["item"] == "2"
    one.handle(ev.ToolResult(first[1].call_id, "r1"))
    (last,) = one.handle(ev.ToolResult(third.call_id, "r2"))
    assert isinstance(last, ev.CallModel)
    assert texts(last.messages, "tool") == ["r0", "r1", "r2", "error : no more tool calls in this turn"]


def test_call_ids_are_unique_in_a_session() -> None:
    one, call = _begin()
    requests = _requests(one.handle(output(call, "", ask("get_item", "x", item="a"), ask("get_item", "x", item="b"))))
    assert len({request.call_id for request in requests}) == 2
    message = one.context[-1]
    assert [c.id for c in message.tool_calls] == [request.call_id for request in requests]


def test_a_shadow_gets_the_recorded_result_and_never_makes_an_effect() -> None:
    steps = [lambda c: output(c, "", MUG, ask("get_item", "b", item="mug")), lambda c: output(c, "ok")]
    one, shop = session(), Shop()
    run_batch([(one, [ev.ViewerMessage(("x",))])], Scripted(*steps), shop)
    live = Shop()
    asked = [MUG, ask("order", "b", item="lamp"), ask("get_item", "c", item="mug"), ask("get_item", "d", item="lamp")]
    shadow = session(small(recovery=Recovery(retry=Retry(attempts=0))))
    steps = [lambda c: output(c, "", *asked), lambda c: output(c, "ok")]
    run_batch([(shadow, [ev.ViewerMessage(("x",))])], Scripted(*steps), RecordedTools(one.trace, live))
    assert [(r.name, r.arguments["item"]) for r in live.requests] == [("get_item", "lamp")]
    assert [call.failure for call in turns(shadow.trace)[0].calls] == ["", "unavailable", "", ""]
    assert turns(shadow.trace)[0].calls[0].result == turns(one.trace)[0].calls[0].result
