"""The registry as one object: a database, a blob store, and the whole operations that need both.

Always holds: blobs are stored before the row that names them, so no version is ever without its content.
Not here: HTTP (api), single-table operations (their own modules).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, insert, select

from hat_harness.spec import Harness
from hat_registry import clock, harnesses
from hat_registry.accounts import Actor
from hat_registry.errors import ConflictError
from hat_registry.store.blobs import BlobStore, FolderBlobs, S3Blobs
from hat_registry.store.database import Database
from hat_registry.store.tables import idempotency

if TYPE_CHECKING:
    from hat_registry.mlflow_link import Mlflow

GARBAGE_LOCK = 0x68617467
"""Key of the advisory lock on Postgres that pushes share and the garbage collection holds alone; SQLite has one writer."""


class Registry:
    """What the API, the console and the command line hold. `mlflow` is None where no MLflow stands beside it."""

    def __init__(self, database: Database, blobs: BlobStore, mlflow: Mlflow | None = None) -> None:
        self.database = database
        self.blobs = blobs
        self.mlflow = mlflow

    @classmethod
    def open(cls, url: str, blobs: str | Path) -> Registry:
        """Open and migrate. `blobs` is a folder or `s3://bucket/prefix` (endpoint and keys from AWS_* variables)."""
        database = Database(url)
        database.migrate()
        return cls(database, cls.blobs_at(blobs))

    @staticmethod
    def blobs_at(place: str | Path) -> BlobStore:
        """The blob store at a folder or at `s3://bucket/prefix`."""
        told = str(place)
        if told.startswith("s3://"):
            bucket, _, prefix = told.removeprefix("s3://").partition("/")
            return S3Blobs(bucket, prefix=prefix or "blobs/")
        return FolderBlobs(Path(told))

    def push(
        self, actor: Actor, files: Mapping[str, bytes], *, message: str, parent: str | None = None
    ) -> tuple[harnesses.Version, bool]:
        """Validate, store and register a harness folder's files: (version, changed)."""
        harness = harnesses.parse(files)
        actor.require("push", harness.name)
        stored = harnesses.store_blobs(self.blobs, files)
        with self.database.write() as tx:
            self._pin(tx, files, stored)
            return harnesses.push(tx, actor, harness, stored, message=message, parent=parent)

    def _pin(self, tx: Connection, files: Mapping[str, bytes], stored: Mapping[str, str]) -> None:
        """Keep the garbage collection away until `tx` ends, and store again what it took since the blobs were stored."""
        if tx.dialect.name == "postgresql":
            tx.execute(select(func.pg_advisory_xact_lock_shared(GARBAGE_LOCK)))
        gone = harnesses.missing(self.blobs, stored.values())
        harnesses.store_blobs(self.blobs, {name: files[name] for name, digest in stored.items() if digest in gone})

    def load(self, workspace: str, name: str, selector: str) -> tuple[harnesses.Version, Harness]:
        """A version and its parsed harness."""
        with self.database.read() as tx:
            version = harnesses.get(tx, workspace, name, selector)
        return version, harnesses.parse(harnesses.files_of(self.blobs, version))

    def once(
        self, actor: Actor, key: str | None, request: Any, run: Callable[[Connection], tuple[int, Any]]
    ) -> tuple[int, Any]:
        """Run a write at most once per idempotency key; a repeat gets the first answer, another request a conflict."""
        if not key:
            with self.database.write() as tx:
                return run(tx)
        digest = "sha256:" + hashlib.sha256(json.dumps(request, sort_keys=True, default=str).encode()).hexdigest()
        own = (
            idempotency.c.workspace == actor.workspace,
            idempotency.c.account == actor.account,
            idempotency.c.key == key,
        )
        with self.database.write() as tx:
            if tx.dialect.name == "postgresql":  # a second request with the key waits here for the first one's answer
                tx.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(f"{actor.account}\x1f{key}", 0))))
            earlier = tx.execute(select(idempotency).where(*own)).first()
            if earlier is not None:
                if earlier.request != digest:
                    raise ConflictError("the idempotency key was used for another request", cure="use a new key")
                return earlier.status, json.loads(earlier.response)
            status, body = run(tx)
            row = {"workspace": actor.workspace, "account": actor.account, "key": key, "request": digest}
            written = json.dumps(body)
            at = clock.text(clock.now())
            tx.execute(insert(idempotency).values(**row, status=status, response=written, created_at=at))
            return status, body

    def close(self) -> None:
        """Close the database."""
        self.database.close()


def plain(record: Any) -> dict[str, Any]:
    """A domain record as the JSON object that the API returns."""
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in asdict(record).items()}
