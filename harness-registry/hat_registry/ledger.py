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
from sqlalchemy import ColumnElement, Connection, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

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
        "comment",
        "experiment",
        "mute",
        "unmute",
        "account",
        "erase",
        "restore",
        "suite",
        "trace",
        "webhook",
    }
)
PAGE = 1000
"""Rows that are read at a time: small enough for caches, three times as fast as ten times more."""


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
class Head:
    """Where a chain ends: sequence number and digest of its last row; 0 and 64 zeros before the first."""

    seq: int = 0
    hash: str = GENESIS


@dataclass(frozen=True, slots=True)
class Entry:
    """What a row tells, before it has a place in the chain. `at` is UTC text."""

    at: str
    actor: str
    kind: str
    subject: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verified:
    """What `verify` saw: the number of rows and the digest of the last one, to be anchored elsewhere."""

    rows: int
    head: str


def append(
    tx: Connection, workspace: str, actor: str, kind: str, subject: str, data: Mapping[str, Any], at: str | None = None
) -> Row:
    """Add a row inside `tx`. Serialised per workspace by the head row; raises ConflictError if another writer won.

    `at` never runs back along the chain: where a clock does, the row carries the time of the row before.
    """
    if kind not in KINDS:
        raise InvalidError(f"unknown ledger kind {kind!r}", cure=f"one of {', '.join(sorted(KINDS))}")
    head = _locked_head(tx, workspace)
    before = select(ledger.c.at).where(ledger.c.workspace == workspace, ledger.c.seq == head.seq)
    written = max(at or clock.text(clock.now()), tx.execute(before).scalar() or "")
    row = link(workspace, head, Entry(written, actor, kind, subject, data))
    tx.execute(insert(ledger).values(**row))
    moved = tx.execute(
        update(ledger_head)
        .where(ledger_head.c.workspace == workspace, ledger_head.c.seq == head.seq)
        .values(seq=row["seq"], hash=row["hash"])
    )
    if moved.rowcount != 1:
        raise ConflictError("another writer appended to the ledger first", place=workspace, cure="try again")
    return Row(workspace, row["seq"], written, actor, kind, subject, data, head.hash, row["hash"])


def link(workspace: str, head: Head, entry: Entry) -> dict[str, Any]:
    """The table row that follows `head`: canonical body, and the digest that makes the next head."""
    seq = head.seq + 1
    body = _body(workspace, seq, entry, head.hash)
    told = {"at": entry.at, "actor": entry.actor, "kind": entry.kind, "subject": entry.subject}
    return {"workspace": workspace, "seq": seq, **told, "body": body, "hash": _digest(body)}


def _locked_head(tx: Connection, workspace: str) -> Head:
    """The head row, made at the first append; on Postgres locked until the transaction ends."""
    query = select(ledger_head.c.seq, ledger_head.c.hash).where(ledger_head.c.workspace == workspace)
    found = tx.execute(query.with_for_update()).first()
    if found is None:
        made = postgresql.insert if tx.dialect.name == "postgresql" else sqlite.insert
        first = made(ledger_head).values(workspace=workspace, seq=0, hash=GENESIS)
        tx.execute(first.on_conflict_do_nothing())
        found = tx.execute(query.with_for_update()).one()
    return Head(found.seq, found.hash)


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
    upto: int | None = None,
    newest_first: bool = False,
    only: frozenset[str] | None = None,
) -> list[Row]:
    """Rows in order of `seq`, filtered. `after` continues a listing; `until` and `upto` are an inclusive time and row.

    `only` are the harness names whose rows may be seen; None for all rows.
    """
    query = select(ledger).where(ledger.c.workspace == workspace)
    if only is not None:
        query = query.where(any_of(ledger.c.subject, only))
    if upto is not None:
        query = query.where(ledger.c.seq <= upto)
    for column, value in ((ledger.c.kind, kind), (ledger.c.subject, subject), (ledger.c.actor, actor)):
        if value is not None:
            query = query.where(column == value)
    if until is not None:
        query = query.where(ledger.c.seq <= last_by(tx, workspace, until), ledger.c.at <= until)
    if newest_first:
        query = query.order_by(ledger.c.seq.desc())
        query = query.where(ledger.c.seq < after) if after else query
    else:
        query = query.where(ledger.c.seq > after).order_by(ledger.c.seq)
    return [_row(found) for found in tx.execute(query.limit(limit))]


def any_of(subject: ColumnElement[str], names: frozenset[str]) -> ColumnElement[bool]:
    """Whether a subject is a harness or release of `names`, or one of their pointers."""
    whole = [f"{kind}:{name}" for kind in ("harness", "release") for name in sorted(names)]
    return or_(subject.in_(whole), *(subject.startswith(f"{one}@", autoescape=True) for one in whole))


def last_by(tx: Connection, workspace: str, until: str) -> int:
    """Sequence number of the last row at or before a time, 0 where there is none: times grow along the chain."""
    found = tx.execute(
        select(ledger.c.seq)
        .where(ledger.c.workspace == workspace, ledger.c.at <= until)
        .order_by(ledger.c.at.desc(), ledger.c.seq.desc())
        .limit(1)
    ).scalar()
    return found or 0


def export(tx: Connection, workspace: str) -> Iterator[str]:
    """All rows as JSON lines `{"hash":…,"row":…}` with the hashed text as it is; `verify_export` needs no database."""
    for seq, body, digest in _pages(tx, workspace, ledger.c.seq, ledger.c.body, ledger.c.hash):
        if not body.startswith("{"):
            raise _broken(workspace, seq, f"row {seq} was changed: its body is not a JSON object")
        yield f'{{"hash":"{digest}","row":{body}}}'


def verify(tx: Connection, workspace: str) -> Verified:
    """Check a workspace's whole chain. Raises LedgerError that names the first bad row and what is wrong with it.

    `tx` must see one moment (`Database.snapshot`), else a row that is appended meanwhile looks like a fault.
    """
    at = Head()
    columns = (ledger.c.at, ledger.c.actor, ledger.c.kind, ledger.c.subject)
    for seq, body, digest, *told in _pages(tx, workspace, ledger.c.seq, ledger.c.body, ledger.c.hash, *columns):
        fields = follow(workspace, at, seq, body, digest)
        if [fields[name] for name in ("at", "actor", "kind", "subject")] != told:
            raise _broken(workspace, seq, f"row {seq} was changed: its columns differ from its body")
        at = Head(seq, digest)
    head = tx.execute(select(ledger_head).where(ledger_head.c.workspace == workspace)).first()
    last = head.seq if head else 0
    if last > at.seq:
        raise _broken(workspace, at.seq + 1, f"row {at.seq + 1} is missing: the head says {last} rows")
    if last < at.seq:
        raise _broken(workspace, last + 1, f"row {last + 1} was added past the head, which says {last} rows")
    if head and head.hash != at.hash:
        raise _broken(workspace, at.seq, f"row {at.seq} was changed: the head has another digest")
    return Verified(rows=at.seq, head=at.hash)


def verify_export(lines: Iterator[str]) -> Verified:
    """Check exported JSON lines without the database. Raises LedgerError at the first bad line."""
    at, workspace = Head(), ""
    for line in lines:
        seq, body, digest = _exported(line.rstrip("\r\n"), at.seq + 1)
        fields = follow(workspace, at, seq, body, digest)
        workspace = fields["workspace"]
        at = Head(fields["seq"], digest)
    return Verified(rows=at.seq, head=at.hash)


def _pages(tx: Connection, workspace: str, *columns: ColumnElement[Any]) -> Iterator[Any]:
    """`columns` of all rows in order of `seq`, which is the first of them; one page in memory at a time."""
    after = 0
    query = select(*columns).where(ledger.c.workspace == workspace).order_by(ledger.c.seq).limit(PAGE)
    while True:
        page = tx.execute(query.where(ledger.c.seq > after)).all()
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1][0]


def follow(workspace: str, at: Head, seq: int, body: str, digest: str) -> dict[str, Any]:
    """The fields of the row that must follow `at`, else LedgerError. An empty `workspace` takes the row's own."""
    expected = at.seq + 1
    if seq != expected:
        told = "is missing" if seq > expected else "stands a second time"
        raise _broken(workspace, expected, f"row {min(seq, expected)} {told}; row {seq} follows row {at.seq}")
    if _digest(body) != digest:
        raise _broken(workspace, seq, f"row {seq} was changed: its body does not have its digest")
    try:
        fields: dict[str, Any] = json.loads(body)
        following = fields["prev"] == at.hash
        own = fields["seq"] == seq and fields["workspace"] == (workspace or fields["workspace"])
        complete = fields.keys() == Body.model_fields.keys()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _broken(workspace, seq, f"row {seq} was changed: its body is not a ledger row") from None
    if not following:
        raise _broken(workspace, seq, f"row {seq} does not follow row {at.seq}: rows were changed or reordered")
    if not own or not complete:
        raise _broken(workspace, seq, f"row {seq} was changed: its columns differ from its body")
    return fields


def _exported(line: str, number: int) -> tuple[int, str, str]:
    """Sequence number, hashed text and digest of an exported line; a reformatted one is made canonical first."""
    start = len('{"hash":"') + 71 + len('","row":')
    try:
        entry = json.loads(line)
        fields, digest = entry["row"], entry["hash"]
        seq = int(fields["seq"])
        body = line[start:-1] if line.startswith('{"hash":"') else rfc8785.dumps(fields).decode()
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerError(f"line {number} is not a ledger row", place=f"line {number}") from error
    return seq, body, digest


def _body(workspace: str, seq: int, entry: Entry, prev: str) -> str:
    told = Body(
        workspace=workspace,
        seq=seq,
        at=entry.at,
        actor=entry.actor,
        kind=entry.kind,
        subject=entry.subject,
        data=dict(entry.data),
        prev=prev,
    )
    try:
        return rfc8785.dumps(told.model_dump()).decode()
    except rfc8785.CanonicalizationError as error:
        raise InvalidError(f"ledger data of {entry.kind} is not plain JSON: {error}", place=entry.subject) from None


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
    return LedgerError(
        message, place=f"ledger of {workspace or 'the export'}, row {seq}", cure="compare with an export or a backup"
    )
