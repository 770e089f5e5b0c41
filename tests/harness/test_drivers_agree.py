"""The batch, the async and the tape driver give the same trace, and a recorded trace replays byte for byte."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from hat_harness.drive import run_async, run_batch, run_tape
from hat_harness.errors import ModelError, ReplayError
from hat_harness.events import CallModel, Event, Failure, ModelDelta, ModelOutput, RoomEvent, ToolResult, ViewerMessage
from hat_harness.session import Session
from hat_harness.spec import Harness, Limits, Recovery, Retry
from hat_harness.tape import compare, dump, parse, replay
from hat_harness.trace import Entry, Trace, sampled, turns
from tests.harness.kit import GATE, AsyncScripted, Scripted, Shop, Step, VirtualClock, ask, output, small

EVENTS: tuple[Event, ...] = (
    ViewerMessage(("how much is the mug",), ("v1",)),
    RoomEvent("state", {}, {"list": ["mug", "lamp"], "sale": "ten"}),
    RoomEvent("viewer_entered", {"name": "mia"}),
    ViewerMessage(("two", "comments")),
)


def _sampled(call: CallModel, content: str, *calls: object) -> ModelOutput:
    length = len(content) + 3
    return ModelOutput(
        call.call_id,
        content,
        "think",
        tuple(calls),  # type: ignore[arg-type]
        token_ids=tuple(range(length)),
        logprobs=tuple(-0.25 * i for i in range(length)),
        prompt_tokens=100,
        completion_tokens=length,
    )


STEPS: tuple[Step, ...] = (
    lambda call: _sampled(call, "", ask("use_skill", skill="item_qa")),
    lambda call: Failure("call", "server", call.call_id),
    lambda call: _sampled(
        call, "", ask("get_item", "a", item="mug"), ask("order", "b", item="mug"), ask("get_item", "c")
    ),
    lambda call: _sampled(call, "it is 39"),
    lambda call: _sampled(call, "it is 39 bye"),
    lambda call: Failure("trajectory", "malformed", detail="lost"),
    lambda call: _sampled(call, "welcome bye"),
)


def _harness() -> Harness:
    return small(hooks=(GATE,), recovery=Recovery(retry=Retry(attempts=1, backoff_s=0.5)), limits=Limits(restarts=1))


def _batch(steps: Sequence[Step] = STEPS) -> tuple[Trace, Shop]:
    session, shop = Session(_harness(), session_id="s", room={"list": ["mug"]}), Shop()
    run_batch([(session, EVENTS)], Scripted(*steps), shop)
    return session.trace, shop


def test_the_three_drivers_give_the_same_trace() -> None:
    recorded, shop = _batch()
    session, other = Session(_harness(), session_id="s", room={"list": ["mug"]}), Shop()
    asyncio.run(run_async(session, EVENTS, AsyncScripted(*STEPS), other, VirtualClock()))
    compare(recorded, session.trace)
    assert dump(recorded) == dump(session.trace)
    assert [r.arguments for r in shop.requests] == [r.arguments for r in other.requests]
    replayed = run_tape(Session(_harness(), session_id="s", room={"list": ["mug"]}), recorded)
    assert dump(replayed) == dump(recorded)
    outcomes = [turn.outcome for turn in turns(recorded)]
    assert outcomes == ["reply", "reply", "reply"]
    assert turns(recorded)[1].restarts == 1


def test_every_sampled_token_is_in_the_trace_of_the_segment_it_belongs_to() -> None:
    trace, _ = _batch()
    found = [output for segment in trace.segments for output in sampled(trace, segment.index).values()]
    given = [e for e in trace.entries if e.kind == "event" and e.type == "ModelOutput"]
    assert len(found) == len(given) == 6
    for segment in trace.segments:
        for index, one in sampled(trace, segment.index).items():
            message = segment.messages[index]
            assert (message.role, message.content, message.reasoning) == ("assistant", one.content, one.reasoning)
            assert len(one.token_ids) == len(one.logprobs) == len(one.content) + 3


def test_a_batch_samples_all_pending_calls_of_a_round_together() -> None:
    rounds: list[int] = []

    class Counting(Scripted):
        def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
            rounds.append(len(calls))
            return super().generate(calls)

    steps: list[Step] = [
        lambda call: output(call, "", ask("get_item", item="mug")),
        lambda call: output(call, "fine bye"),
    ]
    sessions = [Session(small(), session_id=f"s{i}") for i in range(5)]
    shops: dict[str, Shop] = {}

    def backend(session_id: str) -> Shop:
        return shops.setdefault(session_id, Shop())

    run_batch(
        [(s, [ViewerMessage(("a",))] * (1 + (s.session_id == "s3"))) for s in sessions], Counting(*steps), backend
    )
    assert rounds == [5, 5, 1]
    assert all(len(shops[s.session_id].requests) == 1 for s in sessions)
    assert all(turn.reply == "fine bye" for s in sessions for turn in turns(s.trace))


def test_a_model_that_answers_another_number_of_calls_is_an_error() -> None:
    class Lazy(Scripted):
        def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
            return []

    with pytest.raises(ModelError, match="1 calls, 0 outputs"):
        run_batch([(Session(small(), session_id="s"), EVENTS[:1])], Lazy(STEPS[0]), Shop())


def test_what_a_backend_raises_is_data_for_the_model() -> None:
    def broken(request: object) -> ToolResult:
        raise RuntimeError("boom")

    steps: list[Step] = [lambda c: output(c, "", ask("order", item="mug")), lambda c: output(c, "sorry bye")]
    session = Session(small(), session_id="s")
    run_batch([(session, EVENTS[:1])], Scripted(*steps), Shop(broken))
    (turn,) = turns(session.trace)
    assert (turn.calls[0].failure, turn.calls[0].result, turn.reply) == ("server", "error : server", "sorry bye")


def test_the_async_driver_streams_and_times_tools_out() -> None:
    class Streaming:
        async def stream(self, session_id: str, call: CallModel):  # type: ignore[no-untyped-def]
            for piece in ("he", "llo"):
                yield ModelDelta(call.call_id, piece)
            yield output(call, "hello")

    class Slow:
        async def call(self, session_id: str, request: object) -> ToolResult:
            await asyncio.sleep(60)
            raise AssertionError

    shown: list[object] = []
    session = Session(small(), session_id="s")
    asyncio.run(run_async(session, EVENTS[:1], Streaming(), Shop(), on_action=shown.append))  # type: ignore[arg-type]
    assert turns(session.trace)[0].emitted == "hello" == turns(session.trace)[0].reply
    assert type(shown[-1]).__name__ == "Done"

    tools = tuple(tool.model_copy(update={"timeout_s": 0.01}) for tool in small().tools)
    steps: list[Step] = [lambda c: output(c, "", ask("order", item="mug")), lambda c: output(c, "late bye")]
    session = Session(small(tools=tools), session_id="s")
    asyncio.run(run_async(session, EVENTS[:1], AsyncScripted(*steps), Slow()))
    assert turns(session.trace)[0].calls[0].failure == "timeout"


def test_the_deadline_holds_after_a_retry_that_never_answers() -> None:
    class HangsLater(AsyncScripted):
        async def generate(self, session_id: str, call: CallModel) -> ModelOutput | Failure:
            if call.call_id != "m1":
                await asyncio.Event().wait()
            return Failure("call", "server", call.call_id)

    session = Session(_harness(), session_id="s")
    clock = VirtualClock()
    asyncio.run(run_async(session, EVENTS[:1], HangsLater(), Shop(), clock))
    (turn,) = turns(session.trace)
    assert (turn.outcome, turn.reason, turn.model_calls, clock.time) == ("safe", "deadline", 2, 15.0)


def test_the_safe_reply_does_not_wait_for_a_call_that_cleans_up() -> None:
    shown: list[str] = []
    left: list[str] = []

    class Slow:
        async def generate(self, session_id: str, call: CallModel) -> ModelOutput:
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(1000):
                    await asyncio.sleep(0)
                left.extend(shown)
            raise AssertionError

    session = Session(small(), session_id="s")
    told = lambda action: shown.append(type(action).__name__)  # noqa: E731 - one line
    asyncio.run(run_async(session, EVENTS[:1], Slow(), Shop(), VirtualClock(), on_action=told))
    assert left[-2:] == ["Reply", "Done"]
    assert turns(session.trace)[0].reason == "deadline"


def test_a_call_that_outlives_its_deadline_is_late_and_the_next_turn_is_sound() -> None:
    class Stubborn(AsyncScripted):
        async def generate(self, session_id: str, call: CallModel) -> ModelOutput | Failure:
            if call.call_id == "m1":
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    return output(call, "much too late")
            return await super().generate(session_id, call)

    session = Session(small(), session_id="s")
    events = (ViewerMessage(("one",)), ViewerMessage(("two",)))
    asyncio.run(run_async(session, events, Stubborn(lambda c: output(c, "fine bye")), Shop(), VirtualClock()))
    first, second = turns(session.trace)
    assert (first.outcome, first.reason, second.reply) == ("safe", "deadline", "fine bye")
    assert b"much too late" not in dump(session.trace)


def test_a_call_that_cancels_itself_is_a_failure_and_nobody_else_is_cancelled() -> None:
    class Broken(AsyncScripted):
        async def generate(self, session_id: str, call: CallModel) -> ModelOutput | Failure:
            if call.call_id == "m1":
                raise asyncio.CancelledError
            return await super().generate(session_id, call)

    class Tools:
        async def call(self, session_id: str, request: Any) -> ToolResult:
            raise asyncio.CancelledError

    names = ("a", "b")
    steps: list[Step] = [
        lambda c: output(c, "", ask("get_item", "x", item="mug")),
        lambda c: output(c, "", *(ask("get_item", name, item=name) for name in names)),
        lambda c: output(c, "sorry bye"),
    ]
    session = Session(_harness(), session_id="s")
    asyncio.run(run_async(session, EVENTS[:1], Broken(*steps), Tools(), VirtualClock()))
    (turn,) = turns(session.trace)
    assert (turn.outcome, turn.restarts) == ("reply", 1)
    assert [call.failure for call in turn.calls] == ["cancelled"] * 3


def test_a_driver_that_is_cancelled_at_the_deadline_stays_cancelled() -> None:
    async def main() -> Session:
        session = Session(small(), session_id="s")
        waiting = asyncio.Event()

        class Hanging:
            async def generate(self, session_id: str, call: CallModel) -> ModelOutput:
                waiting.set()
                await asyncio.Event().wait()
                raise AssertionError

        class Now(VirtualClock):
            async def sleep_until(self, when: float) -> None:
                await waiting.wait()
                self.time = when
                task.cancel()  # both in one round of the loop

        task = asyncio.ensure_future(run_async(session, EVENTS[:1], Hanging(), Shop(), Now()))
        with pytest.raises(asyncio.CancelledError):
            await task
        return session

    session = asyncio.run(main())
    assert session.state == "idle"
    assert len(turns(session.trace)) == 1


def test_calls_go_out_while_who_is_told_still_waits() -> None:
    started = asyncio.Event()

    class Model:
        async def generate(self, session_id: str, call: CallModel) -> ModelOutput:
            started.set()
            return output(call, "fine bye")

    async def told(action: object) -> None:
        if isinstance(action, CallModel):
            await started.wait()

    session = Session(small(), session_id="s")
    asyncio.run(asyncio.wait_for(run_async(session, EVENTS[:1], Model(), Shop(), on_action=told), 60))
    assert turns(session.trace)[0].reply == "fine bye"


def test_parallel_results_come_in_any_order_under_the_async_driver() -> None:
    gates = {"a": asyncio.Event(), "b": asyncio.Event(), "c": asyncio.Event()}
    order: list[str] = []

    class Tools:
        async def call(self, session_id: str, request: Any) -> ToolResult:
            item = str(request.arguments["item"])
            if item == "c":
                gates["b"].set()
            else:
                await gates[item].wait()
                gates["a"].set()
            order.append(item)
            return ToolResult(request.call_id, f"{item} : price 39")

    steps: list[Step] = [
        lambda c: output(c, "", *(ask("get_item", name, item=name) for name in "abc")),
        lambda c: output(c, "fine bye"),
    ]
    session = Session(small(), session_id="s")
    asyncio.run(run_async(session, EVENTS[:1], AsyncScripted(*steps), Tools()))
    assert order == ["c", "b", "a"]
    assert [call.result[0] for call in turns(session.trace)[0].calls] == ["a", "b", "c"]
    assert dump(replay(session.trace, Session(small(), session_id="s"))) == dump(session.trace)


def test_cancelling_the_async_driver_ends_the_turn_in_silence() -> None:
    class Hanging:
        async def generate(self, session_id: str, call: CallModel) -> ModelOutput:
            await asyncio.Event().wait()
            raise AssertionError

    async def main() -> Session:
        session = Session(small(), session_id="s")
        task = asyncio.ensure_future(run_async(session, EVENTS[:1], Hanging(), Shop()))
        while session.state != "model":
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return session

    session = asyncio.run(main())
    assert session.state == "idle"
    assert turns(session.trace)[0].outcome == "silence"


def test_a_trace_reads_back_from_its_bytes() -> None:
    trace, _ = _batch()
    assert parse(dump(trace)) == trace
    assert Trace.model_validate_json(trace.model_dump_json()) == trace
    lines = dump(trace).split(b"\n")
    with pytest.raises(ReplayError, match="line 3"):
        parse(b"\n".join([*lines[:2], b"{nonsense", *lines[3:]]))


def test_replay_tells_the_first_entry_that_differs() -> None:
    trace, _ = _batch()
    index = next(
        i for i, e in enumerate(trace.entries) if e.type == "ModelOutput" and e.data.get("content") == "it is 39"
    )
    changed = Entry(
        **{**trace.entries[index].model_dump(), "data": {**trace.entries[index].data, "content": "it is 40 bye"}}
    )
    other = trace.model_copy(update={"entries": (*trace.entries[:index], changed, *trace.entries[index + 1 :])})
    with pytest.raises(ReplayError) as caught:
        replay(other, Session(_harness(), session_id="s", room={"list": ["mug"]}))
    assert caught.value.place == f"entry {index + 1}"
    with pytest.raises(ReplayError, match="head"):
        replay(trace, Session(_harness(), session_id="s", room={"list": ["lamp"]}))
