"""`/healthz` of the controller: well while its loop turns, whether it leads or waits for the Lease."""

from __future__ import annotations

import time
from types import TracebackType

from aiohttp import web


class Health:
    """Use as `async with`. `patience`: seconds without a beat after which the process counts as stuck."""

    def __init__(self, port: int, patience: float) -> None:
        self._port, self._patience = port, patience
        self._beat = time.monotonic()
        self._runner: web.AppRunner | None = None

    def beat(self) -> None:
        """The loop has turned."""
        self._beat = time.monotonic()

    async def __aenter__(self) -> Health:
        if self._port:
            application = web.Application()
            application.router.add_get("/healthz", self._answer)
            self._runner = web.AppRunner(application, access_log=None)
            await self._runner.setup()
            await web.TCPSite(self._runner, "0.0.0.0", self._port).start()  # noqa: S104  # the kubelet asks from outside
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, _request: web.Request) -> web.Response:
        stuck = time.monotonic() - self._beat > self._patience
        return web.Response(status=503 if stuck else 200, text="stuck" if stuck else "ok")
