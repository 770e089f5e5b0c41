"""SIGKILL at any moment of pushes and moves: no half version, no lost acknowledged row, chain intact.

HATSTACK_KILLS sets how often; the results page has a run of 500.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from hat_registry import harnesses, ledger, pointers
from hat_registry.registry import Registry
from tests.registry.pusher import FORKS, life
from tests.registry.servers import fresh

KILLS = int(os.environ.get("HATSTACK_KILLS", "12"))


def pushed_until_killed(url: str, blobs: Path, start: int, rng: random.Random) -> list[str]:
    """Acknowledged digests of one life of the pusher; it is killed after a few of them, in the middle of the next."""
    told, telling = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=life, args=(url, str(blobs), start, telling))
    process.start()
    telling.close()
    seen = [told.recv_bytes().decode() for _ in range(rng.randint(0, 3))]
    threading.Event().wait(rng.random() * (0.03 if seen else 0.3))
    process.kill()
    process.join(20)
    while True:
        try:
            seen.append(told.recv_bytes().decode())
        except (EOFError, OSError):
            told.close()
            return seen


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_kill_at_any_moment(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = f"sqlite:///{tmp_path}/registry.db"
    if store == "postgres":
        url = fresh(request.getfixturevalue("postgres"), "killed")
    rng = random.Random(7)
    acknowledged: list[str] = []
    for life_number in range(KILLS):
        acknowledged += pushed_until_killed(url, tmp_path / "blobs", life_number * 1000, rng)
    assert len(acknowledged) >= KILLS // 2
    registry = Registry.open(url, tmp_path / "blobs")
    with registry.database.snapshot() as tx:
        assert ledger.verify(tx, "default").rows >= 2 * len(acknowledged)
        versions = harnesses.log(tx, "default", "shop", limit=100_000)
        assert set(acknowledged) <= {version.digest for version in versions}
        position = pointers.resolve(tx, "default", "harness", "shop", "staging")
        assert pointers.history(tx, "default", "harness", "shop", "staging")[0] == position.digest
        moves = len(ledger.rows(tx, "default", kind="move", limit=1_000_000))
        assert position.revision == moves
        assert len(ledger.rows(tx, "default", kind="push", limit=1_000_000)) == len(versions)
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
