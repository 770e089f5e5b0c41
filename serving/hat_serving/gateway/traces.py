"""Traces off the request path: a bounded queue and one writer thread that appends JSON lines to daily files.

Always holds: `put` never waits; when the queue is full the oldest trace is dropped and counted, so that viewers are
served before their records are. A file is append-only and each line is whole. Traces are written within `GATHER_S`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from hat_harness.trace import Trace

CAPACITY = 10_000
GATHER_S = 0.05
"""How long the writer lets traces come together: waking it for each would cost a busy gateway more than the writing."""


class TraceWriter:
    """Writes traces below `folder` as `<YYYY-MM-DD>.jsonl`, until `close`."""

    def __init__(
        self,
        folder: Path,
        *,
        capacity: int = CAPACITY,
        today: Callable[[], datetime] = lambda: datetime.now(UTC),
        also: Callable[[Trace, Mapping[str, str]], None] | None = None,
    ) -> None:
        self.dropped = 0
        self.written = 0
        self.failed = 0
        self._folder = folder
        self._capacity = capacity
        self._enough = max(1, capacity // 2)
        self._sleeps = False
        self._today = today
        self._also = also
        self._queue: deque[tuple[Trace, Mapping[str, str]]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        folder.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._run, name="trace-writer", daemon=True)
        self._thread.start()

    def put(self, trace: Trace, labels: Mapping[str, str] | None = None) -> None:
        """Queue one trace; `labels` (arm, release) go to `also` with it."""
        with self._wake:
            if len(self._queue) >= self._capacity:
                self._queue.popleft()
                self.dropped += 1
            self._queue.append((trace, labels or {}))
            if self._sleeps or len(self._queue) == self._enough:
                self._sleeps = False
                self._wake.notify()

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what is queued and stop."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._queue and not self._closing:
                    self._sleeps = True
                    self._wake.wait()
                self._sleeps = False
                if not self._closing and len(self._queue) < self._enough:
                    self._wake.wait(GATHER_S)
                if not self._queue:
                    return
                batch = list(self._queue)
                self._queue.clear()
            self._write(batch)

    def _write(self, batch: list[tuple[Trace, Mapping[str, str]]]) -> None:
        path = self._folder / f"{self._today():%Y-%m-%d}.jsonl"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.writelines(trace.model_dump_json() + "\n" for trace, _ in batch)
            self.written += len(batch)
        except OSError:
            # A full disk must not stop the gateway; the metric tells.
            self.failed += len(batch)
        if self._also is not None:
            for trace, labels in batch:
                self._also(trace, labels)
