"""Reads from the registry, interleaved with MLflow's prompt registry: through the client's cache, and over HTTP.

    cache  µs of CPU per `Client.resolve` + `by_digest` within the pointer's TTL, beside MLflow's cached `load_prompt`
    http   requests/s of `GET .../pointers/staging` at concurrency 8, one worker, beside MLflow's alias read
    work   ms of CPU that the server spends on one such request, which other work on the machine changes little

Prints one JSON object per case with medians over rounds and the ratio. Run: python bench/registry_read.py [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

from hat_registry import accounts, pointers
from hat_registry.archive import read_folder
from hat_registry.client import Client
from hat_registry.registry import Registry

ROOT = Path(__file__).resolve().parent.parent
HARNESS = ROOT / "harness-registry" / "harnesses" / "react-baseline"


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str, process: subprocess.Popen[bytes], limit_s: float = 400) -> None:
    """Until the address answers."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2).read()
            return
        except OSError:
            threading.Event().wait(0.2)
    raise SystemExit(f"{url} did not come up")


def ours(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """A console process with one promoted harness."""
    registry = Registry.open(f"sqlite:///{folder}/registry.db", folder / "blobs")
    version, _ = registry.push(accounts.SYSTEM, read_folder(HARNESS), message="bench")
    with registry.database.write() as tx:
        pointers.move_free(tx, accounts.SYSTEM, "harness", version.name, "staging", version.digest)
    registry.close()
    port = free_port()
    command = [sys.executable, "-m", "hat_console", "--data", str(folder), "--port", str(port), "--open"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    wait_for(f"http://127.0.0.1:{port}/healthz", process)
    return process, f"http://127.0.0.1:{port}"


def peer(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """An MLflow server with one prompt under an alias."""
    import mlflow

    port = free_port()
    store = f"sqlite:///{folder}/mlflow.db"
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--port",
        str(port),
        "--workers",
        "1",
        "--backend-store-uri",
        store,
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    wait_for(url + "/health", process)
    mlflow.set_tracking_uri(url)
    mlflow.genai.register_prompt(name="bench", template="{{text}} " + "x" * 1000)
    mlflow.genai.set_prompt_alias(name="bench", alias="staging", version=1)
    return process, url


def per_call_us(call: Callable[[], object], calls: int) -> float:
    """CPU µs of one call."""
    call()
    began = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - began) / calls * 1e6


def per_second(url: str, path: str, requests: int, workers: int = 8) -> float:
    """Requests per second over kept connections."""
    host = url.removeprefix("http://")

    def work(count: int) -> None:
        connection = HTTPConnection(host, timeout=30)
        for _ in range(count):
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
        connection.close()

    began = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, [requests // workers] * workers))
    return requests / (time.monotonic() - began)


def cpu_s(group: int) -> float:
    """CPU seconds that the processes of a group have used so far (Linux)."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measured(url: str, path: str, requests: int, group: int) -> tuple[float, float]:
    """(requests per second, ms of the server's CPU per request)."""
    before = cpu_s(group)
    rate = per_second(url, path, requests)
    return rate, (cpu_s(group) - before) / requests * 1000


def told(case: str, unit: str, mine: list[float], theirs: list[float], higher_is_better: bool) -> None:
    """One JSON line."""
    a, b = statistics.median(mine), statistics.median(theirs)
    ratio = a / b if higher_is_better else b / a
    print(
        json.dumps(
            {
                "case": case,
                "unit": unit,
                "hatstack": round(a, 3),
                "mlflow": round(b, 3),
                "times_better": round(ratio, 1),
            }
        )
    )


def main() -> None:
    """Interleave the two and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=1600)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        mine, url = ours(folder / "ours")
        theirs, peer_url = peer(folder)
        try:
            import mlflow

            client = Client(url, folder / "cache", ttl_s=3600)
            cached = [
                (
                    per_call_us(lambda: client.harness("react-baseline", "staging"), 20_000),
                    per_call_us(lambda: mlflow.genai.load_prompt("prompts:/bench@staging"), 1_000),
                )
                for _ in range(given.rounds)
            ]
            told("cache", "us CPU per read", [a for a, _ in cached], [b for _, b in cached], False)
            alias = "/api/2.0/mlflow/registered-models/alias?name=bench&alias=staging"
            path = "/api/v1/harnesses/react-baseline/pointers/staging"
            over_http = [
                (
                    measured(url, path, given.requests, mine.pid),
                    measured(peer_url, alias, given.requests // 8, theirs.pid),
                )
                for _ in range(given.rounds)
            ]
            rates, work = ([(a[part], b[part]) for a, b in over_http] for part in (0, 1))
            told("http", "requests/s at concurrency 8", [a for a, _ in rates], [b for _, b in rates], True)
            told("work", "ms CPU of the server per request", [a for a, _ in work], [b for _, b in work], False)
        finally:
            mine.terminate()
            os.killpg(theirs.pid, 15)


if __name__ == "__main__":
    main()
