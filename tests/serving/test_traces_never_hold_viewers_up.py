"""Traces are written beside the requests: a full queue sheds the oldest, a disk that takes nothing is counted."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path

from hat_harness.session import Session
from hat_harness.trace import Trace
from hat_serving.gateway.traces import TraceWriter
from tests.serving.conftest import World, shop


def trace(name: str) -> Trace:
    return Session(shop(), session_id=name).trace


def test_a_full_queue_sheds_the_oldest_and_counts_them(tmp_path: Path) -> None:
    busy, gate = threading.Event(), threading.Event()

    def slow(*_: object) -> None:
        busy.set()
        assert gate.wait(60)

    writer = TraceWriter(tmp_path, capacity=4, also=slow)
    writer.put(trace("first"))
    assert busy.wait(60)
    for number in range(10):
        writer.put(trace(str(number)))
    assert writer.dropped == 6
    gate.set()
    writer.close()
    (path,) = tmp_path.glob("*.jsonl")
    assert [json.loads(line)["session"] for line in path.read_text().splitlines()] == ["first", "6", "7", "8", "9"]
    assert writer.written == 5


def test_a_disk_that_takes_no_trace_costs_no_viewer_an_answer(world: World) -> None:
    assert world.host is not None
    writer = world.host.traces
    assert writer is not None
    writer._today = lambda: datetime(2026, 1, 1, tzinfo=UTC)
    (world.folder / "traces" / "2026-01-01.jsonl").mkdir()
    assert world.say("hi").json()["choices"][0]["message"]["content"] == "hello number 1 bye"
    writer.close()
    assert (writer.written, writer.failed) == (0, 1)
