"""A database's tables as compressed JSON lines and back: one file a table, columns in its first line, one row a line.

Always holds: what is written is what the connection sees at one moment; a dump of one kind of database loads into
another. Values that JSON lacks are tagged: bytes `{"b64":…}`, times `{"time":…}`. Not here: schemas, which migrations make.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection, Table, insert, select, text

from hat_registry.errors import InvalidError
from hat_registry.upkeep.files import digest_file

BATCH = 1000


class TableDump(BaseModel):
    """What one file of a dump holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int
    digest: str
    """SHA-256 of the file."""


def dump(tx: Connection, tables: Sequence[Table], folder: Path) -> dict[str, TableDump]:
    """Write `<table>.jsonl.gz` for every table into `folder`, streaming; what was written by name of table."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for table in tables:
        path, count = folder / f"{table.name}.jsonl.gz", 0
        query = select(table).order_by(*(table.primary_key.columns or table.columns))
        # No name and no time in the header: the same rows give the same bytes.
        with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
            file.write(_line([column.name for column in table.columns]))
            for row in tx.execution_options(stream_results=True).execute(query).yield_per(BATCH):
                file.write(_line([_encoded(value) for value in row]))
                count += 1
        made[table.name] = TableDump(rows=count, digest=digest_file(path))
    return made


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of one file. Raises InvalidError for what is no dump."""
    try:
        with gzip.open(path, "rb") as file:
            columns: list[str] = json.loads(file.readline())
            for line in file:
                values = [_decoded(value) for value in json.loads(line)]
                yield dict(zip(columns, values, strict=True))
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise InvalidError(
            f"{path.name} is not a dump of a table", place=str(path), cure="take another backup"
        ) from error


def load(
    tx: Connection,
    tables: Sequence[Table],
    folder: Path,
    change: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None,
) -> dict[str, int]:
    """Insert the dumped rows of `tables` into empty tables; `change` may rewrite a row (table, row). Rows by table."""
    loaded = {}
    for table in tables:
        path = folder / f"{table.name}.jsonl.gz"
        if not path.exists():
            continue
        loaded[table.name] = 0
        batch: list[dict[str, Any]] = []
        for row in read(path):
            batch.append(change(table.name, row) if change else row)
            if len(batch) == BATCH:
                tx.execute(insert(table), batch)
                loaded[table.name] += len(batch)
                batch = []
        if batch:
            tx.execute(insert(table), batch)
            loaded[table.name] += len(batch)
        _set_sequences(tx, table)
    return loaded


def _set_sequences(tx: Connection, table: Table) -> None:
    """Postgres counts on from the largest number that was loaded."""
    if tx.dialect.name != "postgresql":
        return
    for column in table.primary_key.columns:
        if str(column.server_default.arg if column.server_default is not None else "").startswith("nextval("):  # type: ignore[attr-defined]  # reflected defaults carry their text
            name = f'"{table.name}"'
            largest = f'(select max("{column.name}") from {name})'  # noqa: S608 - names of reflected tables
            tx.execute(
                text(f"select setval(pg_get_serial_sequence(:t, :c), greatest({largest}, 1))"),
                {"t": name, "c": column.name},
            )


def _line(values: list[Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes | memoryview):
        return {"b64": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, datetime):
        return {"time": value.isoformat()}
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict | list):  # a JSON column
        return {"json": value}
    return value


def _decoded(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "b64" in value:
        return base64.b64decode(value["b64"])
    return datetime.fromisoformat(value["time"]) if "time" in value else value["json"]
