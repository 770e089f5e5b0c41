"""A cluster ends with the process that started it, and a missing build is said, not skipped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.controlplane import build
from tests.cluster.controlplane.cluster import REPOSITORY
from tests.cluster.controlplane.errors import NotBuiltError
from tests.cluster.helpers import until

STARTER = """
import time
from tests.cluster.controlplane.cluster import Cluster
running = Cluster.start()
print(running.folder, flush=True)
time.sleep(600)
"""


def test_a_missing_build_names_the_make_target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(NotBuiltError, match="make control-plane"):
        build.folder()


def test_a_build_is_named_by_its_module_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("go.mod", "go.sum"):
        (tmp_path / name).write_bytes((build.MODULE / name).read_bytes())
    before = build.key()
    monkeypatch.setattr(build, "MODULE", tmp_path)
    assert build.key() == before
    (tmp_path / "go.sum").write_text("changed")
    assert build.key() != before


def test_go_mod_names_no_host_to_fetch_from() -> None:
    text = (build.MODULE / "go.mod").read_text()
    assert "://" not in text
    assert "=> ./" not in text


@pytest.mark.cluster
def test_a_killed_run_leaves_no_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        folder = starter.stdout.readline().strip()
        assert folder, "the cluster did not start"
        assert _processes_of(folder)
        os.kill(starter.pid, signal.SIGKILL)
    until(lambda: not _processes_of(folder), "every process of the cluster is gone")
    assert not Path(folder).exists()


def _processes_of(folder: str) -> list[str]:
    """Command lines that name the cluster's folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if folder in line:
            found.append(line)
    return found
