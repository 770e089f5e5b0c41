"""One database behind the registry: SQLite by default, Postgres when asked. Connections, transactions, migrations.

Always holds: a write transaction is serialised against other writers of the same rows (SQLite: BEGIN IMMEDIATE;
Postgres: row locks taken by the domain), and nothing is visible before it commits. Not here: tables, queries.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError

from hat_registry.errors import ConflictError, InvalidError, StoreError

BUSY_MS = 10_000
"""How long a SQLite writer waits for another before it gives up."""
MIGRATION_LOCK = 0x68617473
"""Key of the advisory lock under which one Postgres is migrated."""
CURE = "check the database URL and that the server is up; reads from caches go on"
AGAIN = "nothing was changed; try again"


class Database:
    """A handle on the registry's database; safe to share between threads.

    `url` is an SQLAlchemy URL; `sqlite:///path` or `postgresql+psycopg://...`.
    """

    def __init__(self, url: str, *, pool: int = 8) -> None:
        parsed = make_url(url)
        self.dialect = parsed.get_backend_name()
        options: dict[str, Any] = {"pool_pre_ping": self.dialect != "sqlite"}
        if self.dialect == "sqlite":
            if parsed.database:
                Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
            options["connect_args"] = {"timeout": BUSY_MS / 1000, "check_same_thread": False}
        else:
            options |= {
                "pool_size": pool,
                "max_overflow": pool,
                "pool_timeout": 5,
                "connect_args": {"connect_timeout": 5},
            }
        self.engine: Engine = create_engine(parsed, **options)
        if self.dialect == "sqlite":
            event.listen(self.engine, "connect", _sqlite_settings)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection for reading; sees one consistent snapshot per statement."""
        with _translated(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A connection that sees the whole database at one moment: for checks, exports and backups."""
        with _translated(), self.engine.connect() as connection:
            if self.dialect == "sqlite":
                connection.exec_driver_sql("BEGIN")
                yield connection
                connection.rollback()
            else:
                yield connection.execution_options(isolation_level="REPEATABLE READ")

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that commits as a whole at the end of the block, or not at all."""
        with _translated(), self.engine.connect() as connection:
            if self.dialect == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    def migrate(self, revision: str = "head") -> None:
        """Bring the schema to `revision`; a no-op when it is there. Of several processes one works, the others wait."""
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        with _translated(), self.engine.connect() as connection:
            config.attributes["connection"] = connection
            if self.dialect == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                connection.exec_driver_sql(f"select pg_advisory_xact_lock({MIGRATION_LOCK})")
            command.upgrade(config, revision)
            connection.commit()

    def close(self) -> None:
        """Close all pooled connections."""
        self.engine.dispose()


def _sqlite_settings(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={BUSY_MS}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


@contextmanager
def _translated() -> Iterator[None]:
    """Turn a driver's connection failure into a `StoreError`; its text may hold the URL's password: dropped."""
    try:
        yield
    except IntegrityError as error:
        if getattr(error.orig, "sqlstate", "") != "23505" and "UNIQUE" not in str(error.orig):
            raise
        raise ConflictError("somebody else wrote the same at the same moment", cure=AGAIN) from None
    except (DataError, OverflowError):  # NUL in a text, a number beyond the column
        raise InvalidError(
            "a value does not fit into the database", cure="no NUL characters, no huge numbers"
        ) from None
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", "") in {"40001", "40P01"}:
            raise ConflictError("two writers waited for each other", cure=AGAIN) from None
        raise StoreError(f"the database does not answer ({type(error.orig).__name__})", cure=CURE) from None
    except DBAPIError as error:
        if error.connection_invalidated:
            raise StoreError("the database connection was lost", cure=CURE) from None
        raise
