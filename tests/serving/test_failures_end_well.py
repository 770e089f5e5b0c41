"""Each fault of the contract: a viewer gets a valid reply or a clear error, others notice nothing, the trace says why."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from aiohttp import web

from hat_harness.digest import harness_digest
from hat_harness.load import load_harness
from hat_harness.spec import Limits
from hat_registry import accounts, pointers, releases
from hat_registry.api.app import create_app as create_registry
from hat_registry.archive import read_folder
from hat_registry.client import Client
from hat_registry.registry import Registry
from hat_serving.gateway.live import RegistrySource
from hat_serving.gateway.upstream import Engine
from tests.serving.conftest import World, by_the_book, completion, deploy, shop, stream

HARNESSES = Path(__file__).resolve().parents[2] / "harness-registry" / "harnesses"


def open_shop() -> Any:
    """A harness without gates: text is shown as it comes."""
    return shop().model_copy(update={"hooks": ()})


def content(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def streamed(world: World, text: str, conversation: str = "s1") -> str:
    """The text of a streamed reply, which must end properly."""
    body = {"model": "shop", "messages": [{"role": "user", "content": text}], "stream": True}
    headers = {"X-Hatstack-Conversation": conversation}
    with world.client() as client, client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
        assert answer.status_code == 200
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


def entries(world: World) -> list[dict[str, Any]]:
    """What the traces say, once written."""
    assert world.host is not None
    assert world.host.traces is not None
    world.host.traces.close()
    lines = [line for path in (world.folder / "traces").glob("*.jsonl") for line in path.read_text().splitlines()]
    return [entry for line in lines for entry in json.loads(line)["entries"]]


def failures(world: World) -> list[str]:
    return [entry["data"]["kind"] for entry in entries(world) if entry["type"] == "Failure"]


async def killed(_body: dict[str, Any], request: web.Request) -> web.StreamResponse:
    """The engine's process dies after some text has gone out."""
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    for chunk in completion("hello there")[:3]:
        await answer.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    await asyncio.sleep(0.05)
    assert request.transport is not None
    request.transport.abort()
    return answer


def test_an_engine_killed_in_mid_stream(world: World) -> None:
    world.source.set(deploy(open_shop()))
    world.script = killed
    said = streamed(world, "hi")
    assert said.startswith("hell")
    assert said.endswith("one moment")
    assert content(world.say("hi", "whole")) == "one moment"
    world.script = by_the_book
    assert content(world.say("hi", "s1")).startswith("hello number 2")
    assert set(failures(world)) == {"unavailable"}


async def malformed_events(_body: dict[str, Any], request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    await answer.write(b'event: x\ndata: {"choices": [{"delta": {"content": "he"}}]\n\n: \xff\n\ndata: 7\n\n')
    return answer


def test_malformed_sse_and_garbage_upstream(world: World) -> None:
    world.script = malformed_events
    assert content(world.say("hi")) == "one moment"
    assert set(failures(world)) == {"malformed"}


def test_an_early_end_upstream(world: World) -> None:
    async def early(_body: dict[str, Any], request: web.Request) -> web.StreamResponse:
        return await stream(request, completion("hello bye")[:2], done=False)

    world.script = early
    assert content(world.say("hi")) == "one moment"
    assert set(failures(world)) == {"unavailable"}


def test_an_engine_that_never_answers_ends_in_the_safe_reply_at_the_deadline(world: World) -> None:
    """The harness's deadline, which is 15 s unless it says otherwise."""
    assert Limits().deadline_s == 15
    world.source.set(deploy(shop().model_copy(update={"limits": Limits(deadline_s=0.5)})))

    async def hangs(_body: dict[str, Any], _request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    world.script = hangs
    assert content(world.say("hi")) == "one moment"
    ends = [entry["data"] for entry in entries(world) if entry["type"] == "end"]
    assert [(end["outcome"], end["reason"]) for end in ends] == [("safe", "deadline")]


def test_a_tool_that_hangs(world: World) -> None:
    world.source.set(deploy(shop(tool_s=0.3)))
    world.tool_gate = asyncio.Event()
    assert content(world.say("price")).endswith("bye")
    found = entries(world)
    assert "timeout" in {entry["data"].get("failure") or entry["data"].get("kind") for entry in found}


def test_garbage_and_an_early_end_of_an_engine_that_does_not_stream(world: World) -> None:
    assert world.host is not None
    world.host._engines._engines = {"": Engine(url=world.engine, stream=False, timeout_s=60)}
    bodies = [b"", b"no json", b"[]", b'{"choices": []}', b'{"choices": [{"message": 7}]}', b"\xff" * 100]

    async def whole(_body: dict[str, Any], _request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type="application/json")

    async def ends_early(_body: dict[str, Any], request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "1000"})
        await answer.prepare(request)
        await answer.write(b'{"choices": [')
        assert request.transport is not None
        request.transport.close()
        return answer

    async def in_pieces(_body: dict[str, Any], request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for piece in (b'{"choices": [{"message": ', b'{"content": "hello bye"}}]}'):
            await answer.write(piece)
            await asyncio.sleep(0.05)
        return answer

    world.script = whole
    for body in bodies:
        assert content(world.say("hi", body.hex())) == "one moment", body
    world.script = ends_early
    assert content(world.say("hi", "early")) == "one moment"
    world.script = in_pieces
    assert content(world.say("hi", "pieces")) == "hello bye"
    assert set(failures(world)) == {"malformed", "unavailable"}


def test_a_slow_client_holds_up_nobody(world: World) -> None:
    """It reads nothing of a long stream; the turn ends and is stored, others are answered meanwhile."""
    world.source.set(deploy(open_shop()))
    pieces = [{"choices": [{"index": 0, "delta": {"content": "word " * 10_000}}]} for _ in range(60)]

    async def talks(body: dict[str, Any], request: web.Request) -> web.StreamResponse:
        if "long" in body["messages"][-1]["content"]:
            return await stream(request, [*pieces, *completion("the end")])
        return await by_the_book(body, request)

    world.script = talks
    body = {"model": "shop", "messages": [{"role": "user", "content": "long"}], "stream": True}
    with raw_post(world, body, "slow") as slow:
        for number in range(5):
            assert content(world.say("hi", f"other{number}")).startswith("hello")
        assert world.host is not None
        received = b""
        while b"[DONE]" not in received[-200:]:
            piece = slow.recv(65_536)
            assert piece
            received += piece
    assert world.say("hi", "slow").json()["id"].endswith("-2")


@pytest.mark.parametrize("stream", [True, False])
def test_a_disconnect_stops_the_generation_and_the_trace_says_so(world: World, stream: bool) -> None:
    world.source.set(deploy(open_shop()))
    stopped, begun = threading.Event(), threading.Event()

    async def endless(_body: dict[str, Any], request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        try:
            while True:
                await answer.write(b'data: {"choices":[{"delta":{"content":"more "}}]}\n\n')
                begun.set()
                await asyncio.sleep(0.01)
        finally:
            stopped.set()

    world.script = endless
    body = {"model": "shop", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    with raw_post(world, body, "leaves"):
        assert begun.wait(60)
    assert stopped.wait(60)
    world.script = by_the_book
    assert content(world.say("hi", "leaves")).startswith("hello number 1"), "nothing of it was kept"
    found = [entry for entry in entries(world) if entry["type"] == "Cancel"]
    assert len(found) == 1


@contextmanager
def raw_post(world: World, body: dict[str, Any], conversation: str) -> Iterator[socket.socket]:
    """A request whose connection ends with the block, whatever is still to come."""
    host, port = world.url.removeprefix("http://").split(":")
    content = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nX-Hatstack-Conversation: {conversation}\r\n"
    with socket.create_connection((host, int(port)), timeout=90) as connection:
        connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        yield connection


def test_ten_megabytes_and_malformed_json(world: World) -> None:
    with world.client() as client:
        for route in ("/v1/chat/completions", "/v1/responses", "/v1/rooms/r/messages", "/v1/events"):
            huge = client.post(route, content=b"x" * (10 * 1024 * 1024))
            assert (huge.status_code, huge.json()["error"]["kind"]) == (400, "invalid_input"), route
            broken = client.post(route, content=b'{"model": "shop", ')
            assert (broken.status_code, broken.json()["error"]["kind"]) == (400, "invalid_input"), route
        assert (
            client.post("/v1/rooms/r/messages", json={"model": "shop", "viewer": "v", "text": "hi"}).status_code == 200
        )


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_clock_that_jumps(world: World, monkeypatch: pytest.MonkeyPatch, jump: float) -> None:
    assert content(world.say("hi", "talk")) == "hello number 1 bye"
    moved = SimpleNamespace(time=lambda: time.time() + jump, monotonic=time.monotonic)
    for module in ("host", "turns"):
        monkeypatch.setattr(f"hat_serving.gateway.{module}.time", moved)
    assert content(world.say("hi", "talk")) == "hello number 2 bye"
    monkeypatch.undo()
    assert content(world.say("price", "talk")) == "it costs 42 bye"
    times = [entry["at"] for entry in entries(world)]
    assert times == sorted(times)


def test_a_stream_that_cannot_begin_is_refused_with_its_status(world: World) -> None:
    body = {"model": "nobody", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    with world.client() as client:
        assert client.post("/v1/chat/completions", json=body).status_code == 400
        assert world.host is not None
        world.host.draining = True
        refused = client.post("/v1/responses", json={"model": "shop", "input": "hi", "stream": True})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


def test_a_new_room_state_is_taken_without_a_reply(world: World) -> None:
    with world.client() as client:
        url = "/v1/rooms/shop/messages"
        assert client.post(url, json={"viewer": "v", "event": "state", "state": {"item": "mug"}}).status_code == 204
        assert client.post(url, json={"viewer": "v", "text": "hi"}).json()["text"] == "hello number 1 bye"


# ---- the registry away ------------------------------------------------------------------------------------------------


class Served:
    """A registry that can be stopped and started again on its port."""

    def __init__(self, folder: Path) -> None:
        self.registry = Registry.open(f"sqlite:///{folder}/registry.db", folder / "blobs")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        app = create_registry(self.registry, open_access=True)
        self._server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=self.port, log_level="error"))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        pause = threading.Event()
        while not self._server.started:
            pause.wait(0.02)

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = self._server.force_exit = True
            self._thread.join(20)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    version, _ = made.registry.push(accounts.SYSTEM, read_folder(HARNESSES / "react-baseline"), message="first")
    with made.registry.database.write() as tx:
        pointers.move_free(tx, accounts.SYSTEM, "harness", "react-baseline", "staging", version.digest)
    yield made
    made.stop()
    made.registry.close()


def test_the_registry_is_down_at_the_start_and_later(world: World, registry: Served, tmp_path: Path) -> None:
    moment = [0.0]
    source = RegistrySource(Client(registry.url, tmp_path / "cache", ttl_s=0.0, clock=lambda: moment[0]), "staging")
    assert world.host is not None
    world.host._source = source
    body = {"model": "react-baseline", "messages": [{"role": "user", "content": "hi"}]}
    with world.client() as client:
        refused = client.post("/v1/chat/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["kind"]) == (503, "unavailable")
        registry.start()
        moment[0] += 1000
        assert client.post("/v1/chat/completions", json=body).status_code == 200
        registry.stop()
        moment[0] += 1000
        began = time.monotonic()
        assert client.post("/v1/chat/completions", json=body).status_code == 200
        assert time.monotonic() - began < 5
    again = RegistrySource(Client(registry.url, tmp_path / "cache", ttl_s=0.0), "staging")
    assert again.deployment("react-baseline").control.digest == source.deployment("react-baseline").control.digest


def test_the_name_of_a_release_may_stand_in_model(world: World, registry: Served, tmp_path: Path) -> None:
    harness = harness_digest(load_harness(HARNESSES / "react-baseline"))
    new = releases.Release(name="second", model="sha256:" + "1" * 64, harness=harness, profile="sha256:" + "2" * 64)
    with registry.registry.database.write() as tx:
        digest, _ = releases.add(tx, accounts.SYSTEM, new)
        pointers.move_free(tx, accounts.SYSTEM, "release", "second", "staging", digest)
    registry.start()
    assert world.host is not None
    world.host._source = RegistrySource(Client(registry.url, tmp_path / "cache", ttl_s=0.0), "staging", ["", "second"])
    with world.client() as client:
        url = "/v1/rooms/r/messages"
        told = client.post(url, json={"model": "second", "viewer": "v", "text": "hi"}).json()
        assert (told["release"], told["harness"]) == (digest, harness)
        assert world.asked[-1]["model"] == "second", "the engine of the release's own name"
        assert (
            client.post(url, json={"model": "release:second", "viewer": "w", "text": "hi"}).json()["release"] == digest
        )
        for name in ("nobody", "release:react-baseline", "harness:second"):
            answer = client.post(url, json={"model": name, "viewer": "v", "text": "hi"})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model"), name
    registry.stop()
    again = RegistrySource(Client(registry.url, tmp_path / "cache", ttl_s=0.0), "staging", ["", "second"])
    assert again.deployment("second").control.release == digest
    assert again.deployment("release:second").control.release == digest
