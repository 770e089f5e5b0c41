"""The same promises on a real Postgres and a real S3: pushes, moves, chain, one winner among movers on two servers."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from hat_registry import ledger, pointers
from hat_registry.archive import read_folder
from hat_registry.errors import ConflictError, NotFoundError, StoreError
from hat_registry.registry import Registry
from hat_registry.store.blobs import BlobStore, FolderBlobs, S3Blobs
from hat_registry.store.database import Database
from hat_registry.store.label_tables import metadata
from tests.registry.conftest import Place, people, push
from tests.registry.servers import fresh

SHIPPED = Path(__file__).resolve().parents[2] / "harness-registry" / "harnesses" / "react-baseline"


def test_push_move_and_verify_on_postgres(on_postgres: Place) -> None:
    one, two = push(on_postgres, "one"), push(on_postgres, "two")
    with on_postgres.database.write() as tx:
        pointers.move_free(tx, on_postgres.ada, "harness", "shop", "staging", one)
        pointers.move_free(tx, on_postgres.ada, "harness", "shop", "staging", two)
        assert pointers.rollback(tx, on_postgres.ada, "harness", "shop", "staging", reason="bad").digest == one
        assert ledger.verify(tx, "default").rows >= 5


def test_two_servers_on_one_postgres_never_move_twice(on_postgres: Place) -> None:
    start = push(on_postgres, "zero")
    with on_postgres.database.write() as tx:
        pointers.move_free(tx, on_postgres.ada, "harness", "shop", "staging", start)
    digests = [push(on_postgres, f"text {number}") for number in range(8)]
    servers = [on_postgres.database, Database(on_postgres.database.engine.url.render_as_string(hide_password=False))]
    won: list[str] = []
    lost: list[str] = []
    gate = threading.Barrier(len(digests))

    def mover(number: int, digest: str) -> None:
        gate.wait(timeout=20)
        try:
            with servers[number % 2].write() as tx:
                pointers.move(tx, on_postgres.ada, "harness", "shop", "staging", digest, revision=1)
            won.append(digest)
        except ConflictError as error:
            lost.append(str(error))

    threads = [threading.Thread(target=mover, args=pair) for pair in enumerate(digests)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    servers[1].close()
    assert (len(won), len(lost)) == (1, 7)
    with on_postgres.database.read() as tx:
        assert pointers.resolve(tx, "default", "harness", "shop", "staging").digest == won[0]
        ledger.verify(tx, "default")


def test_migrations_make_what_the_tables_say(on_postgres: Place, place: Place) -> None:
    for database in (on_postgres.database, place.database):
        with database.engine.connect() as connection:
            context = MigrationContext.configure(connection)
            assert compare_metadata(context, metadata) == []


def test_blobs_come_back_checked_from_s3(s3: S3Blobs) -> None:
    digest = s3.put(b"content")
    assert s3.put(b"content") == digest
    assert s3.get(digest) == b"content"
    assert digest in set(s3.digests())
    s3.client.put_object(Bucket=s3.bucket, Key=s3._key(digest), Body=b"other")
    with pytest.raises(StoreError, match="damaged"):
        s3.get(digest)
    s3.delete(digest)
    assert not s3.has(digest)
    with pytest.raises(NotFoundError):
        s3.get(digest)


def test_a_harness_lives_in_postgres_and_s3(postgres: str, s3: S3Blobs) -> None:
    database = Database(fresh(postgres, "whole"))
    database.migrate()
    ada, _, _ = people(database)
    registry = Registry(database, s3)
    version, changed = registry.push(ada, read_folder(SHIPPED), message="first")
    assert changed
    assert registry.load("default", version.name, version.digest)[0] == version
    registry.close()


@pytest.mark.parametrize("store", ["s3", "folder"])
def test_a_store_that_is_away_refuses_clearly_and_leaves_no_version(place: Place, tmp_path: Path, store: str) -> None:
    blobs: BlobStore
    if store == "s3":
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
        blobs = S3Blobs("away", endpoint="http://127.0.0.1:9", **keys)
    else:
        blobs = FolderBlobs(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        (tmp_path / "gone").write_text("a file where the folder was")
    registry = Registry(place.database, blobs)
    with pytest.raises(StoreError):
        registry.push(place.ada, read_folder(SHIPPED), message="first")
    with place.database.read() as tx, pytest.raises(NotFoundError):
        pointers.resolve(tx, "default", "harness", "react-baseline", "staging")


def test_a_database_that_is_away_is_unavailable_and_tells_no_password() -> None:
    away = Database("postgresql+psycopg://hat:very-secret@127.0.0.1:9/none")
    with pytest.raises(StoreError) as raised, away.read() as tx:
        tx.exec_driver_sql("select 1")
    assert "very-secret" not in str(raised.value)
