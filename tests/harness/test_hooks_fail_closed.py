"""Hooks are type-checked when a harness loads; at run time only an explicit true or false counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hat_harness import events as ev
from hat_harness.errors import HookError
from hat_harness.hooks import ACTIONS, CONTEXT, EVENTS, compile_hook, compile_hooks, explain, message_of
from hat_harness.numbers import numbers
from hat_harness.session import Session
from hat_harness.spec import Hook
from hat_harness.tape import explain_trace
from hat_harness.trace import HookVerdict, turns
from tests.harness.kit import GATE, ask, output, session, small


def hook(event: str, when: str, action: str = "annotate", **more: object) -> Hook:
    return Hook(id="h", event=event, when=when, action=action, **{"message": "said", **more})


@pytest.mark.parametrize(
    ("event", "when", "reason"),
    [
        ("stop", "nope == ''", "undeclared reference to 'nope'"),
        ("stop", "reply + 1 == ''", "no matching overload"),
        ("stop", "reply", "STRING, not a boolean"),
        ("stop", "room.list", "DYN, not a boolean"),
        ("stop", "reply ==", "Syntax error"),
        ("stop", "", "Syntax error"),
        ("before_tool", "reply == ''", "undeclared reference to 'reply'"),
        ("session_start", "turn == 1", "undeclared reference to 'turn'"),
        ("stop", "tool.id == 'x'", "undeclared reference to 'tool.id'"),
        ("stop", "true && " * 1000 + "true", "longer than 4096"),
    ],
)
def test_an_expression_that_does_not_type_check_does_not_load(event: str, when: str, reason: str) -> None:
    with pytest.raises(HookError, match="hook h") as caught:
        compile_hook(hook(event, when))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("event", "when", "cure"),
    [
        ("stop", "!replly.endsWith('x')", "did you mean reply?"),
        ("stop", "zzzz == 1", "fields are event, language"),
        ("stop", "tools.exists(t, t.faild == true)", "did you mean failed?"),
        ("before_tool", "tool.result == 'x'", "its fields are id, name, arguments, read_only"),
        ("after_tool", "tool . resutl == 'x'", "did you mean result?"),
    ],
)
def test_an_unknown_field_is_a_load_error_with_a_suggestion(event: Any, when: str, cure: str) -> None:
    with pytest.raises(HookError) as caught:
        compile_hook(Hook(id="h", event=event, when=when, action="annotate"))
    assert cure in caught.value.cure


@pytest.mark.parametrize(
    ("event", "when"),
    [
        ("stop", "tools.all(c, c.failed == true) && skills.exists(c, c.size() > 1)"),
        ("stop", "tools.size() > 0 && reply == \"tool.zz\" || reply == 't.q'"),
        ("after_tool", "tool.arguments.anything == 'x' && tool.size() > 1 && has(tool.result)"),
        ("before_tool", "room.anything == 1 && args.own == tool.name"),
    ],
)
def test_what_is_no_field_of_a_call_is_left_to_the_engine(event: Any, when: str) -> None:
    assert compile_hook(Hook(id="h", event=event, when=when, action="annotate"))


@pytest.mark.parametrize("event", EVENTS)
def test_only_actions_that_an_event_knows_load(event: str) -> None:
    for action in ("block", "require", "refuse", "silence", "replace", "annotate"):
        if action in ACTIONS[event]:
            compile_hook(hook(event, "true", action))
        else:
            with pytest.raises(HookError, match=f"{action} cannot follow {event}"):
                compile_hook(hook(event, "true", action))


@pytest.mark.parametrize(
    "when",
    [
        "1 / 0 == 1",
        "room.missing == 'x'",
        "args.missing == ''",
        "viewer[7] == ''",
        "reply.matches('[a-z')",
        "room.n < 'a'",
    ],
)
def test_an_error_at_run_time_fires(when: str) -> None:
    found = explain(hook("stop", when), {"room": {"n": 1}})
    assert found.fires
    assert found.error
    one = Session(small(hooks=(hook("stop", when, "refuse"),)), session_id="s", room={"n": 1})
    call = one.handle(ev.ViewerMessage(("x",)))[0]
    assert one.handle(output(call, "fine")) == [ev.Refuse("said", "h"), ev.Done()]  # type: ignore[arg-type]
    (verdict,) = turns(one.trace)[0].hooks
    assert verdict.fired
    assert verdict.error.split(":")[0] == found.error.split(":")[0]


def test_false_is_false() -> None:
    assert not explain(hook("stop", "false"), {}).fires
    assert explain(hook("stop", "true"), {}) == explain(hook("stop", "true"), {})
    assert explain(hook("stop", "true"), {}).error == ""


def test_explain_shows_the_fields_that_were_read() -> None:
    found = explain(GATE, {"reply": "it is 39", "turn": 3})
    assert found.fires
    assert found.fields == {"args": {"gate": "bye"}, "reply": "it is 39"}


def test_every_context_field_compiles_at_its_events_and_nowhere_else() -> None:
    samples = {"string": "{} == ''", "int": "{} == 0", "list": "{}.size() == 0", "map": "{}.size() == 0"}
    for name, field in CONTEXT.items():
        when = samples[field.type.split("(")[0]].format(name)
        for event in EVENTS:
            if event in field.events:
                expected = name not in ("event", "args")
                assert explain(hook(event, when), {}).fires is expected or name == "args"
            else:
                with pytest.raises(HookError):
                    compile_hook(hook(event, when))


def _run(*hooks: Hook, outputs: list[object]) -> tuple[Session, list[ev.Action]]:
    """Feeds outputs (content, or tool calls) and tool results until they are used up; returns the last actions."""
    one = session(small(hooks=hooks))
    actions = one.handle(ev.ViewerMessage(("how much is 7",)))
    for item in outputs:
        call = next(a for a in actions if isinstance(a, ev.CallModel))
        actions = one.handle(output(call, item) if isinstance(item, str) else output(call, "", *item))  # type: ignore[misc]
        for request in [r for a in actions if isinstance(a, ev.CallTools) for r in a.calls]:
            actions = one.handle(ev.ToolResult(request.call_id, "mug : price 39"))
    return one, actions


LOOK = [ask("get_item", "a", item="mug")]


def test_before_tool_hooks_answer_for_the_tool() -> None:
    for action, text in (("block", "said"), ("require", "said"), ("replace", "said")):
        one, _ = _run(hook("before_tool", "tool.arguments.item == 'mug'", action), outputs=[LOOK])
        assert one.context[-1].content == text
        assert turns(one.trace)[0].calls[0].failure == ("" if action == "replace" else "blocked")


def test_after_tool_hooks_change_what_the_model_reads_not_what_happened() -> None:
    for action, text in (("block", "said"), ("require", "mug : price 39\nsaid"), ("replace", "said")):
        one, _ = _run(hook("after_tool", "tool.result.contains('39')", action), outputs=[LOOK])
        assert one.context[-1].content == text
        assert turns(one.trace)[0].calls[0].result == "mug : price 39"


@pytest.mark.parametrize(
    ("event", "when"), [("before_model", "tools.size() > 0"), ("after_tool", "true"), ("before_tool", "true")]
)
def test_terminal_actions_end_the_turn_at_any_event(event: str, when: str) -> None:
    for action, expected in (("refuse", ev.Refuse("said", "h")), ("silence", ev.Silence("said"))):
        _, actions = _run(hook(event, when, action), outputs=[LOOK])
        assert actions[-2:] == [expected, ev.Done()]


def test_after_model_hooks_see_what_is_asked_for_and_answer_every_call() -> None:
    gate = hook("after_model", "calls.exists(c, c == 'order') && skills.size() == 0", "block")
    one, actions = _run(gate, outputs=[[ask("order", "a", item="mug"), ask("get_item", "b", item="mug")]])
    assert [(m.role, m.content, m.tool_call_id) for m in one.context[-2:]] == [
        ("tool", "said", "a"),
        ("tool", "said", "b"),
    ]
    assert isinstance(actions[0], ev.CallModel)


def test_messages_of_all_gates_that_fire_come_in_one_round() -> None:
    other = Hook(
        id="n", event="stop", when="!numbers.all(n, n in known_numbers)", action="block", message="only known numbers"
    )
    one, actions = _run(GATE, other, outputs=[LOOK, "it is 41"])
    assert one.context[-1] == ev.Message("user", "end with bye\nonly known numbers", name="gate")
    one.handle(output(actions[-1], "it is 39.00 for 7 bye"))  # type: ignore[arg-type]
    turn = turns(one.trace)[0]
    assert (turn.reply, turn.rounds, turn.outcome) == ("it is 39.00 for 7 bye", 1, "reply")
    assert turn.hooks[0] == HookVerdict("gate", "stop", "require", True, "", "end with bye")


def test_a_replacement_may_carry_the_reply() -> None:
    add = hook("stop", "!reply.endsWith(args.gate)", "replace", message="{reply} {gate}", arguments={"gate": "bye"})
    one, actions = _run(add, outputs=["it is 39"])
    assert actions == [ev.Reply("it is 39 bye"), ev.Done()]
    assert one.context[-1] == ev.Message("assistant", "it is 39 bye")


def test_order_decides_between_terminal_hooks() -> None:
    first = hook("stop", "true", "refuse", order=2)
    second = Hook(id="second", event="stop", when="true", action="silence", message="quiet", order=1)
    _, actions = _run(first, second, outputs=["fine"])
    assert actions == [ev.Silence("quiet"), ev.Done()]


def test_a_session_that_a_start_hook_closed_never_calls_the_model() -> None:
    one = Session(
        small(hooks=(hook("session_start", "room.closed == 'yes'", "refuse"),)), session_id="s", room={"closed": "yes"}
    )
    for _ in range(2):
        assert one.handle(ev.ViewerMessage(("hello",))) == [ev.Refuse("said", "h"), ev.Done()]


def test_compiling_is_shared_and_hooks_without_events_cost_nothing() -> None:
    assert compile_hooks(small()).by_event == {}
    compiled = compile_hooks(small(hooks=(GATE,)))
    assert compiled.holds_reply
    assert not compile_hooks(small(hooks=(hook("stop", "true"), hook("before_tool", "true", "block")))).holds_reply
    assert compile_hook(GATE).expression is compile_hook(GATE.model_copy(update={"id": "other"})).expression


def test_unknown_braces_in_a_message_stay_as_written() -> None:
    assert message_of(hook("stop", "true", message='{"a": {x}} {y}', arguments={"y": "z"})) == '{"a": {x}} z'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("it is 39.00 yuan, 39 !", ["39"]),
        ("1,299 or 1299", ["1299"]),
        ("３９元", ["39"]),
        ("v2.50", ["2.5"]),
        ("1,29", ["1", "29"]),
        ("007", ["7"]),
        ("0.0", ["0"]),
        ("none", []),
    ],
)
def test_numbers_have_one_form(text: str, found: list[str]) -> None:
    assert numbers(text) == found


@given(st.integers(0, 10**9), st.integers(0, 3))
def test_a_number_is_found_however_it_is_written(value: int, zeros: int) -> None:
    plain = str(value)
    forms = [plain, f"{value:,}", f"{value}." + "0" * zeros if zeros else plain, f"x{value}y"]
    assert all(numbers(form) == [plain] for form in forms)


@pytest.mark.parametrize("value", [10**30, "\ud800", object(), float("nan"), {1: 2}])
def test_values_that_the_engine_does_not_take_fire_the_hook(value: object) -> None:
    found = compile_hook(hook("before_tool", "tool.id == 'nothing'", "block"))
    assert found.verdict({"tool": {"id": "x", "value": value}})[0] is (not isinstance(value, float | dict))


def test_arguments_beyond_the_engines_numbers_fire_the_hook_and_nothing_raises() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tools = (small().tools[0].model_copy(update={"parameters": schema}),)
    one = session(small(tools=tools, hooks=(hook("before_tool", "tool.arguments.n == 1", "refuse"),)))
    call = one.handle(ev.ViewerMessage(("x",)))[0]
    assert one.handle(output(call, "", ask("get_item", n=10**30)))[0] == ev.Refuse("said", "h")  # type: ignore[arg-type]


def test_a_recorded_session_tells_why_every_hook_fired_or_not() -> None:
    other = Hook(id="n", event="stop", when="!numbers.all(n, n in known_numbers)", action="annotate")
    one, actions = _run(GATE, other, outputs=[LOOK, "it is 41"])
    one.handle(output(actions[-1], "it is 39 bye"))  # type: ignore[arg-type]
    told = explain_trace(one.trace, session(small(hooks=(GATE, other))))
    assert [(t.turn, t.explanation.hook, t.explanation.fires) for t in told] == [
        (1, "gate", True),
        (1, "n", True),
        (1, "gate", False),
        (1, "n", False),
    ]
    assert told[0].explanation.fields == {"reply": "it is 41", "args": {"gate": "bye"}}
    assert told[1].explanation.fields == {"numbers": ["41"], "known_numbers": ["7", "39"]}
