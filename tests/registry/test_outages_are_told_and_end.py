"""Database or S3 gone: reads come from caches, writes are refused clearly, and all goes on without a restart."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from hat_harness.digest import harness_digest
from hat_registry import accounts, ledger, pointers
from hat_registry.api.app import create_app
from hat_registry.archive import write_tar
from hat_registry.client import Client
from hat_registry.registry import Registry
from hat_registry.store.blobs import FolderBlobs
from hat_registry.store.database import Database
from hat_registry.upkeep.check import check
from tests.registry.conftest import people
from tests.registry.pusher import files
from tests.registry.servers import S3, Postgres


class Served:
    """A registry behind a real server, with a token and a light client."""

    def __init__(self, registry: Registry, cache: Path) -> None:
        self.registry = registry
        ada, _, _ = people(registry.database)
        with registry.database.write() as tx:
            scopes = tuple(sorted(accounts.PERMISSIONS["approver"]))
            _, secret = accounts.issue_token(tx, ada, label="t", scopes=scopes)
        config = uvicorn.Config(create_app(registry, send_webhooks=False), port=0, log_level="critical")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()
            threading.Event().wait(0.02)
        self.url = f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"
        self.http = httpx.Client(
            base_url=f"{self.url}/api/v1", headers={"Authorization": f"Bearer {secret}"}, timeout=60
        )
        self.now = 0.0
        self.client = Client(self.url, cache, token=secret, clock=lambda: self.now)

    def push(self, number: int) -> httpx.Response:
        return self.http.post("/harnesses", params={"message": f"number {number}"}, content=write_tar(files(number)))

    def move(self, digest: str) -> httpx.Response:
        return self.http.put("/harnesses/shop/pointers/staging", json={"digest": digest})

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        self.http.close()
        self.registry.close()


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.close()


def refused(answer: httpx.Response, *secrets: str) -> dict[str, Any]:
    assert answer.status_code == 503, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["retry-after"]
    told: dict[str, Any] = answer.json()
    assert told["kind"] == "unavailable"
    assert told["cure"]
    assert not any(secret in answer.text for secret in secrets)
    return told


def test_a_database_that_crashes_and_comes_back(own_postgres: Postgres, tmp_path: Path) -> None:
    database = Database(own_postgres.url)
    database.migrate()
    served = Served(Registry(database, FolderBlobs(tmp_path / "blobs")), tmp_path / "cache")
    first = served.push(1).json()["digest"]
    assert served.move(first).status_code == 200
    resolved, harness = served.client.harness("shop", "staging")
    assert (resolved.digest, resolved.stale) == (first, False)
    own_postgres.crash()
    for answer in (served.push(2), served.move(first), served.http.get("/harnesses"), served.http.get("/ledger")):
        refused(answer, "postgres@")
    assert httpx.get(f"{served.url}/readyz").status_code == 503
    assert httpx.get(f"{served.url}/healthz").status_code == 200
    served.now = 3600.0
    resolved, again = served.client.harness("shop", "staging")
    assert (resolved.digest, resolved.stale, again) == (first, True, harness)
    own_postgres.start()
    assert httpx.get(f"{served.url}/readyz").status_code == 200
    second = served.push(2)
    assert second.status_code == 201
    assert served.move(second.json()["digest"]).status_code == 200
    served.now = 7200.0
    resolved, harness = served.client.harness("shop", "staging")
    assert (resolved.digest, resolved.stale) == (second.json()["digest"], False)
    assert harness_digest(harness) == resolved.digest
    assert check(served.registry, deep=True).findings == []
    served.close()


def test_a_blob_store_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    store = S3(tmp_path / "weed")
    try:
        database = Database(f"sqlite:///{tmp_path}/registry.db")
        database.migrate()
        served = Served(Registry(database, store.blobs()), tmp_path / "cache")
        first = served.push(1).json()["digest"]
        served.move(first)
        served.client.harness("shop", "staging")
        store.kill()
        refused(served.push(2), "hat-secret")
        assert served.http.get(f"/harnesses/shop/versions/{first}").status_code == 200, "rows are read without blobs"
        refused(served.http.get(f"/harnesses/shop/versions/{first}/archive"), "hat-secret")
        served.now = 3600.0
        resolved, harness = served.client.harness("shop", "staging")
        assert not resolved.stale
        assert harness_digest(harness) == first
        assert [one["number"] for one in served.http.get("/harnesses/shop").json()["items"]] == [1]
        store.start()
        second = served.push(2)
        assert second.status_code == 201
        assert served.http.get(f"/harnesses/shop/versions/{first}/archive").status_code == 200
        assert check(served.registry, deep=True).findings == []
        served.close()
    finally:
        store.kill()


def test_a_move_under_way_in_a_crash_is_whole_or_not_there(own_postgres: Postgres, tmp_path: Path) -> None:
    database = Database(own_postgres.url)
    database.migrate()
    registry = Registry(database, FolderBlobs(tmp_path / "blobs"))
    ended = threading.Event()
    acknowledged: list[str] = []

    def writer() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            try:
                version, _ = registry.push(accounts.SYSTEM, files(number), message=f"number {number}")
                with registry.database.write() as tx:
                    pointers.move_free(tx, accounts.SYSTEM, "harness", "shop", "staging", version.digest)
                acknowledged.append(version.digest)
            except Exception:
                ended.wait(0.05)

    thread = threading.Thread(target=writer)
    thread.start()
    for _ in range(3):
        seen = len(acknowledged)
        while len(acknowledged) < seen + 5:
            assert thread.is_alive()
            threading.Event().wait(0.02)
        own_postgres.crash()
        own_postgres.start()
    ended.set()
    thread.join(60)
    with registry.database.snapshot() as tx:
        ledger.verify(tx, "default")
        assert set(acknowledged) <= set(pointers.history(tx, "default", "harness", "shop", "staging", limit=100_000))
    assert check(registry, deep=True).findings == []
    registry.close()
