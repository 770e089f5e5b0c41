"""A gateway over real sockets: a scripted engine that speaks chat completions, an HTTP tool server, and the gateway itself."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from aiohttp import web

from hat_harness.spec import Activation, Harness, Hook, Limits, Prompt, Recovery, Retry, Tool
from hat_registry.store.database import Database
from hat_serving.experiment.assignment import Arm, Split
from hat_serving.experiment.events import Events
from hat_serving.gateway.__main__ import following
from hat_serving.gateway.admin import Admin
from hat_serving.gateway.app import HttpSettings, Sides, create_app, pseudonym
from hat_serving.gateway.control import Control
from hat_serving.gateway.conversations import Conversations
from hat_serving.gateway.experiments import Experiments
from hat_serving.gateway.host import Host, HostLimits
from hat_serving.gateway.kept import Kept
from hat_serving.gateway.live import Deployment, FolderSource, live_arm
from hat_serving.gateway.replays import Replays
from hat_serving.gateway.steered import SteeredSource
from hat_serving.gateway.toolbox import Bindings, Toolbox
from hat_serving.gateway.traces import TraceWriter
from hat_serving.gateway.trials import Trials
from hat_serving.gateway.upstream import Engine, Engines

KEY = b"0123456789abcdef"
ADMIN = "an-admin-token"
Script = Callable[[dict[str, Any], web.Request], Awaitable[web.StreamResponse]]


def shop(gate: str = "bye", name: str = "shop", tool_s: float = 30.0) -> Harness:
    """One tool, one closing gate, quick retries; time enough for everything on a busy machine, `tool_s` for a tool."""
    schema = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
    return Harness(
        name=name,
        sections=("rules", "tools"),
        prompts=(Prompt(id="rules", section="rules", text=f"close with {gate}"),),
        tools=(
            Tool(id="get_item", name="get_item", description="read", parameters=schema, timeout_s=tool_s),
            Tool(
                id="buy",
                name="buy",
                description="order",
                parameters=schema,
                read_only=False,
                idempotent=False,
                timeout_s=tool_s,
            ),
        ),
        hooks=(
            Hook(
                id="gate", event="stop", when="!reply.endsWith(args.gate)", action="require", arguments={"gate": gate}
            ),
        ),
        activation=Activation(required=False),
        limits=Limits(deadline_s=60),
        recovery=Recovery(retry=Retry(attempts=1, backoff_s=0.01, backoff_max_s=0.01), safe_reply="one moment"),
    )


def completion(content: str = "", call: tuple[str, dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """The chunks of a streamed completion."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if call:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        deltas.append({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]})
    deltas += [{"content": content[start : start + 4]} for start in range(0, len(content), 4)]
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if call else "stop"}]})
    chunks.append({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}})
    return chunks


async def stream(request: web.Request, chunks: list[dict[str, Any]], *, done: bool = True) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    for chunk in chunks:
        await answer.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    if done:
        await answer.write(b"data: [DONE]\n\n")
    await answer.write_eof()
    return answer


async def by_the_book(body: dict[str, Any], request: web.Request) -> web.StreamResponse:
    """Asks the tool, then tells its result and closes as the rules say."""
    gate = body["messages"][0]["content"].split("close with ")[1].split("\n")[0]
    last = body["messages"][-1]
    if last["role"] == "tool":
        return await stream(request, completion(f"it costs {last['content']} {gate}"))
    if last["role"] == "user" and "price" in last["content"]:
        return await stream(request, completion(call=("get_item", {"item": "mug"})))
    if last["role"] == "user" and "buy" in last["content"]:
        return await stream(request, completion(call=("buy", {"item": "mug"})))
    seen = sum(message["role"] == "user" for message in body["messages"])
    return await stream(request, completion(f"hello number {seen} {gate}"))


@dataclass
class World:
    """What a test may look at and change while the gateway runs."""

    script: Script = by_the_book
    asked: list[dict[str, Any]] = field(default_factory=list)
    tool_calls: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)
    tool_status: int = 200
    tool_gate: asyncio.Event | None = None
    source: FolderSource = field(default_factory=FolderSource)
    host: Host | None = None
    control: Control | None = None
    trials: Trials | None = None
    url: str = ""
    engine: str = ""
    folder: Path = Path()
    muted: frozenset[str] = frozenset()

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=90)

    def say(self, text: str, conversation: str = "c1", **more: Any) -> httpx.Response:
        body = {"model": "shop", "messages": [{"role": "user", "content": text}], **more}
        with self.client() as client:
            return client.post("/v1/chat/completions", json=body, headers={"X-Hatstack-Conversation": conversation})

    def admin(self, method: str, path: str, body: Any = None, token: str = ADMIN) -> httpx.Response:
        with self.client() as client:
            headers = {"Authorization": f"Bearer {token}"}
            return client.request(method, "/admin/v1" + path, json=body, headers=headers)


def deploy(
    *harnesses: Harness,
    weights: tuple[float, ...] = (100,),
    aborted: frozenset[str] = frozenset(),
    urgent: bool = False,
) -> Deployment:
    names = ("stable", "canary")[: len(harnesses)]
    arms = {
        name: live_arm(name, harness, release="sha256:" + str(index) * 64, urgent=urgent)
        for index, (name, harness) in enumerate(zip(names, harnesses, strict=True))
    }
    split = Split("salt", tuple(Arm(name, weight) for name, weight in zip(names, weights, strict=True)))
    return Deployment("shop", split, arms, aborted)


async def _servers(world: World) -> tuple[web.AppRunner, str]:
    async def engine(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        world.asked.append(body)
        return await world.script(body, request)

    async def tool(request: web.Request) -> web.StreamResponse:
        world.tool_calls.append(
            (request.match_info["tool"], await request.json(), request.headers.get("Idempotency-Key", ""))
        )
        if world.tool_gate is not None:
            await world.tool_gate.wait()
        return web.Response(text="42", status=world.tool_status)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", engine)
    app.router.add_post("/tools/{tool}", tool)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    return runner, f"http://127.0.0.1:{port}"


def build(world: World, base: str, database: Database, limits: HostLimits) -> Any:
    """The gateway's application over the scripted servers."""
    engines = Engines({"": Engine(url=base, timeout_s=60), "second": Engine(url=base, model="second", timeout_s=60)})
    bindings = Bindings.parse(
        {"servers": {"s": {"http": base + "/tools/{tool}", "timeout_s": 60}}, "tools": {"*": "s"}}
    )
    toolbox = Toolbox(bindings)
    traces = TraceWriter(world.folder / "traces")
    world.control = Control(database)
    source = SteeredSource(world.source, world.control)
    world.host = Host(
        source,
        engines,
        toolbox,
        conversations=Conversations(database),
        traces=traces,
        limits=limits,
        muted=lambda: world.muted | world.control.muted() if world.control else world.muted,
    )
    host = world.host
    admin = Admin(
        world.control,
        source,
        database,
        tokens=frozenset({hashlib.sha256(ADMIN.encode()).hexdigest()}),
        pseudonym=lambda identity: pseudonym(KEY, identity),
        engines=engines,
        drain=lambda on: setattr(host, "draining", on),
    )
    control = world.control

    def known(identity: str) -> str:
        return pseudonym(KEY, identity)

    world.trials = Trials(control, source, database, pseudonym=known, engines=engines)
    kept = Kept(Conversations(database), source.harness, world.folder / "traces", admin)
    replays = Replays(admin, source, engines, toolbox)
    sides = Sides(admin, Experiments(world.trials, Events(database, known), admin), kept, replays)

    @asynccontextmanager
    async def life() -> AsyncIterator[None]:
        async with engines, toolbox, following(control, None, 0.05):
            yield
        traces.close()

    return create_app(world.host, HttpSettings(pseudonym_key=KEY), life, sides)


@contextmanager
def replica(world: World) -> Iterator[World]:
    """Another gateway over the same database and harnesses."""
    other = World(folder=world.folder, source=world.source, script=world.script)
    database = Database(f"sqlite:///{world.folder}/gateway.db")
    running = Running(other, database, HostLimits(open_turns=8, drain_s=5))
    try:
        yield other
    finally:
        running.stop()
        database.close()


class Running:
    """A uvicorn server in a thread with its own loop."""

    def __init__(self, world: World, database: Database, limits: HostLimits) -> None:
        self._ready = threading.Event()
        self._world, self._database, self._limits = world, database, limits
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(20), "the gateway did not start"

    async def _serve(self) -> None:
        runner, base = await _servers(self._world)
        self._world.engine = base
        app = build(self._world, base, self._database, self._limits)
        self._server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
        serving = asyncio.create_task(self._server.serve())
        while not self._server.started:
            await asyncio.sleep(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self._world.url = f"http://127.0.0.1:{port}"
        self._ready.set()
        await serving
        await runner.cleanup()

    def stop(self) -> None:
        assert self._server is not None
        self._server.should_exit = True
        self._thread.join(20)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(folder=tmp_path)
    made.source.set(deploy(shop()))
    database = Database(f"sqlite:///{tmp_path}/gateway.db")
    running = Running(made, database, HostLimits(open_turns=8, drain_s=5))
    yield made
    running.stop()
    database.close()
