"""A cluster that outlives the command that started it: where it is noted, and how it is found and stopped again."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.cluster.controlplane import build, cluster
from tests.cluster.controlplane.errors import ControlPlaneError


def up(*, llm: bool) -> dict[str, Any]:
    """Starts the cluster and notes it; the note is returned. An older one must be taken down first."""
    if (found := running()) is not None:
        raise ControlPlaneError(
            f"a cluster runs already (process {found['pid']})",
            cure="stop it with `python -m tests.cluster.controlplane down`",
        )
    started = cluster.Cluster.start(llm=llm, detached=True, say=print)
    pid = started.process.pid
    note = {
        "pid": pid,
        "born": _born(pid),
        "folder": str(started.folder),
        "kubeconfig": str(started.kubeconfig),
        "gateway": started.gateway,
    }
    _note().write_text(json.dumps(note))
    return note


def down() -> bool:
    """Stops it. False when none runs."""
    found = running()
    if found is None:
        return False
    pid, born = found["pid"], found["born"]

    def wait(seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while _born(pid) == born:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("supervisor", seconds)
            time.sleep(0.05)

    cluster.stop(pid, wait)
    shutil.rmtree(found["folder"], ignore_errors=True)
    _note().unlink(missing_ok=True)
    return True


def running() -> dict[str, Any] | None:
    """The note of the running cluster; a note whose process is gone is none."""
    if not _note().exists():
        return None
    note: dict[str, Any] = json.loads(_note().read_text())
    return note if note["born"] and _born(note["pid"]) == note["born"] else None


def _note() -> Path:
    return build.cache_root() / "up.json"


def _born(pid: int) -> str:
    """Start time of a process, so that a process id that was given anew is not mistaken for it. Empty:

    No such process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
