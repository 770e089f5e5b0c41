"""Does everything fit together: ledger, versions, pointers and releases in the database, blobs, and MLflow.

Always holds: it only reads, sees the database at one moment, and goes on after a finding. Not here: mending (a restore
or another push brings back a blob; `follow` moves MLflow's aliases).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import Connection, func, select

from hat_harness.digest import digest_bytes, digest_json
from hat_registry import ledger, pointers, releases
from hat_registry.errors import LedgerError, NotFoundError, RegistryError, StoreError
from hat_registry.mlflow_link import Mlflow, drift, projection
from hat_registry.registry import Registry
from hat_registry.store import tables as t

PAGE = 1000
NAMED = 5
"""Versions that are named for one lost blob."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not fit."""

    part: Literal["ledger", "version", "pointer", "release", "evidence", "blob", "mlflow"]
    place: str
    message: str


@dataclass
class Report:
    """What was looked at, and what does not fit."""

    counts: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def check(registry: Registry, *, deep: bool = False, mlflow: Mlflow | None = None) -> Report:
    """Check everything; `deep` reads every blob and computes every digest again."""
    report = Report()
    with registry.database.snapshot() as tx:
        report.findings += _ledgers(tx, report.counts)
        users, found = _versions(tx, deep, report.counts)
        report.findings += found
        report.findings += _pointers(tx, report.counts)
        report.findings += _records(tx, report.counts)
        report.findings += _blobs(registry, users, deep, report.counts)
        if mlflow is not None:
            report.findings += _mlflow(tx, mlflow, report.counts)
    return report


def _ledgers(tx: Connection, counts: dict[str, int]) -> list[Finding]:
    found = []
    heads = select(t.ledger_head.c.workspace).union(select(t.ledger.c.workspace).distinct())
    for workspace in sorted(tx.execute(heads).scalars()):
        try:
            counts["ledger rows"] = counts.get("ledger rows", 0) + ledger.verify(tx, workspace).rows
        except LedgerError as error:
            found.append(Finding("ledger", error.place, error.message))
    return found


def _versions(tx: Connection, deep: bool, counts: dict[str, int]) -> tuple[dict[str, list[str]], list[Finding]]:
    """Blob → versions that name it, and versions whose manifest is not what their digest says."""
    users: dict[str, list[str]] = defaultdict(list)
    found = []
    v = t.harness_version
    query = select(v.c.workspace, v.c.name, v.c.digest, v.c.manifest)
    for workspace, name, digest, manifest in tx.execution_options(stream_results=True).execute(query).yield_per(PAGE):
        counts["versions"] = counts.get("versions", 0) + 1
        place = f"{workspace}/{name}@{digest}"
        told = json.loads(manifest)
        if deep and digest_json({"format": told["format"], "parts": told["parts"]}) != digest:
            found.append(Finding("version", place, "its manifest does not have its digest"))
        for blob in told["files"].values():
            if len(users[blob]) < NAMED:
                users[blob].append(place)
    return users, found


def _pointers(tx: Connection, counts: dict[str, int]) -> Iterator[Finding]:
    for row in tx.execute(select(t.pointer)).all():
        counts["pointers"] = counts.get("pointers", 0) + 1
        place = f"{row.workspace}/{pointers.subject(row.kind, row.name, row.pointer)}"
        past = pointers.history(tx, row.workspace, row.kind, row.name, row.pointer, limit=1)
        if past[:1] != [row.digest]:
            told = past[0] if past else "that it never moved"
            yield Finding("pointer", place, f"it is at {row.digest}, the ledger says {told}")
        try:
            pointers.require_known(tx, row.workspace, row.kind, row.name, row.digest)
        except NotFoundError as error:
            yield Finding("pointer", place, error.message)


def _records(tx: Connection, counts: dict[str, int]) -> Iterator[Finding]:
    for row in tx.execute(select(t.release)).all():
        counts["releases"] = counts.get("releases", 0) + 1
        place = f"{row.workspace}/{row.name}@{row.digest}"
        known = releases.Release.model_validate_json(row.content)
        if known.digest != row.digest:
            yield Finding("release", place, "its content does not have its digest")
        here = (t.harness_version.c.workspace == row.workspace, t.harness_version.c.digest == known.harness)
        if not tx.execute(select(func.count()).select_from(t.harness_version).where(*here)).scalar_one():
            yield Finding("release", place, f"there is no harness {known.harness}")
    for row in tx.execute(select(t.evidence)).yield_per(PAGE):
        counts["evidence"] = counts.get("evidence", 0) + 1
        if digest_bytes(row.content.encode()) != row.digest:
            yield Finding("evidence", f"{row.workspace}/{row.digest}", "its content does not have its digest")


def _blobs(registry: Registry, users: dict[str, list[str]], deep: bool, counts: dict[str, int]) -> Iterator[Finding]:
    stored = {one.digest for one in registry.blobs.stored()}
    counts["blobs"] = len(stored)
    counts["blobs that no version names"] = len(stored - users.keys())
    for digest in sorted(users.keys() - stored):
        yield Finding("blob", digest, f"it is missing; needed by {', '.join(users[digest])}")
    for digest in sorted(users.keys() & stored) if deep else ():
        try:
            registry.blobs.get(digest)
        except (StoreError, NotFoundError) as error:
            yield Finding("blob", digest, f"{error.message}; needed by {', '.join(users[digest])}")


def _mlflow(tx: Connection, mlflow: Mlflow, counts: dict[str, int]) -> Iterator[Finding]:
    for workspace in tx.execute(select(t.pointer.c.workspace).distinct()).scalars().all():
        try:
            for one in drift(projection(tx, workspace), mlflow):
                counts["MLflow aliases"] = counts.get("MLflow aliases", 0) + 1
                if one.state != "follows":
                    yield Finding("mlflow", f"{one.model}@{one.alias}", one.told())
        except RegistryError as error:
            yield Finding("mlflow", mlflow.place, error.message)
            return
