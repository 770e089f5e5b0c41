"""Backup and restore of database, blobs and MLflow as one drill, on each pair of stores; damage is found; garbage is safe."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text, update

from hat_registry import accounts, harnesses, ledger, pointers, releases
from hat_registry.errors import ConflictError, InvalidError, LedgerError, StoreError
from hat_registry.mlflow_link import Mlflow
from hat_registry.registry import Registry
from hat_registry.store import label_tables
from hat_registry.store.blobs import BlobStore, FolderBlobs, S3Blobs
from hat_registry.store.database import Database
from hat_registry.store.tables import harness_version, pointer
from hat_registry.upkeep import backup, gc
from hat_registry.upkeep.check import check
from tests.registry.conftest import people
from tests.registry.pusher import files
from tests.registry.servers import database_name, fresh

MODEL, PROFILE = "sha256:" + "a" * 64, "sha256:" + "b" * 64


@dataclass
class Live:
    """A registry with some history, and an MLflow with one registered model and its artifact."""

    registry: Registry
    url: str
    mlflow: str
    artifacts: Path


def filled(registry: Registry) -> None:
    ada, bo, _ = people(registry.database)
    for number in range(4):
        version, _ = registry.push(ada, files(number), message=f"number {number}")
        with registry.database.write() as tx:
            pointers.move_free(tx, ada, "harness", "shop", "staging", version.digest)
    with registry.database.write() as tx:
        new = releases.Release(
            name="shop", model=MODEL, model_reference="models:/default.shop/1", harness=version.digest, profile=PROFILE
        )
        digest, _ = releases.add(tx, ada, new)
        pointers.move_free(tx, bo, "release", "shop", "staging", digest)
        tx.execute(label_tables.project.insert().values(
            workspace="default", name="duel", content="{}", created_by="ada", created_at="2026-01-01T00:00:00.000000Z"
        ))  # fmt: skip


@pytest.fixture(scope="session")
def mlflow_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an MLflow database and artifacts: a run, a metric that is no number, a model version, an alias."""
    folder = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{folder}/mlflow.db"
    with Mlflow(uri).asked() as client:
        experiment = client.create_experiment("default.shop", artifact_location=str(folder / "artifacts"))
        run = client.create_run(experiment, tags={"hatstack.model": MODEL})
        client.log_metric(run.info.run_id, "loss", float("nan"))
        (folder / "weights.safetensors").write_bytes(bytes(range(256)) * 300)
        client.log_artifact(run.info.run_id, str(folder / "weights.safetensors"), "model")
        client.create_registered_model("default.shop")
        source = f"{run.info.artifact_uri}/model"
        client.create_model_version("default.shop", source, run.info.run_id, tags={"hatstack.model": MODEL})
        client.set_registered_model_alias("default.shop", "staging", "1")
    return folder


@pytest.fixture(params=["sqlite and folder", "postgres and s3"])
def live(request: pytest.FixtureRequest, tmp_path: Path, mlflow_store: Path) -> Iterator[Live]:
    url, blobs = f"sqlite:///{tmp_path}/live/registry.db", FolderBlobs(tmp_path / "live" / "blobs")
    store: BlobStore = blobs
    if request.param == "postgres and s3":
        name = database_name(request.node.name)
        url = fresh(request.getfixturevalue("postgres"), name)
        shared: S3Blobs = request.getfixturevalue("s3")
        keys = {"aws_access_key_id": "hat", "aws_secret_access_key": "hat-secret", "region_name": "us-east-1"}
        store = S3Blobs(shared.bucket, prefix=f"{name}/", endpoint=shared.client.meta.endpoint_url, **keys)
    registry = Registry(Database(url), store)
    registry.database.migrate()
    filled(registry)
    yield Live(registry, url, f"sqlite:///{mlflow_store}/mlflow.db", mlflow_store / "artifacts")
    registry.close()


def rows(database: Database, skip: tuple[str, ...] = ("alembic_version",)) -> dict[str, Any]:
    with database.snapshot() as tx:
        _, metadata = backup._reflected(tx)
        return {
            table.name: sorted(str(tuple(row)) for row in tx.execute(select(table)))
            for table in metadata.sorted_tables
            if table.name not in skip
        }


def test_the_drill(live: Live, tmp_path: Path) -> None:
    manifest, digest = backup.take(live.registry, tmp_path / "b", mlflow=live.mlflow, artifacts=str(live.artifacts))
    assert manifest.missing == []
    assert manifest.blobs == len({d for n in range(4) for d in map(gc_digest, files(n).values())})
    before = rows(live.registry.database)
    with pytest.raises(InvalidError, match="MLflow's part"):
        backup.restore(tmp_path / "b", f"sqlite:///{tmp_path}/x.db", str(tmp_path / "x"))
    new = tmp_path / "new"
    places = {"mlflow": f"sqlite:///{new}/mlflow.db", "artifacts": str(new / "artifacts")}
    new.mkdir()
    assert backup.restore(tmp_path / "b", f"sqlite:///{new}/r.db", str(new / "blobs"), **places)[1] == digest
    registry = Registry.open(f"sqlite:///{new}/r.db", new / "blobs")
    after = rows(registry.database)
    assert {name: kept for name, kept in after.items() if not name.startswith("ledger")} == {
        name: kept for name, kept in before.items() if not name.startswith("ledger")
    }
    with registry.database.snapshot() as tx:
        last = ledger.rows(tx, "default", newest_first=True, limit=1)[0]
        assert ledger.verify(tx, "default").rows == manifest.heads["default"].seq + 1
    assert (last.kind, last.data["backup"]) == ("restore", digest)
    report = check(registry, deep=True, mlflow=Mlflow(places["mlflow"]))
    assert report.findings == []
    assert report.counts["MLflow aliases"] == 1
    with Mlflow(places["mlflow"]).asked() as client:
        version = client.get_model_version_by_alias("default.shop", "staging")
        run = client.get_run(version.run_id)
        assert version.source.startswith(str(new / "artifacts"))
        assert run.data.metrics["loss"] != run.data.metrics["loss"]
        got = client.download_artifacts(version.run_id, "model/weights.safetensors", str(tmp_path))
        assert Path(got).read_bytes() == bytes(range(256)) * 300
        client.create_experiment("goes on counting")
    actor = accounts.SYSTEM
    assert registry.push(actor, files(99), message="life goes on")[1]
    registry.close()
    with pytest.raises(ConflictError, match="not empty"):
        backup.restore(tmp_path / "b", f"sqlite:///{new}/r.db", str(new / "blobs"), **places)


def gc_digest(content: bytes) -> str:
    from hat_harness.digest import digest_bytes

    return digest_bytes(content)


def test_a_backup_of_one_kind_of_store_restores_into_another(live: Live, tmp_path: Path, postgres: str) -> None:
    backup.take(live.registry, tmp_path / "b")
    name = f"moved_{live.registry.database.dialect}"
    url = fresh(postgres, name) if live.registry.database.dialect == "sqlite" else f"sqlite:///{tmp_path}/moved.db"
    backup.restore(tmp_path / "b", url, str(tmp_path / "moved"))
    registry = Registry.open(url, tmp_path / "moved")
    assert check(registry, deep=True).findings == []
    registry.close()


def test_a_backup_is_private_whole_and_the_same_for_the_same_rows(live: Live, tmp_path: Path) -> None:
    first, _ = backup.take(live.registry, tmp_path / "one")
    second, _ = backup.take(live.registry, tmp_path / "two")
    assert (first.tables, first.heads, first.blobs) == (second.tables, second.heads, second.blobs)
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "one").rglob("*")} == {0}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    with pytest.raises(ConflictError, match="exists already"):
        backup.take(live.registry, tmp_path / "one")


@pytest.mark.parametrize("damage", ["row", "table", "blob", "lost blob", "head"])
def test_a_damaged_backup_is_refused_and_restores_nothing(live: Live, tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "b"
    backup.take(live.registry, folder)
    blob = next((folder / "blobs").glob("??/*"))
    if damage == "row":
        path = folder / "database" / "ledger.jsonl.gz"
        lines = gzip.decompress(path.read_bytes()).replace(b"number 2", b"number 7")
        path.write_bytes(gzip.compress(lines))
        told = json.loads((folder / "backup.json").read_text())
        told["tables"]["ledger"]["digest"] = gc_digest(path.read_bytes())  # a careful forger
        (folder / "backup.json").write_text(json.dumps(told))
    elif damage == "table":
        (folder / "database" / "pointer.jsonl.gz").unlink()
    elif damage == "blob":
        blob.chmod(0o600)
        blob.write_bytes(b"other")
    elif damage == "lost blob":
        blob.unlink()
    else:
        told = json.loads((folder / "backup.json").read_text())
        told["heads"]["default"]["seq"] -= 1
        (folder / "backup.json").write_text(json.dumps(told))
    url = f"sqlite:///{tmp_path}/r.db"
    with pytest.raises((InvalidError, LedgerError, StoreError), match=r"damaged|missing|row|are here|does not end"):
        backup.restore(folder, url, str(tmp_path / "blobs"))
    assert not (tmp_path / "r.db").exists()


def test_the_check_names_what_does_not_fit(live: Live, mlflow_store: Path) -> None:
    registry = live.registry
    assert check(registry, deep=True, mlflow=Mlflow(live.mlflow)).findings == []
    lost, broken = sorted(
        gc_digest(content) for content in (files(0)["prompts/rules.md"], files(1)["prompts/rules.md"])
    )
    registry.blobs.delete(lost)
    if isinstance(registry.blobs, FolderBlobs):
        registry.blobs._path(broken).write_bytes(b"rotten")
    else:
        assert isinstance(registry.blobs, S3Blobs)
        registry.blobs.client.put_object(Bucket="hatstack", Key=registry.blobs._key(broken), Body=b"rotten")
    with registry.database.write() as tx:
        tx.execute(update(pointer).where(pointer.c.kind == "harness").values(digest=MODEL))
        tx.execute(update(harness_version).where(harness_version.c.number == 2).values(
            manifest='{"files": {}, "format": 1, "parts": {}}'
        ))  # fmt: skip
        tx.execute(text("update ledger set actor = 'mallory' where seq = 5"))
    told = [(one.part, one.place, one.message) for one in check(registry, deep=True).findings]
    assert [part for part, _, _ in told].count("blob") == (2 if broken in str(told) else 1)
    assert any(part == "blob" and place == lost and "missing" in message for part, place, message in told)
    assert any(part == "version" and "does not have its digest" in message for part, _, message in told)
    assert any(part == "pointer" and "the ledger says" in message for part, _, message in told)
    assert any(part == "pointer" and "no harness shop" in message for part, _, message in told)
    assert any(part == "ledger" and "row 5" in message for part, _, message in told)


def test_garbage_goes_after_its_grace_and_nothing_else(live: Live) -> None:
    registry = live.registry
    named = set(registry.blobs.digests())
    orphan = registry.blobs.put(b"nobody names me")
    written = registry.blobs.written_at(orphan)
    assert written is not None
    assert gc.collect(registry, grace_s=3600).blobs == 0
    dry = gc.collect(registry, grace_s=3600, now=written + 3602, dry_run=True)
    assert (dry.blobs, dry.bytes, registry.blobs.has(orphan)) == (1, 15, True)
    done = gc.collect(registry, grace_s=3600, now=written + 3602)
    assert (done.blobs, done.kept) == (1, len(named))
    assert set(registry.blobs.digests()) == named


def test_garbage_never_takes_a_blob_from_under_a_push(live: Live) -> None:
    registry = live.registry
    ada = accounts.SYSTEM
    ended = threading.Event()
    failures: list[str] = []

    def collector() -> None:
        while not ended.is_set():
            gc.collect(registry, grace_s=0, now=4e9)

    thread = threading.Thread(target=collector)
    thread.start()
    try:
        for number in range(100, 130):
            version, _ = registry.push(ada, files(number), message="while garbage is collected")
            try:
                harnesses.files_of(registry.blobs, version)
            except Exception as error:
                failures.append(str(error))
    finally:
        ended.set()
        thread.join(60)
    assert failures == []
    assert check(registry, deep=True).findings == []


def test_a_push_stores_again_what_was_collected_before_its_row(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, real = live.registry, harnesses.store_blobs

    def stored_then_lost(blobs: BlobStore, given: dict[str, bytes]) -> dict[str, str]:
        made = real(blobs, given)
        monkeypatch.setattr(harnesses, "store_blobs", real)
        assert gc.collect(registry, grace_s=0, now=4e9).blobs >= 1
        return made

    monkeypatch.setattr(harnesses, "store_blobs", stored_then_lost)
    version, _ = registry.push(accounts.SYSTEM, files(555), message="collected between blob and row")
    assert harnesses.files_of(registry.blobs, version) == files(555)


def test_half_written_leftovers_are_swept(tmp_path: Path) -> None:
    registry = Registry.open(f"sqlite:///{tmp_path}/registry.db", tmp_path / "blobs")
    digest = registry.blobs.put(b"whole")
    left = tmp_path / "blobs" / digest[7:9] / ".new-half"
    left.write_bytes(b"half")
    assert gc.collect(registry, grace_s=0, now=4e9).leftovers == 0, "a writer may be at it"
    os.utime(left, (0, 0))
    assert gc.collect(registry, grace_s=0, now=4e9).leftovers == 1
    assert not left.exists()
    registry.close()
