"""A cluster ends with the process that started it, and a missing build is said, not skipped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.controlplane import able, build
from tests.cluster.controlplane.cluster import REPOSITORY
from tests.cluster.controlplane.errors import ControlPlaneError, NotBuiltError
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


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Puts a `go` of one's own first, and an empty cache; `unshare` and `ip` stay reachable."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin")

    def put(script: str) -> None:
        program = tmp_path / "bin" / "go"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return put


def test_a_build_that_takes_too_long_is_ended_with_all_it_started(
    go: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    go(f"sleep 600 & echo $! > {tmp_path}/child; wait")
    monkeypatch.setenv("HATSTACK_BUILD_MINUTES", "0.01")
    with pytest.raises(ControlPlaneError, match="not done in time"):
        build.build()
    child = (tmp_path / "child").read_text().strip()
    until(lambda: not _alive(child), "what it started is gone")
    assert not (build.cache_root() / build.key()).exists()


def test_a_build_that_fails_says_what_go_said_and_leaves_no_finished_folder(go: Callable[[str], None]) -> None:
    go("echo 'module lookup disabled' >&2; exit 1")
    with pytest.raises(ControlPlaneError, match="module lookup disabled"):
        build.build()
    assert not (build.cache_root() / build.key()).exists()


def test_a_second_build_waits_for_the_first_and_not_for_ever(go: Callable[[str], None]) -> None:
    go("exit 1")
    with (
        build.only_one(time.monotonic() + 1),
        pytest.raises(ControlPlaneError, match="another build took too long"),
        build.only_one(time.monotonic()),
    ):
        pass


def test_a_machine_that_cannot_build_says_why(go: Callable[[str], None]) -> None:
    go("echo go version go1.20.1 linux/amd64")
    assert "older than" in able.unbuildable()


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


def _alive(pid: str) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
