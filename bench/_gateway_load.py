"""The load generator of the gateway's benches: a fixed number of requests over C kept connections, closed loop.

Raw asyncio protocols on uvloop, in a process of its own: `python bench/_gateway_load.py` reads one JSON job a line (url, path,
headers, bodies, concurrency, requests) and writes one JSON result a line (requests/s, latencies in ms, failures).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from itertools import cycle
from typing import Any
from urllib.parse import urlsplit

import uvloop


class Client(asyncio.Protocol):
    """One connection: sends the next request when an answer is whole."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.buffer = b""
        self.first = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport: Any = transport
        self.ask()

    def ask(self) -> None:
        """The next request, or the end."""
        if self.job.left <= 0:
            self.transport.close()
            return
        self.job.left -= 1
        self.buffer, self.first = b"", 0.0
        self.began = time.perf_counter()
        self.transport.write(next(self.job.requests))

    def data_received(self, data: bytes) -> None:
        """Collect until the answer is whole."""
        if not self.first:
            self.first = time.perf_counter()
        self.buffer += data
        if self.whole():
            now = time.perf_counter()
            self.job.walls.append(1000 * (now - self.began))
            self.job.firsts.append(1000 * (self.first - self.began))
            self.job.failed += not self.buffer.startswith(b"HTTP/1.1 200")
            self.ask()

    def whole(self) -> bool:
        """Whether the answer is complete, by its framing."""
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = self.buffer[:end].lower()
        start = head.find(b"content-length:")
        if start >= 0:
            return len(self.buffer) >= end + 4 + int(head[start + 15 :].split(b"\r\n", 1)[0])
        return self.buffer.endswith(b"0\r\n\r\n")

    def connection_lost(self, error: Exception | None) -> None:
        """Over, or cut off by the server: then what was asked has failed."""
        if self.job.left > 0 or error is not None:
            self.job.failed += 1
        self.job.closed()


class Job:
    """One measurement."""

    def __init__(self, spec: dict[str, object]) -> None:
        parts = urlsplit(str(spec["url"]))
        self.host, self.port = parts.hostname or "", parts.port or 80
        self.left = int(str(spec["requests"]))
        self.clients = int(str(spec["concurrency"]))
        head = f"POST {spec['path']} HTTP/1.1\r\nhost: {self.host}:{self.port}\r\ncontent-type: application/json\r\n"
        extra = spec.get("headers") or {}
        bodies = spec["bodies"]
        assert isinstance(extra, dict)
        assert isinstance(bodies, list)
        lines = "".join(f"{name}: {value}\r\n" for name, value in extra.items())
        self.requests: Iterator[bytes] = cycle(
            [f"{head}{lines}content-length: {len(body)}\r\n\r\n{body}".encode() for body in bodies]
        )
        self.walls: list[float] = []
        self.firsts: list[float] = []
        self.failed = 0
        self.open = self.clients
        self.done = asyncio.Event()

    def closed(self) -> None:
        """One connection ended."""
        self.open -= 1
        if self.open == 0:
            self.done.set()

    async def run(self) -> dict[str, float]:
        """Measure."""
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        await asyncio.gather(
            *(loop.create_connection(lambda: Client(self), self.host, self.port) for _ in range(self.clients))
        )
        await asyncio.wait_for(self.done.wait(), 120)
        seconds = time.perf_counter() - began
        walls, firsts = sorted(self.walls), sorted(self.firsts)
        return {
            "requests": len(walls),
            "failed": self.failed,
            "per_s": len(walls) / seconds,
            "p50_ms": walls[len(walls) // 2],
            "p99_ms": walls[int(0.99 * (len(walls) - 1))],
            "first_ms": firsts[len(firsts) // 2],
        }


def main() -> None:
    """Jobs from standard input until it ends."""
    for line in sys.stdin:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            spec = json.loads(line)
            print(json.dumps(runner.run(_run(spec))), flush=True)


async def _run(spec: dict[str, object]) -> dict[str, float]:
    return await Job(spec).run()


if __name__ == "__main__":
    main()
