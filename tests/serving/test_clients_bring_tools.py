"""A client's tools join the harness's own where the release takes them; calls go to it and results come back, on any replica."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import openai
import pytest
from aiohttp import web

from hat_harness.digest import decimals, digest_json, harness_digest, head, part_digests
from hat_harness.load import load_harness, parse_files
from hat_harness.save import harness_files
from hat_registry.store.database import Database
from hat_serving.gateway.conversations import Conversations
from tests.serving.conftest import World, completion, deploy, replica, shop, stream

SHELF: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "look_at_shelf",
        "description": "what stands on a shelf",
        "parameters": {"type": "object", "properties": {"shelf": {"type": "integer"}}, "required": ["shelf"]},
        "strict": True,
    },
}
LIGHT = {"type": "function", "function": {"name": "light", "parameters": {"type": "object", "properties": {}}}}


async def both(body: dict[str, Any], request: web.Request) -> web.StreamResponse:
    """Asks its own tool and the client's at once, then tells both results in order."""
    told = [message for message in body["messages"] if message["role"] == "tool"]
    last = body["messages"][-1]
    if last["role"] == "user" and "shelf" in last["content"]:
        chunks = completion(call=("get_item", {"item": "mug"}))
        second = {"name": "look_at_shelf", "arguments": json.dumps({"shelf": 3})}
        call = {"index": 1, "id": "c2", "type": "function", "function": second}
        chunks.insert(1, {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]})
        return await stream(request, chunks)
    if last["role"] == "tool":
        return await stream(request, completion(" and ".join(one["content"] for one in told[-2:]) + " bye"))
    offered = sorted(line for line in ("look_at_shelf", "light") if line in body["messages"][0]["content"])
    return await stream(request, completion(f"hello with {' '.join(offered) or 'none'} bye"))


@pytest.fixture
def taking(world: World) -> World:
    world.source.set(deploy(shop().model_copy(update={"client_tools": 2})))
    world.script = both
    return world


def client(world: World) -> openai.OpenAI:
    return openai.OpenAI(base_url=world.url + "/v1", api_key="unused", max_retries=0)


@pytest.mark.parametrize("user", ["", "v1"])
def test_the_official_client_carries_its_calls_out_and_gets_the_reply(taking: World, user: str) -> None:
    """With a viewer's id, and with nothing but the messages."""
    more: dict[str, Any] = {"user": user} if user else {}
    messages: list[Any] = [{"role": "user", "content": "what is on the shelf"}]
    first = client(taking).chat.completions.create(model="shop", messages=messages, tools=[SHELF], **more)  # type: ignore[call-overload]  # plain data
    choice = first.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("look_at_shelf", {"shelf": 3})
    assert [name for name, _, _ in taking.tool_calls] == ["get_item"], "the harness's own tool is the gateway's to call"
    messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "a vase"}]
    second = client(taking).chat.completions.create(model="shop", messages=messages, tools=[SHELF], **more)  # type: ignore[call-overload]  # as above
    assert (second.choices[0].message.content, second.choices[0].finish_reason) == ("42 and a vase bye", "stop")
    assert (first.usage.prompt_tokens, second.usage.prompt_tokens) == (10, 10), "each answer counts its own tokens"
    with taking.client() as raw:
        late = raw.post("/v1/chat/completions", json={"model": "shop", "messages": [*plain(messages)], **more})
    assert (late.status_code, "no call" in late.json()["error"]["message"]) == (400, True)


def plain(messages: list[Any]) -> list[Any]:
    return [one if isinstance(one, dict) else one.model_dump(exclude_none=True) for one in messages]


def test_a_stream_ends_with_the_calls_and_another_replica_goes_on(taking: World) -> None:
    messages: list[Any] = [{"role": "user", "content": "the shelf please"}]
    chunks = list(
        client(taking).chat.completions.create(model="shop", messages=messages, tools=[SHELF], stream=True, user="v")  # type: ignore[call-overload]  # as above
    )
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    (call,) = [one for chunk in chunks for one in chunk.choices[0].delta.tool_calls or ()]
    assert json.loads(call.function.arguments) == {"shelf": 3}
    messages += [
        {"role": "assistant", "tool_calls": [call.model_dump(exclude={"index"})]},
        {"role": "tool", "tool_call_id": call.id, "content": "a vase"},
    ]
    with replica(taking) as other:
        done = client(other).chat.completions.create(model="shop", messages=messages, user="v")
        assert done.choices[0].message.content == "42 and a vase bye"
        again = client(other).chat.completions.create(
            model="shop", messages=[{"role": "user", "content": "hi"}], user="v"
        )
        assert again.choices[0].message.content == "hello with look_at_shelf bye", "the conversation keeps the tools"
    assert sum(name == "get_item" for name, _, _ in taking.tool_calls + other.tool_calls) == 1
    database = Database(f"sqlite:///{taking.folder}/gateway.db")
    store = Conversations(database)
    assert store.expire("9999") == 1
    with database.read() as tx:
        assert tx.exec_driver_sql("SELECT count(*) FROM conversation_tools").scalar() == 0
    database.close()


def test_a_viewer_who_goes_on_instead_is_answered_and_tools_may_change_between_turns(taking: World) -> None:
    def say(text: str, **more: Any) -> Any:
        return taking.say(text, "talk", **more).json()

    assert say("shelf", tools=[SHELF])["choices"][0]["finish_reason"] == "tool_calls"
    assert say("hi", tools=[SHELF, LIGHT])["choices"][0]["message"]["content"] == "hello with light look_at_shelf bye"
    assert taking.host is not None
    taking.host._kept.clear()
    assert say("hi")["choices"][0]["message"]["content"] == "hello with light look_at_shelf bye"
    assert taking.admin("GET", "/deployments/shop").json()["moves"] == {}
    taking.source.set(deploy(shop("farewell").model_copy(update={"client_tools": 2}), urgent=True))
    assert say("shelf")["choices"][0]["finish_reason"] == "tool_calls"
    assert taking.admin("GET", "/deployments/shop").json()["moves"] == {"urgent": 1}, "counted when it happens"
    taking.source.set(deploy(shop(), urgent=True))
    assert say("hi")["choices"][0]["message"]["content"] == "hello with none bye", "the new release takes none"
    assert say("hi", tools=[SHELF])["error"]["param"] == "tools"


def test_what_cannot_be_brought_is_refused_by_name(taking: World) -> None:
    def refused(**more: Any) -> tuple[int, str]:
        answer = taking.say("hi", **more)
        return answer.status_code, str(answer.json()["error"]["param"])

    own = {"type": "function", "function": {"name": "get_item"}}
    odd = {"type": "function", "function": {"name": "x", "parameters": {"type": "nothing"}}}
    for tools in ([own], [odd], [SHELF, LIGHT, {**LIGHT, "function": {"name": "third"}}], []):
        assert refused(tools=tools) == (400, "tools"), tools
    assert refused(tools=[{"type": "retrieval"}]) == (400, "tools[0]")
    assert refused(tools=[{"type": "function", "function": {"name": "a b"}}]) == (400, "tools[0].function.name")
    assert refused(tools=[SHELF], tool_choice="required") == (400, "tool_choice")
    stray = [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "call_1", "content": "y"}]
    assert refused(messages=stray) == (400, "messages")
    assert refused(messages=[stray[0], {"role": "assistant", "content": "z"}, stray[1]]) == (
        400,
        "messages[2].tool_call_id",
    )


@pytest.mark.parametrize("streamed", [False, True])
def test_responses_carry_calls_too(taking: World, streamed: bool) -> None:
    flat: Any = {"type": "function", **SHELF["function"]}
    asked: dict[str, Any] = {"model": "shop", "input": "the shelf", "tools": [flat], "user": "v"}
    made = client(taking).responses
    if streamed:
        with made.stream(**asked) as events:
            first = events.get_final_response()
    else:
        first = made.create(**asked)
    (call,) = [item for item in first.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("look_at_shelf", {"shelf": 3})
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "a vase"}
    wrong = {**result, "call_id": "call_1"}
    with pytest.raises(openai.BadRequestError, match="no call of this conversation"):
        made.create(model="shop", input=[wrong], user="v")
    done = made.create(model="shop", input=[result], previous_response_id=first.id, user="v")
    assert done.output_text == "42 and a vase bye"


def test_results_must_be_complete_and_of_this_conversation(taking: World) -> None:
    first = taking.say("shelf", "talk", tools=[SHELF]).json()["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "a vase"}
    history = [{"role": "user", "content": "shelf"}, first, result]
    assert taking.say("", "other", messages=history).json()["error"]["param"] == "messages[2].tool_call_id"
    doubled = [*history, {**result, "tool_call_id": result["tool_call_id"] + "x"}]
    assert taking.say("", "talk", messages=doubled).json()["error"]["param"] == "messages"
    assert taking.say("", "talk", messages=history, tools=[LIGHT]).json()["error"]["param"] == "tools"
    assert taking.say("", "talk", messages=history).json()["choices"][0]["message"]["content"] == "42 and a vase bye"


def test_digests_from_before_the_setting_stand() -> None:
    folder = Path(__file__).resolve().parents[2] / "harness-registry" / "harnesses" / "react-baseline"
    one = load_harness(folder)
    two = one.model_copy(update={"client_tools": 2})
    assert b"client_tools" not in harness_files(one)["harness.yaml"]
    assert part_digests(one)["harness.yaml"] == digest_json(
        decimals({k: v for k, v in head(two).items() if k != "client_tools"})
    )
    assert parse_files(harness_files(two)) == two
    assert harness_digest(one) != harness_digest(two)
