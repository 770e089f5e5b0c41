"""Pages of long listings by keyset: a cursor names the last row that was seen, so a page costs the same anywhere.

Always holds: rows that are added while somebody pages neither shift nor repeat what follows. Not here: the queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, tuple_

from hat_registry import clock
from hat_registry.errors import InvalidError


def newest_first(
    query: Select[Any], at: ColumnElement[str], key: ColumnElement[str], after: str, limit: int
) -> Select[Any]:
    """`query` ordered by time and key, newest first, from behind the cursor `after` ("" for the first page)."""
    if after:
        moment, found, last = after.partition("~")
        if not found or not _is_time(moment):
            raise InvalidError(f"{after[:60]!r} is not a cursor", cure="give the `next` of the page before")
        query = query.where(tuple_(at, key) < tuple_(moment, last))
    return query.order_by(at.desc(), key.desc()).limit(limit)


def cursor(items: Sequence[Mapping[str, Any]], key: str, limit: int) -> str | None:
    """What continues behind a full page of `items` (`created_at` and `key` in each); None where nothing follows."""
    return f"{items[-1]['created_at']}~{items[-1][key]}" if len(items) == limit else None


def _is_time(value: str) -> bool:
    try:
        return clock.text(clock.parse(value)) == value
    except (ValueError, OverflowError):
        return False
