"""A viewer gets a valid reply or a clear error, whatever engine, tools, clients and operators do; the record says what was."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import threading
from typing import Any

import httpx
import openai
import pytest
from aiohttp import web

from hat_serving.gateway.erase import erase_viewer
from tests.serving.conftest import KEY, World, by_the_book, completion, deploy, shop, stream


def text(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    content: str = answer.json()["choices"][0]["message"]["content"]
    return content


def test_a_turn_calls_the_tool_and_tells_its_result(world: World) -> None:
    answer = world.say("what is the price")
    assert text(answer) == "it costs 42 bye"
    assert answer.json()["usage"] == {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}
    assert [(name, arguments) for name, arguments, _ in world.tool_calls] == [("get_item", {"item": "mug"})]


def test_the_openai_client_works_unchanged_streamed_and_not(world: World) -> None:
    client = openai.OpenAI(base_url=world.url + "/v1", api_key="unused", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    whole = client.chat.completions.create(model="shop", messages=messages, user="v1")
    assert whole.choices[0].message.content == "hello number 1 bye"
    pieces = client.chat.completions.create(model="shop", messages=messages, user="v2", stream=True)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == "hello number 1 bye"
    response = client.responses.create(model="shop", input="hi", user="v3")
    assert response.output_text == "hello number 1 bye"
    following = client.responses.create(model="shop", input="and", previous_response_id=response.id, user="v3")
    assert following.output_text == "hello number 2 bye"


def test_a_client_that_sends_its_history_is_understood(world: World) -> None:
    turns = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "more"},
    ]
    with world.client() as client:
        answer = client.post("/v1/chat/completions", json={"model": "shop", "messages": turns})
    assert text(answer) == "hello number 2 bye"


def test_a_conversation_goes_on_and_its_viewer_is_a_pseudonym(world: World) -> None:
    assert text(world.say("hi", "talk")) == "hello number 1 bye"
    assert text(world.say("again", "talk")) == "hello number 2 bye"
    assert text(world.say("hi", "other")) == "hello number 1 bye"
    stored = (world.folder / "gateway.db").read_bytes()
    assert b"talk" not in stored


def test_rooms_answer_comments_events_and_silence(world: World) -> None:
    with world.client() as client:
        url = "/v1/rooms/shop/messages"
        said = client.post(url, json={"viewer": "anna", "text": "hi"})
        assert said.json()["text"] == "hello number 1 bye"
        entered = client.post(url, json={"viewer": "anna", "event": "viewer_entered", "data": {"viewer": "anna"}})
        assert entered.status_code == 200
        world.muted = frozenset({"shop"})
        assert client.post(url, json={"viewer": "anna", "text": "hi"}).status_code == 204
        world.muted = frozenset()
        assert client.post(url, json={"viewer": "anna", "text": "hi"}).status_code == 200


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"model": "shop"}, "messages"),
        ({"model": "shop", "messages": []}, "messages"),
        ({"model": "nobody", "messages": [{"role": "user", "content": "x"}]}, "model"),
        ({"model": "shop", "messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
        ({"model": "shop", "messages": [{"role": "user", "content": "x"}], "tools": []}, "tools"),
        ({"model": "shop", "messages": [{"role": "user", "content": "x"}], "temperature": 1}, "temperature"),
        ({"model": "shop", "messages": [{"role": "user", "content": " "}]}, "messages[0].content"),
        ({"model": "shop", "messages": [{"role": "user", "content": "x" * 9000}]}, "messages[0].content"),
        ({"model": "shop", "messages": [{"role": "user", "content": "x"}], "n": 2}, "n"),
        ([], "body"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(world: World, body: Any, place: str) -> None:
    with world.client() as client:
        answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == place


def test_malformed_json_and_a_huge_body_are_refused(world: World) -> None:
    with world.client() as client:
        assert client.post("/v1/chat/completions", content=b"{").status_code == 400
        huge = client.post("/v1/chat/completions", content=b"x" * (10 * 1024 * 1024))
    assert huge.status_code == 400
    assert "more than" in huge.json()["error"]["message"]


async def early_eof(_body: dict[str, Any], request: web.Request) -> web.StreamResponse:
    return await stream(request, completion("hello bye")[:2], done=False)


async def garbage(_body: dict[str, Any], request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    await answer.write(b"data: {not json}\n\n\xff\xfe")
    return answer


async def angry(_body: dict[str, Any], _request: web.Request) -> web.StreamResponse:
    return web.Response(status=500, text="boom")


async def cut(_body: dict[str, Any], request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    await answer.write(b'data: {"choices":[{"delta":{"content":"hel"}}]}\n\n')
    assert request.transport is not None
    request.transport.abort()
    return answer


@pytest.mark.parametrize("script", [early_eof, garbage, angry, cut])
def test_a_broken_engine_gives_the_safe_reply_and_heals(world: World, script: Any) -> None:
    world.script = script
    assert text(world.say("hi")) == "one moment"
    world.script = by_the_book
    assert text(world.say("hi")).startswith("hello number")


def test_a_broken_or_hanging_tool_is_told_to_the_model_not_to_the_viewer(world: World) -> None:
    world.tool_status = 500
    assert text(world.say("price", "a")).endswith("bye")
    world.tool_status = 200
    world.source.set(deploy(shop(tool_s=0.3)))
    world.tool_gate = asyncio.Event()
    assert text(world.say("price", "b")).endswith("bye")


def test_a_call_with_effects_has_a_key_and_is_made_once(world: World) -> None:
    world.say("buy it")
    assert [(name, bool(key)) for name, _, key in world.tool_calls] == [("buy", True)]


def test_a_restarted_replica_goes_on_with_the_conversation(world: World) -> None:
    assert world.host is not None
    world.say("hi", "talk")
    world.say("price", "talk")
    world.host._kept.clear()
    assert text(world.say("more", "talk")) == "hello number 3 bye"


def test_promotion_waits_for_the_next_conversation_and_urgent_does_not(world: World) -> None:
    assert text(world.say("hi", "old")) == "hello number 1 bye"
    world.source.set(deploy(shop("farewell")))
    assert text(world.say("hi", "old")) == "hello number 2 bye"
    assert text(world.say("hi", "new")) == "hello number 1 farewell"
    world.source.set(deploy(shop("farewell"), urgent=True))
    assert text(world.say("hi", "old")) == "hello number 3 farewell"


def test_abort_moves_everyone_on_the_bad_arm_at_the_next_message(world: World) -> None:
    world.source.set(deploy(shop("bye"), shop("canary bye", "shop"), weights=(0, 100)))
    assert text(world.say("hi", "talk")) == "hello number 1 canary bye"
    world.source.set(deploy(shop("bye"), shop("canary bye", "shop"), weights=(0, 100), aborted=frozenset({"canary"})))
    moved = world.say("hi", "talk")
    assert text(moved) == "hello number 2 bye"
    assert moved.headers["x-hatstack-arm"] == "stable"
    assert 'hatstack_gateway_arm_fallbacks_total{arm="stable"' in httpx.get(world.url + "/metrics").text


def test_a_full_gateway_says_so_at_once(world: World) -> None:
    full, gate = threading.Event(), threading.Event()
    open_ones = iter(range(1, 9))

    async def waits(body: dict[str, Any], request: web.Request) -> web.StreamResponse:
        if next(open_ones, 9) == 8:
            full.set()
        await asyncio.to_thread(gate.wait, 60)
        return await by_the_book(body, request)

    world.script = waits
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(world.say, "hi", f"c{number}") for number in range(8)]
        assert full.wait(60)
        refused = [world.say("hi", f"more{number}") for number in range(8)]
        gate.set()
    assert [(answer.status_code, answer.headers["retry-after"]) for answer in refused] == [(429, "1")] * 8
    assert [answer.result().status_code for answer in asked] == [200] * 8


def test_parallel_messages_of_one_conversation_are_taken_in_turn(world: World) -> None:
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = [text(answer) for answer in pool.map(lambda _: world.say("hi", "same"), range(6))]
    assert sorted(answers) == [f"hello number {number} bye" for number in range(1, 7)]


def test_a_client_that_goes_away_stops_the_generation(world: World) -> None:
    stopped = asyncio.Event()

    async def endless(_body: dict[str, Any], request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            while True:
                await answer.write(b": keep\n\n")
                await asyncio.sleep(0.02)
        finally:
            stopped.set()

    world.script = endless
    with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=world.url, timeout=0.5) as client:
        client.post("/v1/chat/completions", json={"model": "shop", "messages": [{"role": "user", "content": "hi"}]})
    world.script = by_the_book
    assert text(world.say("hi", "next")) == "hello number 1 bye"
    for _ in range(200):
        if stopped.is_set():
            break
        httpx.get(world.url + "/healthz")
    assert stopped.is_set()


def test_metrics_and_traces_tell_what_happened(world: World) -> None:
    world.say("price")
    metrics = httpx.get(world.url + "/metrics").text
    assert 'hatstack_gateway_turns_total{arm="stable"' in metrics
    assert 'outcome="reply"' in metrics
    assert "c1" not in metrics
    assert world.host is not None
    assert world.host.traces is not None
    world.host.traces.close()
    (path,) = (world.folder / "traces").glob("*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[-1]["format"] == "hatstack.trace/1"


def test_a_viewer_is_erased_from_conversations_and_traces_and_others_stay(world: World) -> None:
    with world.client() as client:
        for viewer in ("anna", "bert"):
            said = client.post("/v1/rooms/shop/messages", json={"viewer": viewer, "text": f"hi, {viewer} here"})
            assert said.status_code == 200
    assert world.host is not None
    assert world.host.traces is not None
    world.host.traces.close()
    planned = erase_viewer(world.folder, "anna", KEY, dry_run=True)
    done = erase_viewer(world.folder, "anna", KEY)
    assert planned == done
    assert (done.conversations, list(done.traces.values())) == (1, [1])
    assert erase_viewer(world.folder, "anna", KEY).conversations == 0
    (path,) = (world.folder / "traces").glob("*.jsonl")
    assert "anna here" not in path.read_text()
    assert "bert here" in path.read_text()
