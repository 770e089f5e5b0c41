"""MLflow's own database and artifacts in a backup: dumped by reflection, restored into a schema that MLflow makes.

Always holds: only the database that stands behind an MLflow is touched, never through its server; a restore goes into an
empty one of the same schema revision. Places of artifacts are rewritten where they move. Not here: aliases (mlflow_link).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection, Engine, MetaData, create_engine, delete, func, make_url, select
from sqlalchemy.exc import SQLAlchemyError

from hat_registry.errors import ConflictError, InvalidError, StoreError
from hat_registry.upkeep import dump
from hat_registry.upkeep.files import digest_file, tree

PLACES = {
    "experiments": ("artifact_location",),
    "runs": ("artifact_uri",),
    "model_versions": ("source", "storage_location"),
    "logged_models": ("artifact_location",),
}
"""Columns that may hold the place of an artifact."""
REVISION = "alembic_version"


class MlflowDump(BaseModel):
    """MLflow's part of a backup."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    revision: str
    """Schema revision of its database."""
    artifact_root: str
    """Where its artifacts lay; "" where they were not taken along."""
    tables: dict[str, dump.TableDump]
    artifacts: dict[str, str]
    """Path below the root → SHA-256."""


@contextmanager
def _opened(url: str) -> Iterator[Engine]:
    if url.startswith(("http://", "https://")):
        raise InvalidError(
            "a backup reads MLflow's database, not its server", cure="give the server's --backend-store-uri"
        )
    engine = create_engine(make_url(url))
    try:
        yield engine
    except SQLAlchemyError as error:
        raise StoreError(f"MLflow's database does not answer ({type(error).__name__})", cure="check its URL") from None
    finally:
        engine.dispose()


def take(url: str, artifacts: str, folder: Path) -> MlflowDump:
    """Dump MLflow's tables as of one moment into `folder`, then copy its artifacts (a folder or `s3://…`; "": none)."""
    with _opened(url) as engine, engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")
        else:
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        metadata = MetaData()
        metadata.reflect(connection)
        if REVISION not in metadata.tables:
            raise InvalidError("this is not a database of MLflow", cure="give MLflow's --backend-store-uri")
        revision = str(connection.execute(select(metadata.tables[REVISION].c.version_num)).scalar_one())
        tables = [table for table in metadata.sorted_tables if table.name != REVISION]
        dumped = dump.dump(connection, tables, folder / "database")
    copied: dict[str, str] = {}
    if artifacts:
        source = tree(artifacts)
        for path in source.paths():
            target = folder / "artifacts" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            source.take(path, target)
            copied[path] = digest_file(target)
    return MlflowDump(revision=revision, artifact_root=artifacts, tables=dumped, artifacts=copied)


def give(told: MlflowDump, folder: Path, url: str, artifacts: str) -> None:
    """Restore into an MLflow database without runs or models, and the artifacts to `artifacts`."""
    _make_schema(url)
    with _opened(url) as engine, engine.begin() as connection:
        metadata = MetaData()
        metadata.reflect(connection)
        found = str(connection.execute(select(metadata.tables[REVISION].c.version_num)).scalar_one())
        if found != told.revision:
            raise ConflictError(
                f"this MLflow makes schema {found}, the backup has {told.revision}",
                cure="restore with the MLflow it was taken from, then run mlflow db upgrade",
            )
        _refuse_used(connection, metadata)
        for table in reversed(metadata.sorted_tables):
            if table.name != REVISION:
                connection.execute(delete(table))
        moved = _mover(told.artifact_root, artifacts)
        dump.load(connection, [t for t in metadata.sorted_tables if t.name != REVISION], folder / "database", moved)
    if told.artifacts and artifacts:
        target = tree(artifacts)
        for path in told.artifacts:
            target.put(path, folder / "artifacts" / path)


def _refuse_used(connection: Connection, metadata: MetaData) -> None:
    for name in ("runs", "registered_models"):
        if connection.execute(select(func.count()).select_from(metadata.tables[name])).scalar_one():
            raise ConflictError(f"MLflow's database has {name} already", cure="restore into an empty one")


def _mover(old: str, new: str) -> Any:
    """Rewrites the places of artifacts from root `old` to `new`; what lies elsewhere stays as it is."""
    if not old or not new or old.rstrip("/") == new.rstrip("/"):
        return None
    before, after = _absolute(old), _absolute(new)

    def moved(table: str, row: dict[str, Any]) -> dict[str, Any]:
        for column in PLACES.get(table, ()):
            value = row.get(column)
            for scheme in ("", "file://"):
                if isinstance(value, str) and (value + "/").startswith(f"{scheme}{before}/"):
                    row[column] = f"{scheme}{after}{value[len(scheme) + len(before) :]}"
        return row

    return moved


def _absolute(place: str) -> str:
    return place.rstrip("/") if "://" in place else str(Path(place).resolve())


def _make_schema(url: str) -> None:
    """Let MLflow make its tables: it does at the first question."""
    from mlflow.tracking import MlflowClient

    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    scratch = tempfile.mkdtemp(prefix="hatstack-mlflow-")
    try:
        MlflowClient(tracking_uri=url, registry_uri=url).search_experiments(max_results=1)
    except Exception as error:  # MLflow raises its own, SQLAlchemy's and the driver's
        raise StoreError(f"MLflow cannot use this database ({type(error).__name__})", cure="check its URL") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
