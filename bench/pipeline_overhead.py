"""Overhead of the runner: per step, of a fully cached run of ten steps, of compiling, of the run list, of a log line.

    python -m bench pipeline_overhead

Ten toy steps that do nothing are run in a chain: what the wall time exceeds nothing by is the pipeline's own. The list
is that of the console's API over 200 runs of 10 steps; a log line is timed from its write to its arrival over SSE.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from hat_console.app import ConsoleSettings, create_app
from hat_pipelines import compiler, dags, plan, profile, run
from hat_pipelines.desk.desk import Desk, Settings
from hat_registry.registry import Registry
from hatstack import paths
from tests.pipelines.desks import HOLDING, catalogue

GOALS = {
    "step_s": 1.5,
    "cached_run_s": 6.0,
    "compile_s": 10.0,
    "list_first_ms": 200.0,
    "list_ms": 200.0,
    "line_p95_s": 1.0,
}
STEPS = 10
PROFILE = """\
format: hatstack.profile/1
name: chain
pipeline: tests.pipelines.toys.chain
arms: [one]
local: {threads: 1, parallel: 1}
"""


def runs(folder: Path) -> dict[str, float]:
    """Seconds per step of a chain of steps that do nothing, and of the same run from the cache."""
    (folder / "chain.yaml").write_text(PROFILE)
    (folder / "harness").mkdir()
    (folder / "harness" / "harness.yaml").write_text("name: toy\n")
    job = plan.job(profile.load(folder / "chain.yaml"), {"harness": folder / "harness"})
    times = []
    for _ in range(3):
        shutil.rmtree(folder / "cache", ignore_errors=True)
        begun = time.perf_counter()
        run.start(job, folder / "runs", run.Options(quiet=True, cache=folder / "cache"))
        times.append(time.perf_counter() - begun)
    cached = []
    for _ in range(3):
        begun = time.perf_counter()
        run.start(job, folder / "runs", run.Options(quiet=True, cache=folder / "cache"))
        cached.append(time.perf_counter() - begun)
    return {"step_s": statistics.median(times) / STEPS, "cached_run_s": statistics.median(cached)}


def compiling() -> float:
    """Seconds to compile every pipeline in both forms."""
    begun = time.perf_counter()
    for name in dags.names():
        compiler.render(profile.load(paths.profile("h20"), [f"pipeline={name}"]))
    return time.perf_counter() - begun


def pages(folder: Path) -> dict[str, float]:
    """Milliseconds of the list of 200 runs × 10 steps, cold and warm; seconds of a log line over SSE."""
    root = folder / "many"
    template = next((folder / "runs").iterdir())
    for number in range(200):
        shutil.copytree(template, root / f"run-{number:03d}", ignore=shutil.ignore_patterns("steps", ".lock"))
        record = json.loads((root / f"run-{number:03d}" / "run.json").read_text())
        record["id"] = f"run-{number:03d}"
        (root / f"run-{number:03d}" / "run.json").write_text(json.dumps(record))
    registry = Registry.open(f"sqlite:///{folder}/registry.db", folder / "blobs")
    desk = Desk(registry.database, catalogue(folder), Settings(root=root))
    desk.start()
    settings = ConsoleSettings(session_key=b"k" * 32, open_access=True, runs=root)
    server = uvicorn.Server(uvicorn.Config(create_app(registry, settings, desk), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    with httpx.Client(base_url=url, timeout=30) as client:
        spent = []
        for _ in range(20):
            begun = time.perf_counter()
            assert len(client.get("/api/v1/runs").json()["items"]) == 200
            spent.append(1000 * (time.perf_counter() - begun))
        line = lines(client, folder, root)
    desk.stop()
    server.should_exit = True
    thread.join(20)
    registry.close()
    return {"list_first_ms": spent[0], "list_ms": statistics.quantiles(spent[1:], n=20)[-1], "line_p95_s": line}


def lines(client: httpx.Client, folder: Path, root: Path) -> float:
    """p95 of the time from a line's write to its arrival, over lines that a running step writes."""
    release = folder / "release"
    order: dict[str, Any] = {
        "pipeline": HOLDING,
        "profile": "toy",
        "name": "held",
        "values": {"steps.hold.release": str(release)},
    }
    assert client.post("/api/v1/runs", json=order).status_code == 201
    log = root / "held" / "steps" / "hold" / "log.txt"
    while not log.exists():
        time.sleep(0.05)
    written: dict[str, float] = {}
    over = threading.Event()

    def watch() -> None:
        with log.open("rb") as stream:
            while not over.is_set():
                for found in stream.readlines():
                    written.setdefault(found.decode().strip(), time.perf_counter())
                time.sleep(0.002)

    threading.Thread(target=watch, daemon=True).start()
    delays = []
    with client.stream("GET", "/api/v1/runs/held/steps/hold/log/stream") as stream:
        for text in stream.iter_lines():
            now = time.perf_counter()
            if text.startswith("data: ") and text != "data: {}":
                delays += [now - written[one] for one in json.loads(text[6:]).split("\n") if one in written]
            if len(delays) >= 200:
                release.touch()
                break
    over.set()
    return statistics.quantiles(delays, n=20)[-1]


def main() -> int:
    """Print one JSON object; 1 when a goal is missed."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        found = runs(folder) | {"compile_s": compiling()} | pages(folder)
    found = {name: round(value, 3) for name, value in found.items()}
    missed = {name: goal for name, goal in GOALS.items() if found[name] > goal}
    print(json.dumps({**found, "goals": GOALS, "missed": missed}))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
