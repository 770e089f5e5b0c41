"""What the gateway's benches share: processes under measurement, their CPU time, the load generator, peers' environments."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = Path(__file__).parent


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A server under measurement, with its children. Use as a context manager."""

    def __init__(self, command: list[str], url: str = "", ready: str = "", env: dict[str, str] | None = None) -> None:
        self._command = command
        self._env = {**os.environ, **(env or {})}
        self.url = url
        self._ready = ready
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Process:
        quiet = None if os.environ.get("BENCH_LOUD") else subprocess.DEVNULL
        self._process = subprocess.Popen(
            self._command, env=self._env, stdout=subprocess.PIPE if not self.url else quiet, stderr=quiet, text=True
        )
        if not self.url:
            assert self._process.stdout is not None
            self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        if self._ready:
            self._wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        for pid in self._tree()[1:]:
            os.kill(pid, 15)
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait(self, limit_s: float = 120) -> None:
        assert self._process is not None
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                urllib.request.urlopen(self.url + self._ready, timeout=2).read()
                return
            except urllib.error.HTTPError:
                return
            except OSError:
                threading.Event().wait(0.2)
        raise SystemExit(f"{self._command[:4]} did not come up")

    def _tree(self) -> list[int]:
        assert self._process is not None
        found = [self._process.pid]
        for pid in found:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(child) for child in task.read_text().split()]
        return found

    def cpu_ms(self) -> float:
        """CPU time of the process tree so far, from the scheduler's nanoseconds."""
        return sum(
            int(stat.read_text().split()[0]) / 1e6
            for pid in self._tree()
            for stat in Path(f"/proc/{pid}/task").glob("*/schedstat")
        )

    def rss_mb(self) -> float:
        """Resident memory of the tree."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._tree())
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Load:
    """The load generator's process."""

    def __enter__(self) -> Load:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "_gateway_load.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def run(
        self,
        server: Process,
        path: str,
        bodies: list[str],
        concurrency: int,
        requests: int,
        headers: dict[str, str] | None = None,
    ) -> dict[str, float]:
        """One measurement, with the server's CPU ms a request."""
        job: dict[str, Any] = {
            "url": server.url,
            "path": path,
            "bodies": bodies,
            "concurrency": concurrency,
            "requests": requests,
            "headers": headers or {},
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        before = server.cpu_ms()
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        found: dict[str, float] = json.loads(self._process.stdout.readline())
        return {**found, "cpu_ms": (server.cpu_ms() - before) / max(1.0, found["requests"]), "rss_mb": server.rss_mb()}


def upstream() -> Process:
    """The engine and tool server that answer at once."""
    return Process([sys.executable, str(HERE / "_gateway_upstream.py")])


PEERS = {
    "litellm": ("litellm[proxy]==1.108.7", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"),
    "smg": ("smg==1.13.0",),
    "sglang-router": ("sglang-router==0.3.2",),
}


def peer_bin(name: str, program: str) -> Path:
    """A program of a peer's environment, which is made when it is not there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hatstack" / "peers" / name
    if not (cache / "bin" / program).exists():
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        subprocess.run([uv, "venv", "-q", "--clear", "-p", version, str(cache)], check=True)
        # Without compiled files LiteLLM tries missing imports anew in every request, at half again the cost.
        install = [uv, "pip", "install", "-q", "--compile-bytecode", "-p", str(cache / "bin" / "python"), *PEERS[name]]
        subprocess.run(install, check=True)
    return cache / "bin" / program
