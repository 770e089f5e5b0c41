"""Usage records of passed requests, off the request path: one JSON line each in daily files.

Always holds: `put` never waits and wakes nobody; a full queue drops the oldest and counts it. Not here: token counts of
agents' turns (their traces have them).
"""

from __future__ import annotations

import threading
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

import orjson

Row = tuple[float, str, str, int, int, int, float]
"""(Unix time, engine, caller, status, tokens in, tokens out, seconds)."""
NAMES = ("at", "engine", "caller", "status", "tokens_in", "tokens_out", "seconds")
EVERY_S = 0.5
CAPACITY = 100_000


class UsageWriter:
    """Appends rows below `folder` as `<YYYY-MM-DD>.jsonl`, twice a second, until `close`."""

    def __init__(self, folder: Path, *, capacity: int = CAPACITY) -> None:
        self.dropped = 0
        self._folder = folder
        self._rows: deque[Row] = deque()
        self._capacity = capacity
        self._closing = threading.Event()
        folder.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._run, name="usage-writer", daemon=True)
        self._thread.start()

    def put(self, row: Row) -> None:
        """Queue one record."""
        if len(self._rows) >= self._capacity:
            self._rows.popleft()
            self.dropped += 1
        self._rows.append(row)

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what is queued and stop."""
        self._closing.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._closing.wait(EVERY_S):
            self._write()
        self._write()

    def _write(self) -> None:
        rows = [self._rows.popleft() for _ in range(len(self._rows))]
        if not rows:
            return
        path = self._folder / f"{datetime.now(UTC):%Y-%m-%d}.jsonl"
        lines = b"".join(orjson.dumps(dict(zip(NAMES, row, strict=True))) + b"\n" for row in rows)
        try:
            with path.open("ab") as file:
                file.write(lines)
        except OSError:
            # A full disk must not stop the gateway.
            self.dropped += len(rows)
