"""Garbage: blobs that no version names, removed after a grace period and never from under a push.

Always holds: a blob is deleted only inside a write transaction that excludes pushes, after looking at every version that
was registered since; a push looks, inside its own transaction, whether all its blobs are there, and stores again what is
not (`pin`). So even no grace loses nothing; grace spares pushes the second write. Not here: versions are never removed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from hat_registry.errors import InvalidError
from hat_registry.registry import GARBAGE_LOCK, Registry
from hat_registry.store.blobs import FolderBlobs, Stored
from hat_registry.store.tables import harness_version, ledger, ledger_head

BATCH = 200
PAGE = 1000
WRITING_S = 3600.0
"""A half-written file that is younger may belong to a writer that lives, whatever the grace."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection removed, or would remove."""

    blobs: int
    bytes: int
    kept: int
    """Blobs that a version names."""
    young: int
    """Unnamed blobs within their grace period: pushes may be on their way."""
    leftovers: int
    """Half-written files of writers that died."""


def referenced(tx: Connection) -> set[str]:
    """Digests of all blobs that any version of any workspace names."""
    return {digest for manifest in _manifests(tx) for digest in json.loads(manifest)["files"].values()}


def collect(registry: Registry, *, grace_s: float, dry_run: bool = False, now: float | None = None) -> Collected:
    """Remove unnamed blobs that were written more than `grace_s` seconds ago."""
    if grace_s < 0:
        raise InvalidError("the grace period is negative", cure="give hours, 0 or more")
    before = (time.time() if now is None else now) - grace_s
    with registry.database.snapshot() as tx:
        heads = {row.workspace: row.seq for row in tx.execute(select(ledger_head))}
        named = referenced(tx)
    old: list[Stored] = []
    kept = young = 0
    for one in registry.blobs.stored():
        if one.digest in named:
            kept += 1
        elif one.written_at >= before:
            young += 1
        else:
            old.append(one)
    if dry_run:
        return Collected(len(old), sum(one.size for one in old), kept, young, 0)
    batches = (old[start : start + BATCH] for start in range(0, len(old), BATCH))
    gone = [one for batch in batches for one in _delete(registry, batch, heads, before)]
    swept = registry.blobs.sweep(min(before, time.time() - WRITING_S)) if isinstance(registry.blobs, FolderBlobs) else 0
    return Collected(len(gone), sum(one.size for one in gone), kept, young + len(old) - len(gone), swept)


def _delete(registry: Registry, batch: Iterable[Stored], heads: dict[str, int], before: float) -> list[Stored]:
    with registry.database.write() as tx:
        if tx.dialect.name == "postgresql":
            tx.execute(select(func.pg_advisory_xact_lock(GARBAGE_LOCK)))
        fresh = _named_since(tx, heads)
        gone = []
        for one in batch:
            written = registry.blobs.written_at(one.digest)
            if one.digest not in fresh and written is not None and written < before:
                registry.blobs.delete(one.digest)
                gone.append(one)
        return gone


def _named_since(tx: Connection, heads: dict[str, int]) -> set[str]:
    """Blobs of versions whose push stands in a ledger behind `heads` (workspace → sequence number)."""
    found: set[str] = set()
    for workspace in tx.execute(select(ledger_head.c.workspace)).scalars().all():
        rows = select(ledger.c.body).where(
            ledger.c.workspace == workspace, ledger.c.kind == "push", ledger.c.seq > heads.get(workspace, 0)
        )
        for body in tx.execute(rows).scalars():
            told = json.loads(body)
            manifest = select(harness_version.c.manifest).where(
                harness_version.c.workspace == workspace,
                harness_version.c.name == told["subject"].removeprefix("harness:"),
                harness_version.c.digest == told["data"]["digest"],
            )
            found |= {
                digest for text in tx.execute(manifest).scalars() for digest in json.loads(text)["files"].values()
            }
    return found


def _manifests(tx: Connection) -> Iterator[str]:
    query = select(harness_version.c.manifest)
    yield from tx.execution_options(stream_results=True).execute(query).yield_per(PAGE).scalars()
