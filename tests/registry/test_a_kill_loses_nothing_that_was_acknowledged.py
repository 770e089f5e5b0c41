"""SIGKILL at any moment of pushes and moves: no half version, no lost acknowledged row, chain intact (bench has 500 kills)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hat_registry import harnesses, ledger, pointers
from hat_registry.registry import Registry

PUSHER = Path(__file__).with_name("pusher.py")
KILLS = int(os.environ.get("HATSTACK_KILLS", "6"))


def pushed_until_killed(folder: Path, start: int, rng: random.Random) -> list[str]:
    """Acknowledged digests of one life of the pusher; it is killed after a few of them, in the middle of the next."""
    process = subprocess.Popen(
        [sys.executable, str(PUSHER), str(folder), str(start)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    seen = [process.stdout.readline().strip() for _ in range(rng.randint(1, 4))]
    threading.Event().wait(rng.random() * 0.03)
    process.send_signal(signal.SIGKILL)
    seen += [line.strip() for line in process.stdout.read().splitlines()]
    process.wait(20)
    return [digest for digest in seen if len(digest) == 71]


def test_kill_at_any_moment(tmp_path: Path) -> None:
    rng = random.Random(7)
    acknowledged: list[str] = []
    for life in range(KILLS):
        acknowledged += pushed_until_killed(tmp_path, life * 1000, rng)
    assert len(acknowledged) >= KILLS
    registry = Registry.open(f"sqlite:///{tmp_path}/registry.db", tmp_path / "blobs")
    with registry.database.read() as tx:
        assert ledger.verify(tx, "default").rows >= 2 * len(acknowledged)
        versions = harnesses.log(tx, "default", "shop", limit=500)
        assert set(acknowledged) <= {version.digest for version in versions}
        position = pointers.resolve(tx, "default", "harness", "shop", "staging")
        assert pointers.history(tx, "default", "harness", "shop", "staging")[0] == position.digest
    for version in versions:
        assert harnesses.parse(harnesses.files_of(registry.blobs, version)).name == "shop"
    registry.close()


@pytest.mark.parametrize("left", [".new-half"])
def test_leftovers_of_a_kill_are_no_blobs(tmp_path: Path, left: str) -> None:
    registry = Registry.open(f"sqlite:///{tmp_path}/registry.db", tmp_path / "blobs")
    digest = registry.blobs.put(b"whole")
    (tmp_path / "blobs" / digest[7:9] / left).write_bytes(b"half")
    assert list(registry.blobs.digests()) == [digest]
    registry.close()
