"""Serves an engine over HTTP: uvicorn on uvloop, one process, ended in good order.

Always holds: on SIGTERM or SIGINT no new connection is taken, `/health` answers 503, and running requests get
`drain_s` to end before they are aborted. asyncio and uvloop set TCP_NODELAY, so a chunk leaves when it is written.
Not here: routes (api), flags (__main__).
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import TracebackType

import uvicorn

from hat_serving.engine.api import Api
from hat_serving.engine.engine import Engine
from hat_serving.engine.errors import EngineError
from hat_serving.engine.options import EngineOptions


class _Server(uvicorn.Server):
    """uvicorn's server that tells the API when it starts to end."""

    def __init__(self, config: uvicorn.Config, api: Api, ready: Callable[[int], None]) -> None:
        super().__init__(config)
        self._api, self._ready = api, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say which port it is."""
        await super().startup(sockets)
        if self.started:
            self._ready(self.servers[0].sockets[0].getsockname()[1])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let what runs end, then abort the rest."""
        self._api.draining = True
        scheduler = self._api.engine.scheduler
        waited = 0.0
        while waited < self._api.engine.options.drain_s and (scheduler.counters.running or scheduler.counters.waiting):
            if self.force_exit:
                break
            await asyncio.sleep(0.05)
            waited += 0.05
        scheduler.abort(everything=True)
        await super().shutdown(sockets)


def _make(options: EngineOptions, engine: Engine, ready: Callable[[int], None]) -> _Server:
    api = Api(engine)
    config = uvicorn.Config(
        api.app(),
        host=options.host,
        port=options.port,
        loop="auto",
        http="auto",
        lifespan="off",
        log_level="warning",
        access_log=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
        backlog=2048,
        server_header=False,
    )
    return _Server(config, api, ready)


def serve(options: EngineOptions) -> None:
    """Load the model and serve it until a signal. ModelError; EngineError where the port is taken."""
    sys.setswitchinterval(0.001)  # the engine's thread and the loop share the interpreter; long turns would add latency
    with Engine(options) as engine:

        def ready(port: int) -> None:
            print(f"serving {options.name} on http://{options.host}:{port}", flush=True)  # noqa: T201  # for who started it

        server = _make(options, engine, ready)
        # uvicorn raises the signal again when it has ended in good order; that is no reason to die of it.
        signal.signal(signal.SIGTERM, lambda *_: None)
        signal.signal(signal.SIGINT, lambda *_: None)
        try:
            server.run()
        except SystemExit:
            raise EngineError(
                f"port {options.port} cannot be taken", place=options.host, cure="choose another with --port"
            ) from None


class RunningServer:
    """A server in a thread of this process, for programs that need an engine for a while. Use as a context manager."""

    def __init__(self, options: EngineOptions) -> None:
        """Load the model; ModelError."""
        self.engine = Engine(options)
        self._port = 0
        self._ready = threading.Event()
        self._server = _make(options, self.engine, self._is_ready)
        self._thread = threading.Thread(target=self._server.run, name="hat-engine-http", daemon=True)

    @property
    def url(self) -> str:
        """Base address."""
        return f"http://{self.engine.options.host}:{self._port}"

    def _is_ready(self, port: int) -> None:
        self._port = port
        self._ready.set()

    def __enter__(self) -> RunningServer:
        """Start and wait until it listens."""
        self.engine.start()
        self._thread.start()
        while not self._ready.wait(0.1):
            if not self._thread.is_alive():
                self.engine.stop()
                raise EngineError(f"port {self.engine.options.port} cannot be taken", cure="choose another")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._server.should_exit = True
        self._thread.join(timeout=30)
        self.engine.stop()
