"""What a run has used: tokens seen in training, and GPU-seconds.

Tokens: training steps report `progress(done, total, "tokens")`; a count that falls begins a new course. GPU-seconds:
wall time of a step times the GPUs that it asks for; steps that ask for none cost none. Not here: stopping (supervise).
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hat_pipelines.desk.order import Budget
from hat_pipelines.runs import RunFolder, RunRecord


@dataclass(frozen=True, slots=True)
class Used:
    """What all steps of a run have used so far."""

    tokens: int = 0
    gpu_seconds: float = 0.0

    def beyond(self, budget: Budget) -> str:
        """Which bound is passed, in words; "" while none is."""
        if budget.tokens is not None and self.tokens > budget.tokens:
            return f"{self.tokens:,} tokens of {budget.tokens:,}"
        if budget.gpu_seconds is not None and self.gpu_seconds > budget.gpu_seconds:
            return f"{self.gpu_seconds:.0f} GPU-seconds of {budget.gpu_seconds:.0f}"
        return ""


class Meter:
    """Reads a run's use again and again; progress files are read from where the last reading ended."""

    def __init__(self, gpus: Mapping[str, int]) -> None:
        self._gpus = gpus
        self._counters: dict[str, TokenCounter] = {}

    def read(self, folder: RunFolder) -> Used:
        """The use of a run whose record is on disk; cached steps cost nothing."""
        record = RunRecord.model_validate_json((folder.path / "run.json").read_bytes())
        tokens, seconds = 0, 0.0
        for name, step in record.steps.items():
            if step.state in ("waiting", "skipped", "cached"):
                continue
            counter = self._counters.setdefault(name, TokenCounter(folder.step(name).progress))
            tokens += counter.read()
            spent = _since(step.started) if step.state == "running" else step.seconds
            seconds += spent * self._gpus.get(name, 0)
        return Used(tokens, seconds)


class TokenCounter:
    """Counts the tokens in one progress file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._before = self._now = 0

    def read(self) -> int:
        """Tokens so far; a file that became shorter is read anew."""
        try:
            with self._path.open("rb") as stream:
                if stream.seek(0, 2) < self._offset:
                    self._offset = self._before = self._now = 0
                stream.seek(self._offset)
                block = stream.read()
        except OSError:
            return self._before + self._now
        whole = block[: block.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            if b'"tokens"' not in line:
                continue
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if record.get("kind") == "progress" and record.get("note") == "tokens":
                done = int(record.get("done", 0))
                if done < self._now:
                    self._before += self._now
                self._now = done
        return self._before + self._now


def _since(started: str) -> float:
    if not started:
        return 0.0
    return max(0.0, (datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(started)).total_seconds())
