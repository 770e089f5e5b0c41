"""The engines' own routes behind the gateway: bytes pass unchanged, callers are known, faults are said, usage is kept."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvicorn
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from hat_serving.gateway import watch
from hat_serving.gateway.proxy import MAX_BODY, Proxy, fronted
from hat_serving.gateway.upstream import Engine
from hat_serving.gateway.usage import UsageWriter

CHAT = "/engines/main/v1/chat/completions"
WHOLE = b'{"id":"x","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}'
EVENTS = [
    b'data: {"choices":[{"delta":{"content":"\xe4\xbd\xa0"}}]}\n\n',
    b'data: {"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n',
    b"data: [DONE]\n\n",
]
SIGNED = {"Authorization": "Bearer secret"}


class Stage:
    """An engine that does what a test says, and the gateway's front before it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.stopped = asyncio.Event()
        self.collector = CollectorRegistry()
        self.url = ""

    async def engine(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.bodies.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if request.method == "GET":
            return web.json_response({"object": "list", "data": []})
        told = json.loads(body) if body.startswith(b"{") else {}
        if told.get("status"):
            return web.Response(
                status=told["status"], body=b'{"error":{"message":"no"}}', content_type="application/json"
            )
        if told.get("hang"):
            try:
                await asyncio.sleep(30)
            finally:
                self.stopped.set()
        if not told.get("stream"):
            return web.Response(body=WHOLE, content_type="application/json")
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for event in EVENTS[: told.get("events", 3)]:
            await answer.write(event)
        if told.get("cut"):
            assert request.transport is not None
            request.transport.abort()
        return answer

    async def post(self, body: Any, path: str = CHAT, headers: dict[str, str] = SIGNED) -> tuple[int, bytes]:
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.url + path, data=body, headers=headers) as answer,
        ):
            return answer.status, await answer.read()

    def usage(self) -> list[dict[str, Any]]:
        (path,) = (self.folder / "usage").glob("*.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path)
    app = web.Application(client_max_size=MAX_BODY * 2)
    app.router.add_route("*", "/v1/{rest:.*}", made.engine)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    engines = {
        "main": Engine(url=f"http://127.0.0.1:{runner.addresses[0][1]}", api_key="key", timeout_s=2),
        "away": Engine(url="http://127.0.0.1:9", timeout_s=2),
    }
    usage = UsageWriter(tmp_path / "usage")
    hashes = frozenset({hashlib.sha256(b"secret").hexdigest()})
    proxy = Proxy(engines, tokens=hashes, collector=made.collector, usage=usage)

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for _ in range(2):
                kind = (await receive())["type"]
                await send({"type": kind + ".complete"})
            return
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body", "body": b"inner"})

    server = uvicorn.Server(uvicorn.Config(fronted(inner, proxy), host="127.0.0.1", port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    made.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    yield made
    server.should_exit = True
    await serving
    await runner.cleanup()


async def test_bodies_and_streams_pass_byte_for_byte(stage: Stage) -> None:
    body = b'{ "model": "m",\n "odd": [1.50, "\\u4f60"]}'
    assert await stage.post(body) == (200, WHOLE)
    assert stage.bodies == [body]
    assert stage.headers[0]["authorization"] == "Bearer key"
    assert await stage.post(b'{"stream":true}') == (200, b"".join(EVENTS))
    assert (await stage.post(b'{"status":429}'))[0] == 429
    async with (
        aiohttp.ClientSession() as session,
        session.get(stage.url + "/engines/main/v1/models", headers=SIGNED) as models,
    ):
        assert (models.status, await models.json()) == (200, {"object": "list", "data": []})


async def test_nobody_is_let_in_without_a_known_token(stage: Stage) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic secret"},
        {"Authorization": "secret"},
    ):
        status, told = await stage.post(b"{}", headers=headers)
        assert (status, json.loads(told)["error"]["kind"]) == (401, "forbidden")
    assert stage.bodies == []


async def test_only_named_engines_and_routes_are_passed_and_the_rest_is_the_gateways(stage: Stage) -> None:
    assert (await stage.post(b"{}", "/engines/main/v1/files"))[0] == 404
    assert (await stage.post(b"{}", "/engines/nobody/v1/chat/completions"))[0] == 404
    assert (await stage.post(b"{}", "/engines/main/v1/models"))[0] == 405
    assert await stage.post(b"{}", "/v1/chat/completions") == (418, b"inner")


async def test_a_body_beyond_the_limit_never_reaches_the_engine(stage: Stage) -> None:
    status, told = await stage.post(b"x" * (MAX_BODY + 1))
    assert (status, json.loads(told)["error"]["param"]) == (400, "body")
    assert stage.bodies == []


async def test_an_engine_that_is_away_slow_or_breaks_off_is_said(stage: Stage) -> None:
    status, told = await stage.post(b"{}", "/engines/away/v1/chat/completions")
    assert (status, json.loads(told)["error"]["kind"]) == (502, "unavailable")
    status, told = await stage.post(b'{"hang":true}')
    assert (status, "within 2 s" in json.loads(told)["error"]["message"]) == (504, True)
    status, told = await stage.post(b'{"stream":true,"events":1,"cut":true}')
    assert (status, told.startswith(EVENTS[0])) == (200, True)
    assert b"cannot be reached" in told.removeprefix(EVENTS[0])


async def test_a_client_that_goes_away_stops_the_engine(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "WATCH_AFTER_S", 0.01)
    timeout = aiohttp.ClientTimeout(total=0.3)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        with pytest.raises(TimeoutError):
            await session.post(stage.url + CHAT, data=b'{"hang":true}', headers=SIGNED)
    await asyncio.wait_for(stage.stopped.wait(), 1.5)  # before the engine's own limit


async def test_every_request_is_counted_and_leaves_a_record(stage: Stage) -> None:
    await stage.post(b"{}")
    await stage.post(b'{"stream":true}')
    await stage.post(b'{"status":500}')
    metrics = generate_latest(stage.collector).decode()
    assert 'hatstack_gateway_proxied_requests_total{engine="main",outcome="ok"} 2.0' in metrics
    assert 'hatstack_gateway_proxied_requests_total{engine="main",outcome="error"} 1.0' in metrics
    assert 'hatstack_gateway_proxied_tokens_total{direction="out",engine="main"} 6.0' in metrics
    assert 'hatstack_gateway_proxied_seconds_count{engine="main"} 3.0' in metrics
    async with asyncio.timeout(5):
        while not list((stage.folder / "usage").glob("*.jsonl")) or len(stage.usage()) < 3:
            await asyncio.sleep(0.05)
    caller = hashlib.sha256(b"secret").hexdigest()[:12]
    rows = [(row["engine"], row["caller"], row["status"], row["tokens_in"], row["tokens_out"]) for row in stage.usage()]
    assert rows == [("main", caller, 200, 7, 3), ("main", caller, 200, 7, 3), ("main", caller, 500, 0, 0)]
    assert "secret" not in json.dumps(stage.usage())


def test_a_full_queue_of_records_drops_the_oldest_and_counts_it(tmp_path: Path) -> None:
    writer = UsageWriter(tmp_path, capacity=2)
    for number in range(100):
        writer.put((float(number), "e", "", 200, 0, 0, 0.0))
    writer.close()
    (path,) = tmp_path.glob("*.jsonl")
    kept = [json.loads(line)["at"] for line in path.read_text().splitlines()]
    assert len(kept) + writer.dropped == 100
    assert kept[-1] == 99.0
