"""The part of a kubelet's HTTPS interface that `kubectl logs` uses: a container's output, followed while it runs."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from aiohttp import web


class LogServer:
    """Serves `/containerLogs/{namespace}/{pod}/{container}` from the folder that the pod runner writes to."""

    def __init__(self, folder: Path, pki: Path, port: int) -> None:
        self._folder, self._pki, self._port = folder, pki, port
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listens on loopback with the API server's own certificate, which the API server checks."""
        application = web.Application()
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._pki / "apiserver.crt", self._pki / "apiserver.key")
        await web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=context, shutdown_timeout=0.1).start()

    async def stop(self) -> None:
        """Closes the listener."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        path = newest(self._folder, *(request.match_info[key] for key in ("namespace", "pod", "container")))
        if request.query.get("previous") == "true" and path is not None:
            earlier = path.with_name(f"{int(path.stem) - 1}.log")
            path = earlier if earlier.exists() else None
        if path is None:
            return web.Response(status=404, text="no such log")
        text = path.read_bytes()
        if tail := request.query.get("tailLines"):
            text = b"".join(text.splitlines(keepends=True)[-int(tail) :] if int(tail) else [])
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await response.write(text)
        if request.query.get("follow") == "true":
            await _follow(path, response)
        return response


async def _follow(path: Path, response: web.StreamResponse) -> None:
    """Sends what is appended until the reader leaves."""
    with path.open("rb") as file:
        file.seek(0, 2)
        while True:
            if chunk := file.read():
                await response.write(chunk)
            await asyncio.sleep(0.2)


def newest(folder: Path, namespace: str, pod: str, container: str) -> Path | None:
    """The log of the container's latest run in the latest pod of that name."""
    runs = [path for path in folder.glob(f"{namespace}_{pod}_*/{container}/*.log") if path.stem.isdigit()]
    return max(runs, key=lambda path: (path.parent.stat().st_mtime, int(path.stem)), default=None)
