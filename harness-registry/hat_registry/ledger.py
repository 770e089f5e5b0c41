"""The ledger: an append-only, hash-chained record of everything that changed (`hatstack.ledger/1`).

Row `n` of a workspace carries the digest of its own canonical JSON (RFC 8785), which holds the digest of row `n - 1`; a
head row holds the last sequence number and digest, so that a changed, removed, reordered or cut-off row is found and
named. Append runs inside the caller's transaction: what the row tells and the row itself commit together.
Not here: what the rows mean (pointers, proposals, accounts).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

import rfc8785
from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection, insert, select, update

from hat_registry import clock
from hat_registry.errors import ConflictError, InvalidError, LedgerError
from hat_registry.store.tables import ledger, ledger_head

FORMAT: Literal["hatstack.ledger/1"] = "hatstack.ledger/1"
GENESIS = "sha256:" + "0" * 64
KINDS = frozenset(
    {
        "push",
        "propose",
        "gate",
        "approve",
        "reject",
        "move",
        "rollback",
        "release",
        "evidence",
        "policy",
        "canary",
        "experiment",
        "mute",
        "unmute",
        "account",
        "erase",
        "restore",
    }
)
PAGE = 10_000


class Body(BaseModel):
    """What a row's digest covers: the canonical JSON of exactly these fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["hatstack.ledger/1"] = FORMAT
    workspace: str
    seq: int
    """Counted from 1 in each workspace."""
    at: str
    """UTC, ISO 8601 with microseconds."""
    actor: str
    kind: str
    subject: str
    data: dict[str, Any]
    """What happened; plain JSON without floats."""
    prev: str
    """Digest of the row before; 64 zeros for the first."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `at` is UTC ISO 8601, `data` JSON without floats, `hash` the digest of the row's canonical JSON."""

    workspace: str
    seq: int
    at: str
    actor: str
    kind: str
    subject: str
    data: Mapping[str, Any]
    prev: str
    hash: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What `verify` saw: the number of rows and the digest of the last one, to be anchored elsewhere."""

    rows: int
    head: str


def append(
    tx: Connection, workspace: str, actor: str, kind: str, subject: str, data: Mapping[str, Any], at: str | None = None
) -> Row:
    """Add a row inside `tx`. Serialised per workspace by the head row; raises ConflictError if another writer won."""
    if kind not in KINDS:
        raise InvalidError(f"unknown ledger kind {kind!r}", cure=f"one of {', '.join(sorted(KINDS))}")
    if tx.dialect.name == "postgresql":
        head = tx.execute(select(ledger_head).where(ledger_head.c.workspace == workspace).with_for_update()).first()
    else:
        head = tx.execute(select(ledger_head).where(ledger_head.c.workspace == workspace)).first()
    seq, prev = (head.seq + 1, head.hash) if head else (1, GENESIS)
    written = at or clock.text(clock.now())
    body = _body(workspace, seq, written, actor, kind, subject, data, prev)
    digest = _digest(body)
    tx.execute(
        insert(ledger).values(
            workspace=workspace, seq=seq, at=written, actor=actor, kind=kind, subject=subject, body=body, hash=digest
        )
    )
    if head is None:
        tx.execute(insert(ledger_head).values(workspace=workspace, seq=seq, hash=digest))
    else:
        moved = tx.execute(
            update(ledger_head)
            .where(ledger_head.c.workspace == workspace, ledger_head.c.seq == head.seq)
            .values(seq=seq, hash=digest)
        )
        if moved.rowcount != 1:
            raise ConflictError("another writer appended to the ledger first", place=workspace, cure="try again")
    return Row(workspace, seq, written, actor, kind, subject, data, prev, digest)


def rows(
    tx: Connection,
    workspace: str,
    *,
    after: int = 0,
    limit: int = 100,
    kind: str | None = None,
    subject: str | None = None,
    actor: str | None = None,
    until: str | None = None,
    newest_first: bool = False,
) -> list[Row]:
    """Rows in order of `seq`, filtered. `after` continues a listing; `until` is an inclusive time."""
    query = select(ledger).where(ledger.c.workspace == workspace)
    for column, value in ((ledger.c.kind, kind), (ledger.c.subject, subject), (ledger.c.actor, actor)):
        if value is not None:
            query = query.where(column == value)
    if until is not None:
        query = query.where(ledger.c.at <= until)
    if newest_first:
        query = query.order_by(ledger.c.seq.desc())
        query = query.where(ledger.c.seq < after) if after else query
    else:
        query = query.where(ledger.c.seq > after).order_by(ledger.c.seq)
    return [_row(found) for found in tx.execute(query.limit(limit))]


def export(tx: Connection, workspace: str) -> Iterator[str]:
    """All rows as JSON lines, each with its `hash`; `verify_export` checks them without the database."""
    after = 0
    while True:
        page = tx.execute(
            select(ledger.c.seq, ledger.c.body, ledger.c.hash)
            .where(ledger.c.workspace == workspace, ledger.c.seq > after)
            .order_by(ledger.c.seq)
            .limit(PAGE)
        ).all()
        for seq, body, digest in page:
            yield json.dumps({"row": json.loads(body), "hash": digest}, ensure_ascii=False, sort_keys=True)
            after = seq
        if len(page) < PAGE:
            return


def verify(tx: Connection, workspace: str) -> Verified:
    """Check a workspace's whole chain. Raises LedgerError that names the first bad row and what is wrong with it."""
    expected, prev = 1, GENESIS
    columns = (ledger.c.seq, ledger.c.at, ledger.c.actor, ledger.c.kind, ledger.c.subject, ledger.c.body, ledger.c.hash)
    while True:
        page = tx.execute(
            select(*columns)
            .where(ledger.c.workspace == workspace, ledger.c.seq >= expected)
            .order_by(ledger.c.seq)
            .limit(PAGE)
        ).all()
        for seq, at, actor, kind, subject, body, digest in page:
            if seq != expected:
                raise _broken(workspace, expected, f"row {expected} is missing; row {seq} follows")
            if "sha256:" + sha256(body.encode()).hexdigest() != digest:
                raise _broken(workspace, seq, f"row {seq} was changed: its body does not have its digest")
            fields = json.loads(body)
            if fields["prev"] != prev:
                raise _broken(
                    workspace, seq, f"row {seq} does not follow row {seq - 1}: rows were changed or reordered"
                )
            told = (
                fields["workspace"],
                fields["seq"],
                fields["at"],
                fields["actor"],
                fields["kind"],
                fields["subject"],
            )
            if told != (workspace, seq, at, actor, kind, subject):
                raise _broken(workspace, seq, f"row {seq} was changed: its columns differ from its body")
            expected, prev = seq + 1, digest
        if len(page) < PAGE:
            break
    head = tx.execute(select(ledger_head).where(ledger_head.c.workspace == workspace)).first()
    last = head.seq if head else 0
    if last != expected - 1 or (head and head.hash != prev):
        raise _broken(workspace, expected, f"row {expected} is missing: the head says {last} rows")
    return Verified(rows=expected - 1, head=prev)


def verify_export(lines: Iterator[str]) -> Verified:
    """Check exported JSON lines without the database. Raises LedgerError at the first bad line."""
    expected, prev = 1, GENESIS
    for line in lines:
        try:
            entry = json.loads(line)
            fields, digest = entry["row"], entry["hash"]
            place, seq = str(fields["workspace"]), fields["seq"]
            whole = digest == _digest(rfc8785.dumps(fields).decode())
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerError(f"line {expected} is not a ledger row", place=f"line {expected}") from error
        if seq != expected:
            raise _broken(place, expected, f"row {expected} is missing; row {seq} follows")
        if not whole:
            raise _broken(place, seq, f"row {seq} was changed: its body does not have its digest")
        if fields["prev"] != prev:
            raise _broken(place, seq, f"row {seq} does not follow row {seq - 1}")
        expected, prev = seq + 1, digest
    return Verified(rows=expected - 1, head=prev)


def _body(
    workspace: str, seq: int, at: str, actor: str, kind: str, subject: str, data: Mapping[str, Any], prev: str
) -> str:
    told = Body(
        workspace=workspace, seq=seq, at=at, actor=actor, kind=kind, subject=subject, data=dict(data), prev=prev
    )
    try:
        return rfc8785.dumps(told.model_dump()).decode()
    except rfc8785.CanonicalizationError as error:
        raise InvalidError(f"ledger data of {kind} is not plain JSON: {error}", place=subject) from None


def _digest(body: str) -> str:
    return "sha256:" + sha256(body.encode()).hexdigest()


def _row(found: Any) -> Row:
    fields = json.loads(found.body)
    return Row(
        found.workspace,
        found.seq,
        found.at,
        found.actor,
        found.kind,
        found.subject,
        fields["data"],
        fields["prev"],
        found.hash,
    )


def _broken(workspace: str, seq: int, message: str) -> LedgerError:
    return LedgerError(message, place=f"ledger of {workspace}, row {seq}", cure="compare with an export or a backup")
