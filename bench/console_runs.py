"""The run pages of a busy console: a list of 200 runs of 10 steps, and how soon a line of a log is on the page.

    first  the first /runs after a start, as a page: under 200 ms
    list   /runs as a page and as JSON: p95 under 200 ms
    log    a step's log is written line by line while a stream of it is open: from write to receipt, p95 under 1 s

Prints one JSON line a case, exits 1 when one misses. Run: python -m bench console_runs
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from registry_read import free_port, wait_for

from hat_pipelines.runs import RunFolder, RunRecord, StepRecord, create, now

RUNS, STEPS, ASKS, LINES = 200, 10, 60, 150
missed: list[str] = []


def told(case: str, samples_ms: list[float], goal: float) -> None:
    """One JSON line: p95 beside the goal."""
    ordered = sorted(samples_ms)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    if p95 > goal:
        missed.append(case)
    row = {"case": case, "p95 ms": round(p95, 1), "median ms": round(ordered[len(ordered) // 2], 1), "goal": goal}
    print(json.dumps({**row, "met": p95 <= goal, "n": len(ordered)}), flush=True)


def fill(root: Path) -> RunFolder:
    """200 finished runs, and one whose step is being worked on."""
    digest = "sha256:" + "ab" * 32
    steps = {
        f"step-{k}": StepRecord(component="evaluate", state="done", key=digest, started=now(), ended=now(), seconds=1.5)
        for k in range(STEPS)
    }
    last: RunFolder | None = None
    for number in range(RUNS):
        record = RunRecord(
            id="", pipeline="train", profile="smoke", config=digest, code=digest, started=now(), ended=now(),
            state="done", steps=steps,
        )  # fmt: skip
        last = create(root, f"run-{number:03}", "name: smoke\n", record)
    assert last is not None
    last.save(state="running", ended="")
    last.set_step("step-9", state="running", ended="")
    last.step("step-9").path.mkdir(parents=True)
    last.step("step-9").log.touch()
    return last


def listed(host: str, accept: str, asks: int = ASKS) -> list[float]:
    """Milliseconds of each answer."""
    connection = HTTPConnection(host, timeout=60)
    times = []
    for _ in range(asks):
        began = time.perf_counter()
        connection.request("GET", "/runs", headers={"Accept": accept})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (answer.status, body[:300])
        times.append(1000 * (time.perf_counter() - began))
    return times


def streamed(host: str, run: RunFolder) -> list[float]:
    """Milliseconds from the write of each line to its receipt over the stream that the page reads."""
    log = run.step("step-9").log
    written: dict[int, float] = {}
    found: list[float] = []

    def write() -> None:
        with log.open("a", encoding="utf-8") as stream:
            for number in range(LINES):
                time.sleep(0.037)  # out of step with the server's own looks
                written[number] = time.perf_counter()
                stream.write(f"line {number}\n")
                stream.flush()

    connection = HTTPConnection(host, timeout=60)
    connection.request("GET", f"/api/v1/runs/{run.id}/steps/step-9/log/stream?offset=0")
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    writer = threading.Thread(target=write)
    writer.start()
    while len(found) < LINES:
        line = answer.readline()
        if not line.startswith(b'data: "'):
            continue
        at = time.perf_counter()
        for text in json.loads(line[6:]).splitlines():
            found.append(1000 * (at - written[int(text.split()[1])]))
    writer.join()
    connection.close()
    return found


def main() -> None:
    """Fill, serve, ask."""
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "runs"
        run = fill(root)
        port = free_port()
        command: list[Any] = [sys.executable, "-m", "hat_console", "--data", Path(temporary) / "data", "--port", port]
        process = subprocess.Popen(
            [*map(str, command), "--open", "--runs", str(root)], stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            with run.lock():
                host = f"127.0.0.1:{port}"
                wait_for(f"http://{host}/healthz", process)
                told("the first list after a start", listed(host, "text/html", 1), 200)
                told(f"list of {RUNS} runs x {STEPS} steps, page", listed(host, "text/html"), 200)
                told(f"list of {RUNS} runs x {STEPS} steps, JSON", listed(host, "application/json"), 200)
                told("a log line on its way to the page", streamed(host, run), 1000)
        finally:
            process.terminate()
            process.wait(20)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
