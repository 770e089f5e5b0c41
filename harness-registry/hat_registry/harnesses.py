"""Harness versions: push, get, list, search, lineage. A version is immutable and is named by its digest.

Always holds: the same content has the same digest, whoever pushes it, and a repeated push changes nothing; a version is
visible only when all its blobs are stored. Not here: pointers, proposals (they move names, not content).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, insert, or_, select
from sqlalchemy.exc import IntegrityError

from hat_harness.digest import harness_digest, part_digests
from hat_harness.load import parse_files
from hat_harness.spec import Harness
from hat_registry import clock, ledger
from hat_registry.accounts import Actor
from hat_registry.archive import Files, safe_path
from hat_registry.errors import ConflictError, InvalidError, NotFoundError
from hat_registry.store.blobs import BlobStore, FolderBlobs
from hat_registry.store.tables import harness_version, pointer

WRITERS = 16
"""Blobs that one push stores at a time."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version. `files` maps paths to blob digests, `parts` to the digests that the version's digest is made of."""

    workspace: str
    name: str
    digest: str
    number: int
    parent: str | None
    author: str
    message: str
    created_at: str
    files: Mapping[str, str]
    parts: Mapping[str, str]


def parse(files: Files) -> Harness:
    """The validated harness that `files` make. Raises hat_harness.errors.LoadError with every problem."""
    return parse_files({safe_path(name): content for name, content in files.items()})


def store_blobs(blobs: BlobStore, files: Files) -> dict[str, str]:
    """Store all files before any row refers to them; path → blob digest. Several at a time: each waits for a disk."""
    order = sorted(files)
    with ThreadPoolExecutor(min(WRITERS, len(order) or 1)) as pool:
        return dict(zip(order, pool.map(blobs.put, [files[name] for name in order]), strict=True))


def missing(blobs: BlobStore, digests: Iterable[str]) -> set[str]:
    """Those of `digests` that are not stored."""
    order = sorted(set(digests))
    if isinstance(blobs, FolderBlobs):  # a look at a folder is cheaper than a switch of threads
        return {digest for digest in order if not blobs.has(digest)}
    with ThreadPoolExecutor(min(WRITERS, len(order) or 1)) as pool:
        return {digest for digest, there in zip(order, pool.map(blobs.has, order), strict=True) if not there}


def push(
    tx: Connection,
    actor: Actor,
    harness: Harness,
    files: Mapping[str, str],
    *,
    message: str,
    parent: str | None = None,
) -> tuple[Version, bool]:
    """Register a version whose blobs are stored: (version, changed). The same content again: (old one, False)."""
    actor.require("push", harness.name)
    if not message.strip():
        raise InvalidError("a version needs a message", cure="say in a sentence what the change does")
    digest = harness_digest(harness)
    present = find(tx, actor.workspace, harness.name, digest)
    if present is not None:
        return present, False
    if parent is not None and find(tx, actor.workspace, harness.name, parent) is None:
        raise NotFoundError(f"parent {parent} is not a version of {harness.name}")
    here = (harness_version.c.workspace == actor.workspace, harness_version.c.name == harness.name)
    number = (tx.execute(select(func.max(harness_version.c.number)).where(*here)).scalar_one() or 0) + 1
    manifest = {"format": 1, "parts": dict(part_digests(harness)), "files": dict(files)}
    at = clock.text(clock.now())
    try:
        tx.execute(
            insert(harness_version).values(
                workspace=actor.workspace,
                name=harness.name,
                digest=digest,
                number=number,
                parent=parent,
                author=actor.account,
                message=message.strip(),
                created_at=at,
                manifest=json.dumps(manifest, sort_keys=True),
            )
        )
    except IntegrityError:
        raise ConflictError(f"another version of {harness.name} was pushed at once", cure="push again") from None
    data = {"digest": digest, "number": number, "parent": parent or "", "message": message.strip()}
    ledger.append(tx, actor.workspace, actor.account, "push", f"harness:{harness.name}", data, at)
    version = find(tx, actor.workspace, harness.name, digest)
    if version is None:
        raise ConflictError(f"{harness.name} vanished while it was pushed")
    return version, True


def find(tx: Connection, workspace: str, name: str, digest: str) -> Version | None:
    """The version of `name` with `digest`, or None."""
    found = tx.execute(
        select(harness_version).where(
            harness_version.c.workspace == workspace,
            harness_version.c.name == name,
            harness_version.c.digest == digest,
        )
    ).first()
    return _version(found) if found else None


def get(tx: Connection, workspace: str, name: str, selector: str) -> Version:
    """A version by digest, by a unique prefix of at least 8 hex digits, by number (`v12` or `12`) or by pointer."""
    here = (harness_version.c.workspace == workspace, harness_version.c.name == name)
    bare = selector.removeprefix("v")
    if selector.startswith("sha256:"):
        query = select(harness_version).where(*here, harness_version.c.digest.startswith(selector, autoescape=True))
    elif bare.isdigit() and len(bare) < 8:
        query = select(harness_version).where(*here, harness_version.c.number == int(bare))
    else:
        moved = select(pointer.c.digest).where(
            pointer.c.workspace == workspace,
            pointer.c.kind == "harness",
            pointer.c.name == name,
            pointer.c.pointer == selector,
        )
        query = select(harness_version).where(*here, harness_version.c.digest == moved.scalar_subquery())
    found = tx.execute(query.limit(2)).all()
    if len(found) == 2:
        raise InvalidError(f"{selector} fits several versions of {name}", cure="give more digits")
    if not found or (selector.startswith("sha256:") and len(selector) < 15):
        raise NotFoundError(f"no version {selector} of harness {name}", place=workspace, cure=f"hat harness log {name}")
    return _version(found[0])


def by_digest(tx: Connection, workspace: str, digest: str) -> Version:
    """A version of whatever name by digest or a prefix of at least 8 hex digits, `sha256:` or not. NotFoundError."""
    wanted = "sha256:" + digest.removeprefix("sha256:")
    here = (harness_version.c.workspace == workspace, harness_version.c.digest.startswith(wanted, autoescape=True))
    found = tx.execute(select(harness_version).where(*here).limit(2)).all() if len(wanted) >= 15 else []
    if len(found) == 2:
        raise InvalidError(f"{digest[:80]} fits several versions", cure="give more digits")
    if not found:
        raise NotFoundError(f"no version {digest[:80]}", place=workspace, cure="hat harness list")
    return _version(found[0])


def files_of(blobs: BlobStore, version: Version) -> dict[str, bytes]:
    """The files of a version, each checked against its digest."""
    return {name: blobs.get(digest) for name, digest in sorted(version.files.items())}


def log(tx: Connection, workspace: str, name: str, *, before: int | None = None, limit: int = 50) -> list[Version]:
    """Versions of a name, newest first."""
    query = select(harness_version).where(harness_version.c.workspace == workspace, harness_version.c.name == name)
    if before is not None:
        query = query.where(harness_version.c.number < before)
    return [_version(row) for row in tx.execute(query.order_by(harness_version.c.number.desc()).limit(limit))]


def names(
    tx: Connection,
    workspace: str,
    *,
    search: str = "",
    after: str = "",
    limit: int = 50,
    only: frozenset[str] | None = None,
) -> list[tuple[str, int, str]]:
    """(name, number of versions, time of the newest), by name; `search` looks into names, messages and digests.

    `only` are the names that may be seen; None for all. Walks from name to name through the key and reads one row of
    each, so that it costs names, not versions.
    """
    table = harness_version
    here: ColumnElement[bool] = table.c.workspace == workspace
    if only is not None:
        here = here & table.c.name.in_(sorted(only))
    if search:
        walked = _matching(here, search, after, limit).subquery()
    else:
        first = select(func.min(table.c.name).label("name")).where(here, table.c.name > after)
        walk = first.cte("walk", recursive=True)
        following = select(func.min(table.c.name)).where(here, table.c.name > walk.c.name).correlate(walk)
        walk = walk.union_all(select(following.scalar_subquery()).where(walk.c.name.is_not(None)))
        walked = select(walk.c.name).where(walk.c.name.is_not(None)).limit(limit).subquery()
    newest = (
        select(func.max(table.c.number)).where(here, table.c.name == walked.c.name).correlate(walked).scalar_subquery()
    )
    query = (
        select(table.c.name, table.c.number, table.c.created_at)
        .join(walked, (table.c.name == walked.c.name) & (table.c.number == newest))
        .where(here)
        .order_by(table.c.name)
    )
    return [(row[0], row[1], row[2]) for row in tx.execute(query)]


def _matching(here: ColumnElement[bool], search: str, after: str, limit: int) -> Select[tuple[str]]:
    table = harness_version
    return (
        select(table.c.name)
        .where(
            here,
            table.c.name > after,
            or_(
                table.c.name.contains(search, autoescape=True),
                table.c.message.contains(search, autoescape=True),
                table.c.digest.startswith(search, autoescape=True),
            ),
        )
        .distinct()
        .order_by(table.c.name)
        .limit(limit)
    )


def lineage(tx: Connection, workspace: str, name: str, digest: str, limit: int = 100) -> list[Version]:
    """The version and its ancestors, nearest first."""
    found: list[Version] = []
    seen: set[str] = set()
    current: str | None = digest
    while current and current not in seen and len(found) < limit:
        seen.add(current)
        version = find(tx, workspace, name, current)
        if version is None:
            break
        found.append(version)
        current = version.parent
    return found


def _version(row: Any) -> Version:
    manifest = json.loads(row.manifest)
    return Version(
        row.workspace,
        row.name,
        row.digest,
        row.number,
        row.parent,
        row.author,
        row.message,
        row.created_at,
        manifest["files"],
        manifest["parts"],
    )
