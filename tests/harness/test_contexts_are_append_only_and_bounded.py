"""Contexts only grow, stay within the token budget, and carry the conversation from segment to segment."""

from __future__ import annotations

import pytest

from hat_harness import events as ev
from hat_harness.drive import run_batch
from hat_harness.errors import SessionError
from hat_harness.gates import Known
from hat_harness.segments import Segments, estimate
from hat_harness.session import Session
from hat_harness.spec import Activation, FewShot, Harness, Limits, Prompt
from hat_harness.tape import dump, replay
from hat_harness.trace import sampled, turns
from tests.harness.kit import GATE, Scripted, Shop, ask, output, session, small, texts


def words(text: str) -> int:
    return len(text.split())


def tight(**changes: object) -> Harness:
    return small(limits=Limits(segment_tokens=120, output_tokens=20), **changes)


def test_segments_close_at_the_budget_and_keep_the_newest_exchanges() -> None:
    one = session(tight(), count=words)
    events = [ev.ViewerMessage((f"question number {i} please",)) for i in range(12)]
    model = Scripted(lambda c: output(c, "an answer of some six words"))
    run_batch([(one, events)], model, Shop())
    assert len(one.trace.segments) > 1
    sizes = [sum(words(m.content) + 4 for m in call.messages) for _, call in model.calls]
    assert max(sizes) + 20 <= 120
    second = one.trace.segments[1]
    assert second.reason == "budget"
    assert second.messages[0] == one.trace.segments[0].messages[0]
    questions = texts(second.messages, "user")
    first_new = next(call for _, call in model.calls if call.segment == 1)
    number = int(texts(first_new.messages, "user")[-1].split()[2])
    carried = [m for m in first_new.messages if m.role == "user"]
    assert [m.content for m in carried] == [
        f"question number {i} please" for i in range(number - len(carried) + 1, number + 1)
    ]
    assert questions[0] == carried[0].content
    samples = sampled(one.trace, 1)
    assert min(samples) == len(first_new.messages)


def test_a_segment_that_closes_in_a_turn_keeps_the_turn() -> None:
    one = session(tight(), count=words)
    steps = [lambda c: output(c, "fine then")] * 4 + [
        lambda c: output(c, "", ask("get_item", "a", item="mug")),
        lambda c: output(c, "", ask("get_item", "b", item="lamp")),
        lambda c: output(c, "both are there"),
    ]
    shop = Shop(lambda r: ev.ToolResult(r.call_id, f"{r.arguments['item']} " + "word " * 25))
    model = Scripted(*steps)
    run_batch([(one, [ev.ViewerMessage(("and this one please",))] * 5)], model, shop)
    last = model.calls[-1][1]
    assert last.segment == 1
    assert one.trace.segments[1].reason == "budget"
    assert [m.role for m in last.messages[-5:]] == ["user", "assistant", "tool", "assistant", "tool"]
    assert turns(one.trace)[-1].reply == "both are there"
    assert sum(words(m.content) + 4 for m in last.messages) + 20 <= 120


def test_long_results_are_cut_so_that_a_turn_still_fits() -> None:
    one = session(tight(), count=words)
    step = lambda c: output(c, "", ask("get_item", item="mug"))  # noqa: E731 (a step is a lambda in all these tests)
    model = Scripted(step, step, step, step, lambda c: output(c, "ok"))
    shop = Shop(lambda r: ev.ToolResult(r.call_id, "word " * 5000))
    run_batch([(one, [ev.ViewerMessage(("x",))])], model, shop)
    for _, call in model.calls:
        assert sum(words(m.content) + 4 for m in call.messages) + 20 <= 160
    assert texts(one.context, "tool")[0].endswith(" …")
    assert turns(one.trace)[0].calls[0].result == "word " * 5000


def test_only_protected_prompts_stay_when_the_prompt_itself_is_too_long() -> None:
    prompts = (
        Prompt(id="must", section="rules", text="must stay", protected=True),
        Prompt(id="may", section="rules", text="may go " * 30),
    )
    one = session(tight(prompts=prompts), count=words)
    model = Scripted(lambda c: output(c, "word " * 8))
    run_batch([(one, [ev.ViewerMessage(("x",))] * 3)], model, Shop())
    assert "may go" in one.trace.segments[0].messages[0].content
    assert "may go" not in one.trace.segments[-1].messages[0].content
    assert "must stay" in one.trace.segments[-1].messages[0].content


def test_reported_token_counts_win_over_the_estimate() -> None:
    one = session(tight(), count=lambda text: 0)
    model = Scripted(lambda c: output(c, "ok", prompt_tokens=len(c.messages) * 20, completion_tokens=5))
    run_batch([(one, [ev.ViewerMessage(("x",))] * 8)], model, Shop())
    assert len(one.trace.segments) > 1


def test_the_estimate_and_cutting_are_sane() -> None:
    assert estimate("") == 0
    assert estimate("abcd" * 10) == 10
    assert estimate("中文") == 2
    segments = Segments(words)
    assert segments.cut("a b c", 3) == "a b c"
    assert words(segments.cut("word " * 100, 10)) <= 11


# ---- the room and skills ---------------------------------------------------------------------------------------


def test_the_model_reads_what_changed_in_the_room_and_what_happened() -> None:
    one = Session(small(), session_id="s", room={"list": ["mug"], "sale": "ten"})
    (call, _) = one.handle(ev.ViewerMessage(("hello",)))
    assert isinstance(call, ev.CallModel)
    assert call.messages[0].content.endswith('# room\nlist : "mug"\nsale : "ten"')
    one.handle(output(call, "hi"))
    assert one.handle(ev.RoomEvent("state", {}, {"list": ["mug", "lamp"]})) == []
    (call, _) = one.handle(ev.RoomEvent("viewer_entered", {"name": "mia", "level": 3}))
    assert isinstance(call, ev.CallModel)
    assert call.messages[-1].content == 'list : "mug" "lamp"\nsale : none\nevent : viewer entered name "mia" level "3"'
    one.handle(output(call, "welcome mia"))
    (call, _) = one.handle(ev.ViewerMessage(("a", "b")))
    assert isinstance(call, ev.CallModel)
    assert call.messages[-1].content == "a\nb"


def test_room_events_wait_for_the_open_turn() -> None:
    one = session()
    (call, _) = one.handle(ev.ViewerMessage(("hello",)))
    assert isinstance(call, ev.CallModel)
    assert one.handle(ev.RoomEvent("state", {}, {"list": ["mug"]})) == []
    assert one.handle(ev.RoomEvent("order_placed", {"item": "mug"})) == []
    reply, done, following, wait = one.handle(output(call, "hi"))
    assert (reply, done) == (ev.Reply("hi"), ev.Done())
    assert isinstance(following, ev.CallModel)
    assert isinstance(wait, ev.Wait)
    assert following.messages[-1].content == 'list : "mug"\nevent : order placed item "mug"'
    for _ in range(70):
        one.handle(ev.RoomEvent("viewer_entered"))
    assert one.trace.ignored == {"queue full": 6}
    with pytest.raises(SessionError, match="not JSON"):
        one.handle(ev.RoomEvent("viewer_entered", {"x": object()}))


def test_a_skill_is_loaded_once_a_turn_or_once_a_segment() -> None:
    load = lambda c: output(c, "", ask("use_skill", skill="item_qa"))  # noqa: E731 (as above)
    done = lambda c: output(c, "ok")  # noqa: E731 (as above)
    for span, expected in (("turn", ["body", "loaded", "body"]), ("segment", ["body", "loaded", "loaded"])):
        one = session(small(activation=Activation(once_per=span)))
        run_batch([(one, [ev.ViewerMessage(("x",))] * 2)], Scripted(load, load, done, load, done), Shop())
        kinds = ["body" if text == 'open with "hi" .' else "loaded" for text in texts(one.context, "tool")]
        assert kinds == expected
        assert [turn.skills for turn in turns(one.trace)] == [("item_qa",), ("item_qa",)]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"skill": "nope"}, 'error : no skill "nope" , skills are "item_qa" "chat"'),
        ({"name": "chat"}, 'error : write the skill as "skill"'),
        ({"skill": ["chat"]}, 'error : write the skill as "skill"'),
        ({}, 'error : write the skill as "skill"'),
    ],
)
def test_a_wrong_activation_is_told(arguments: dict[str, object], text: str) -> None:
    one = session()
    call = one.handle(ev.ViewerMessage(("x",)))[0]
    one.handle(output(call, "", ask("use_skill", **arguments)))  # type: ignore[arg-type]
    assert one.context[-1].content == text
    assert turns(one.trace)[0].skills == ()


def test_what_cannot_be_stored_becomes_an_error_or_a_question_mark() -> None:
    one = session()
    call = one.handle(ev.ViewerMessage(("half \ud800",)))[0]
    bad = [ask("get_item", item=float("nan")), ask("get_item", item="\udfff"), ev.ToolCall("", "get_item", [1])]  # type: ignore[arg-type]
    actions = one.handle(output(call, "a\ud800b", *bad))  # type: ignore[arg-type]
    assert texts(one.context, "tool") == ["error : the arguments are not a JSON object"] * 3
    assert (texts(one.context, "user"), texts(one.context, "assistant")) == (["half ?"], ["a?b"])
    one.handle(output(actions[0], "fine"))  # type: ignore[arg-type]
    assert one.trace.model_dump_json()


# ---- changing the harness --------------------------------------------------------------------------------------


def test_another_harness_goes_on_with_the_conversation_in_a_new_segment() -> None:
    one = session()
    (call, _) = one.handle(ev.ViewerMessage(("hello",)))
    assert isinstance(call, ev.CallModel)
    with pytest.raises(SessionError, match="while a turn is open"):
        one.switch(small(hooks=(GATE,)))
    one.handle(output(call, "hi"))
    other = small(hooks=(GATE,), prompts=())
    one.switch(other)
    (call, _) = one.handle(ev.ViewerMessage(("and now",)))
    assert isinstance(call, ev.CallModel)
    assert [m.content for m in call.messages[1:]] == ["hello", "hi", "and now"]
    assert "bye" not in call.messages[0].content
    (again,) = one.handle(output(call, "hm"))
    assert isinstance(again, ev.CallModel)
    one.handle(output(again, "well bye"))
    trace = one.trace
    assert [segment.reason for segment in trace.segments] == ["start", "harness"]
    assert trace.segments[0].harness != trace.segments[1].harness
    again_trace = replay(trace, session(), {trace.segments[1].harness: other})
    assert dump(again_trace) == dump(trace)


def test_known_numbers_are_scanned_once() -> None:
    known = Known()
    known.read("39 and 40")
    assert known.numbers() == ["39", "40"]
    known.read("40 and 41")
    assert known.numbers() == ["39", "40", "41"]


def test_worked_examples_stand_before_the_conversation() -> None:
    call = {"id": "x", "function": {"name": "get_item", "arguments": '{"item": "mug"}'}}
    shot = FewShot(
        id="price",
        messages=(
            {"role": "user", "content": "price of the mug"},
            {"role": "assistant", "content": None, "reasoning_content": "look", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "x", "content": "39"},
            {"role": "assistant", "content": "it is 39"},
        ),
    )
    one = session(tight(few_shots=(shot,)), count=words)
    model = Scripted(lambda c: output(c, "fine", token_ids=(1,)))
    run_batch([(one, [ev.ViewerMessage(("and now please",))] * 12)], model, Shop())
    assert len(one.trace.segments) > 1
    for segment in one.trace.segments:
        assert [m.content for m in segment.messages[1:5]] == ["price of the mug", "", "39", "it is 39"]
        assert segment.messages[2].tool_calls == (ask("get_item", "x", item="mug"),)
        assert min(sampled(one.trace, segment.index)) > 5
