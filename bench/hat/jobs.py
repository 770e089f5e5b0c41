"""Steps as processes, each with its row: what ran, on what, how long, how much memory. Finished rows are kept.

Always holds: a row stands only for a step that ended well, and a job whose row has the same identity (component, config,
digests of its inputs) and whose result still lies there is not run again; so a stopped bench goes on where it was.
Not here: which jobs there are (plan), what is made of the rows (tables).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hat_components.data import digest_path
from hat_harness.digest import decimals, digest_json

Needs = Mapping[str, tuple[str, str] | Path]
"""Input name → (job name, artifact), or a path."""


@dataclass(frozen=True)
class Job:
    """One step."""

    name: str
    component: str
    config: Mapping[str, Any]
    needs: Needs = field(default_factory=dict)


class Runner:
    """Runs jobs in order, `side` of them at a time, one thread of torch each, under `folder`."""

    def __init__(self, folder: Path, side: int, prefix: Sequence[str] = ()) -> None:
        """`prefix` stands before every command, such as `nice`."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._side, self._prefix = folder, side, tuple(prefix)
        self._file = folder / "rows.jsonl"
        self._lock = threading.Lock()
        self.rows: dict[str, dict[str, Any]] = {}
        if self._file.is_file():
            for line in self._file.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                self.rows[row["job"]] = row

    def run(self, jobs: Sequence[Job]) -> list[str]:
        """Run what has no row yet, every job after those it needs; returns what went wrong, one line a job."""
        found: dict[str, Future[str]] = {}
        with ThreadPoolExecutor(self._side) as pool:
            for job in jobs:
                before = [found[need[0]] for need in job.needs.values() if isinstance(need, tuple) and need[0] in found]
                found[job.name] = pool.submit(self._after, job, before)
        return [problem for future in found.values() if (problem := future.result())]

    def path(self, job: str, artifact: str) -> Path:
        """Where an artifact of a finished job lies."""
        return self._out(job) / str(self.rows[job]["artifacts"][artifact])

    def _out(self, job: str) -> Path:
        return self.folder / job.replace("/", "-")

    def _after(self, job: Job, before: Sequence[Future[str]]) -> str:
        # Jobs are handed to the pool in their order, so whatever this one waits for has been started by another thread.
        if any(future.result() for future in before):
            return f"{job.name}: not run, since something that it needs failed"
        inputs = {name: self.path(*need) if isinstance(need, tuple) else need for name, need in job.needs.items()}
        told = {
            name: self.rows[need[0]]["digests"][need[1]] if isinstance(need, tuple) else digest_path(need)
            for name, need in job.needs.items()
        }
        identity = digest_json(decimals({"component": job.component, "config": dict(job.config), "inputs": told}))
        row = self.rows.get(job.name)
        if row and row["identity"] == identity and (self._out(job.name) / "result.json").is_file():
            return ""
        self._clear(job.name, identity)
        return self._start(job, inputs, identity)

    def _clear(self, job: str, identity: str) -> None:
        """Remove what another config or other inputs left; what the same ones left is gone on with."""
        out = self._out(job)
        mark = out.with_name(f"{out.name}.identity")
        if out.exists() and (not mark.is_file() or mark.read_text(encoding="utf-8") != identity):
            shutil.rmtree(out)
        mark.write_text(identity, encoding="utf-8")

    def _start(self, job: Job, inputs: Mapping[str, Path], identity: str) -> str:
        out = self._out(job.name)
        config = self.folder / f"{out.name}.config.json"
        config.write_text(json.dumps(job.config), encoding="utf-8")
        command = [
            *self._prefix,
            sys.executable,
            "-m",
            f"hat_components.{job.component}",
            "--config",
            str(config),
            "--out",
            str(out),
        ]
        command += [part for name, path in inputs.items() for part in ("--input", f"{name}={path}")]
        began = time.monotonic()
        with (self.folder / f"{out.name}.log").open("w", encoding="utf-8") as log:
            env = {**os.environ, "OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            return f"{job.name}: exit {process.returncode}, see {log.name}"
        result = json.loads((out / "result.json").read_text(encoding="utf-8"))
        row = {
            "job": job.name,
            "component": job.component,
            "identity": identity,
            "config": dict(job.config),
            "seconds": round(time.monotonic() - began, 1),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
            "peak_gib": round(usage.ru_maxrss / 2**20, 2),
            **{key: result[key] for key in ("artifacts", "digests", "metrics")},
        }
        with self._lock:
            self.rows[job.name] = row
            with self._file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row) + "\n")
        print(f"{job.name}: {row['seconds']} s, {row['peak_gib']} GiB", file=sys.stderr, flush=True)
        return ""
