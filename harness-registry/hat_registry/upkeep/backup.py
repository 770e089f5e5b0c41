"""A backup: one folder with the registry's rows, the blobs that they name, and MLflow; restored as one.

    backup.json            what is in it (hatstack.backup/1): digests of all files, ledger heads, schema revisions
    database/*.jsonl.gz    one file a table, as of one moment
    blobs/<xx>/<hex>       every blob that a version of that moment names
    mlflow/                database and artifacts, taken after the registry's rows, so that all they name is there

Always holds: the folder appears under its name only when it is whole; what is restored has been verified first, and a
restore goes into an empty registry, in one transaction, and stands in the ledger. It holds password and token hashes:
folders and files are for their owner alone. Not here: checks of a running registry (check).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from alembic.migration import MigrationContext
from alembic.util import CommandError
from pydantic import BaseModel, ConfigDict, ValidationError
from sqlalchemy import Connection, MetaData, func, select

from hat_harness.digest import digest_bytes
from hat_registry import clock, ledger
from hat_registry.accounts import SYSTEM
from hat_registry.errors import ConflictError, InvalidError, LedgerError, NotFoundError
from hat_registry.registry import Registry
from hat_registry.store.blobs import BlobStore, FolderBlobs
from hat_registry.store.database import Database
from hat_registry.store.tables import account, harness_version, ledger_head
from hat_registry.upkeep import dump, gc, mlflow_store
from hat_registry.upkeep.files import digest_file

MANIFEST = "backup.json"
WORKERS = 16
REVISION = "alembic_version"
LEGACY = {"label_schema"}
"""Tables of earlier releases that nothing reads any more."""


class Manifest(BaseModel):
    """What a backup holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["hatstack.backup/1"] = "hatstack.backup/1"
    at: str
    """UTC; the moment that the rows are of."""
    hatstack: str
    """Version of the code that wrote it."""
    revision: str
    """Schema revision of the registry's database."""
    tables: dict[str, dump.TableDump]
    blobs: int
    blob_bytes: int
    missing: list[str]
    """Blobs that a version names and the store did not have: an old loss, which the backup cannot mend."""
    heads: dict[str, ledger.Head]
    """Workspace → end of its ledger."""
    mlflow: mlflow_store.MlflowDump | None = None


def take(registry: Registry, target: Path, *, mlflow: str = "", artifacts: str = "") -> tuple[Manifest, str]:
    """Write a backup to the new folder `target`: (manifest, its digest). Writers go on meanwhile.

    `mlflow` is the URL of MLflow's database, `artifacts` the root of its artifacts; "" leaves them out.
    """
    if target.exists():
        raise ConflictError("it exists already", place=str(target), cure="choose another folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    try:
        with registry.database.snapshot() as tx:
            at, heads = clock.text(clock.now()), _verified(tx)
            revision, tables = _reflected(tx)
            written = dump.dump(
                tx, [table for table in tables.sorted_tables if table.name != REVISION], part / "database"
            )
            named = gc.referenced(tx)
        size, missing = _copy_blobs(registry, named, part / "blobs")
        dumped = mlflow_store.take(mlflow, artifacts, part / "mlflow") if mlflow else None
        manifest = Manifest(
            at=at,
            hatstack=version("hatstack"),
            revision=revision,
            tables=written,
            blobs=len(named) - len(missing),
            blob_bytes=size,
            missing=missing,
            heads=heads,
            mlflow=dumped,
        )
        content = (manifest.model_dump_json(indent=1) + "\n").encode()
        (part / MANIFEST).write_bytes(content)
        _keep_private(part)
        part.rename(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return manifest, digest_bytes(content)


def inspect(folder: Path) -> tuple[Manifest, str]:
    """Check a backup whole: every file against its digest, every chain. (manifest, its digest); raises what it finds."""
    try:
        content = (folder / MANIFEST).read_bytes()
        manifest = Manifest.model_validate_json(content)
    except (OSError, ValidationError) as error:
        raise InvalidError(
            "this is not a backup", place=str(folder), cure="give the folder with backup.json"
        ) from error
    for name, told in manifest.tables.items():
        _same(folder / "database" / f"{name}.jsonl.gz", told.digest)
    blobs = FolderBlobs(folder / "blobs")
    found = [one.digest for one in blobs.stored()]
    with ThreadPoolExecutor(WORKERS) as pool:
        for _ in pool.map(blobs.get, found):
            pass
    if len(found) != manifest.blobs:
        raise InvalidError(f"{manifest.blobs} blobs were written, {len(found)} are here", place=str(folder / "blobs"))
    if manifest.mlflow:
        for name, told in manifest.mlflow.tables.items():
            _same(folder / "mlflow" / "database" / f"{name}.jsonl.gz", told.digest)
        for path, digest in manifest.mlflow.artifacts.items():
            _same(folder / "mlflow" / "artifacts" / path, digest)
    _check_chains(folder, manifest)
    return manifest, digest_bytes(content)


def restore(
    folder: Path, url: str, blobs: str, *, mlflow: str = "", artifacts: str = "", without_mlflow: bool = False
) -> tuple[Manifest, str]:
    """Check a backup, then put it into an empty registry, and its MLflow part into an empty MLflow: (manifest, digest).

    The schema is made as it was, filled, and brought up to date, so that a backup of an earlier release comes back too.
    """
    manifest, digest = inspect(folder)
    if manifest.mlflow and not (mlflow or without_mlflow):
        raise InvalidError(
            "the backup holds MLflow's part", place=str(folder), cure="say where it goes, or leave it out"
        )
    database = Database(url)
    try:
        if _revision(database) is None:
            _migrate(database, manifest.revision)
        _refuse_used(database)
        _give_blobs(folder, Registry.blobs_at(blobs), manifest)
        with database.write() as tx:
            _, tables = _reflected(tx)
            here = [table for table in tables.sorted_tables if table.name in manifest.tables]
            lost = (
                {name for name, told in manifest.tables.items() if told.rows} - {table.name for table in here} - LEGACY
            )
            if lost:
                raise InvalidError(
                    f"this release has no tables {', '.join(sorted(lost))}", cure="restore with a newer one"
                )
            dump.load(tx, here, folder / "database")
            for workspace, head in _verified(tx).items():
                if manifest.heads.get(workspace) != head:
                    raise LedgerError(f"the ledger of {workspace} is not the one that was saved", place=str(folder))
            if manifest.mlflow and not without_mlflow:
                mlflow_store.give(manifest.mlflow, folder / "mlflow", mlflow, artifacts)
        _migrate(database, "head")
        with database.write() as tx:
            for workspace in manifest.heads:
                data = {"backup": digest, "of": manifest.at}
                ledger.append(tx, workspace, SYSTEM.account, "restore", f"registry:{workspace}", data)
    finally:
        database.close()
    return manifest, digest


def _verified(tx: Connection) -> dict[str, ledger.Head]:
    """Workspace → end of its chain, each checked."""
    heads = {}
    for workspace in tx.execute(select(ledger_head.c.workspace).order_by(ledger_head.c.workspace)).scalars().all():
        seen = ledger.verify(tx, workspace)
        heads[workspace] = ledger.Head(seen.rows, seen.head)
    return heads


def _reflected(tx: Connection) -> tuple[str, MetaData]:
    """The schema as it is, whatever revision that may be."""
    metadata = MetaData()
    metadata.reflect(tx)
    return str(tx.execute(select(metadata.tables[REVISION].c.version_num)).scalar_one()), metadata


def _revision(database: Database) -> str | None:
    with database.read() as tx:
        return MigrationContext.configure(tx).get_current_revision()


def _migrate(database: Database, revision: str) -> None:
    try:
        database.migrate(revision)
    except CommandError:
        cure = "restore with the hatstack that wrote it, or a newer one"
        raise InvalidError(f"this release does not know schema {revision}", cure=cure) from None


def _refuse_used(database: Database) -> None:
    with database.read() as tx:
        for table in (harness_version, ledger_head, account):
            if tx.execute(select(func.count()).select_from(table)).scalar_one():
                raise ConflictError("the registry is not empty", cure="restore into a new database")


def _copy_blobs(registry: Registry, named: set[str], folder: Path) -> tuple[int, list[str]]:
    """Copy blobs, each checked: (bytes, digests that the store does not have)."""
    kept = FolderBlobs(folder)

    def copy(digest: str) -> int:
        try:
            content = registry.blobs.get(digest)
        except NotFoundError:
            return -1
        kept.put(content)
        return len(content)

    order = sorted(named)
    with ThreadPoolExecutor(WORKERS) as pool:
        sizes = list(pool.map(copy, order))
    return sum(size for size in sizes if size > 0), [d for d, size in zip(order, sizes, strict=True) if size < 0]


def _give_blobs(folder: Path, store: BlobStore, manifest: Manifest) -> None:
    source = FolderBlobs(folder / "blobs")
    with ThreadPoolExecutor(WORKERS) as pool:
        given = sum(1 for _ in pool.map(lambda one: store.put(source.get(one.digest)), source.stored()))
    if given != manifest.blobs:
        raise InvalidError(f"{manifest.blobs} blobs were written, {given} are here", place=str(folder))


def _check_chains(folder: Path, manifest: Manifest) -> None:
    heads: dict[str, ledger.Head] = {}
    for row in dump.read(folder / "database" / "ledger.jsonl.gz"):
        workspace = row["workspace"]
        ledger.follow(workspace, heads.get(workspace, ledger.Head()), row["seq"], row["body"], row["hash"])
        heads[workspace] = ledger.Head(row["seq"], row["hash"])
    for workspace, head in manifest.heads.items():
        if heads.get(workspace, ledger.Head()) != head:
            raise LedgerError(f"the ledger of {workspace} does not end as it did", place=str(folder))


def _same(path: Path, digest: str) -> None:
    if not path.is_file() or digest_file(path) != digest:
        raise InvalidError("a file of the backup is missing or damaged", place=str(path), cure="take another backup")


def _keep_private(folder: Path) -> None:
    """For the owner alone, and on the disk."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    os.sync()
