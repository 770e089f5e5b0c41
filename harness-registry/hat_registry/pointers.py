"""Pointers: names such as `production` that point at a digest, and the policies that protect them.

Always holds: there is no pointer `latest`; a protected pointer moves only through `proposals.promote` or `rollback`; of
two concurrent moves one wins and the other learns who did. Not here: approval and gates (proposals, gates).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.exc import IntegrityError

from hat_registry import clock, ledger
from hat_registry.accounts import Actor
from hat_registry.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError
from hat_registry.gates import Gate
from hat_registry.store.tables import harness_version, pointer, policy, release
from hat_registry.store.tables import ledger as ledger_rows

Kind = Literal["harness", "model", "dataset", "profile", "release"]
KINDS: tuple[Kind, ...] = ("harness", "model", "dataset", "profile", "release")
PATTERN = re.compile(r"^[a-z][a-z0-9-]{0,62}$")
DEFAULT_PROTECTED = {"production": 1, "canary": 1}
"""Pointer → approvals by other accounts, where the workspace has set no policy of its own."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a pointer stands. `revision` counts its moves."""

    kind: str
    name: str
    pointer: str
    digest: str
    revision: int
    urgent: bool
    moved_by: str
    moved_at: str


@dataclass(frozen=True, slots=True)
class Policy:
    """What a move of a protected pointer needs."""

    approvals: int
    gates: tuple[Gate, ...]


def resolve(tx: Connection, workspace: str, kind: str, name: str, pointer_name: str) -> Position:
    """Where a pointer stands now. Raises NotFoundError."""
    found = _find(tx, workspace, kind, name, pointer_name)
    if found is None:
        raise NotFoundError(f"{kind}:{name} has no pointer {pointer_name}", place=workspace, cure=f"hat {kind} list")
    return found


def of_name(tx: Connection, workspace: str, kind: str, name: str) -> list[Position]:
    """All pointers of a name."""
    here = (pointer.c.workspace == workspace, pointer.c.kind == kind, pointer.c.name == name)
    return [_position(row) for row in tx.execute(select(pointer).where(*here).order_by(pointer.c.pointer))]


def as_of(tx: Connection, workspace: str, kind: str, name: str, pointer_name: str, at: str) -> str | None:
    """The digest that the pointer had at time `at` (UTC text), from the ledger; None before its first move."""
    found = tx.execute(
        select(ledger_rows.c.body)
        .where(
            ledger_rows.c.workspace == workspace,
            ledger_rows.c.subject == subject(kind, name, pointer_name),
            ledger_rows.c.kind.in_(("move", "rollback")),
            ledger_rows.c.seq <= ledger.last_by(tx, workspace, at),
            ledger_rows.c.at <= at,
        )
        .order_by(ledger_rows.c.seq.desc())
        .limit(1)
    ).scalar()
    return json.loads(found)["data"]["to"] if found else None


def protection(tx: Connection, workspace: str, kind: str, pointer_name: str) -> Policy | None:
    """What a move of this pointer needs; None where it is free to move."""
    row = tx.execute(
        select(policy).where(policy.c.workspace == workspace, policy.c.kind == kind, policy.c.pointer == pointer_name)
    ).first()
    if row is not None:
        return Policy(row.approvals, tuple(Gate.model_validate(gate) for gate in json.loads(row.gates)))
    if pointer_name in DEFAULT_PROTECTED:
        return Policy(DEFAULT_PROTECTED[pointer_name], ())
    return None


def set_policy(
    tx: Connection, actor: Actor, kind: Kind, pointer_name: str, approvals: int, gates: Sequence[Gate]
) -> None:
    """Protect a pointer or change its protection. Gates are type-checked when they are made."""
    actor.require("policy")
    _named(pointer_name)
    if not 0 <= approvals <= 9:
        raise InvalidError(f"{approvals} approvals make no sense", cure="0 to 9")
    key = (policy.c.workspace == actor.workspace, policy.c.kind == kind, policy.c.pointer == pointer_name)
    content = json.dumps([gate.model_dump(mode="json") for gate in gates], sort_keys=True)
    changed = tx.execute(update(policy).where(*key).values(approvals=approvals, gates=content))
    if changed.rowcount == 0:
        row = {"workspace": actor.workspace, "kind": kind, "pointer": pointer_name}
        tx.execute(insert(policy).values(**row, approvals=approvals, gates=content))
    data = {"approvals": approvals, "gates": [gate.id for gate in gates]}
    ledger.append(tx, actor.workspace, actor.account, "policy", f"{kind}/{pointer_name}", data)


def move_free(tx: Connection, actor: Actor, kind: Kind, name: str, pointer_name: str, digest: str) -> Position:
    """Move an unprotected pointer at once. A protected one is refused with the way to go."""
    actor.require("push", name)
    if protection(tx, actor.workspace, kind, pointer_name) is not None:
        raise ForbiddenError(
            f"{pointer_name} is protected", place=f"{kind}:{name}", cure=f"propose the move: hat {kind} propose {name}"
        )
    present = _find(tx, actor.workspace, kind, name, pointer_name)
    if present is not None and present.digest == digest:
        return present
    return move(tx, actor, kind, name, pointer_name, digest, revision=present.revision if present else 0)


def move(
    tx: Connection,
    actor: Actor,
    kind: str,
    name: str,
    pointer_name: str,
    digest: str,
    *,
    revision: int,
    urgent: bool = False,
    cause: Literal["move", "rollback"] = "move",
    data: dict[str, Any] | None = None,
) -> Position:
    """Move a pointer that stands at `revision` (0: does not exist yet). Callers have checked protection."""
    _named(pointer_name)
    require_known(tx, actor.workspace, kind, name, digest)
    at = clock.text(clock.now())
    before = _find(tx, actor.workspace, kind, name, pointer_name)
    values = {"digest": digest, "urgent": urgent, "moved_by": actor.account, "moved_at": at}
    key = {"workspace": actor.workspace, "kind": kind, "name": name, "pointer": pointer_name}
    if revision == 0 and before is None:
        try:
            tx.execute(insert(pointer).values(**key, **values, revision=1))
        except IntegrityError:
            raise ConflictError(
                f"{pointer_name} of {name} was created at the same time", cure="look and retry"
            ) from None
    else:
        matches = [pointer.c[column] == value for column, value in key.items()]
        moved = tx.execute(
            update(pointer).where(*matches, pointer.c.revision == revision).values(**values, revision=revision + 1)
        )
        if moved.rowcount != 1:
            raise _lost(tx, actor.workspace, kind, name, pointer_name)
    told = {"from": before.digest if before else "", "to": digest, "urgent": urgent, **(data or {})}
    ledger.append(tx, actor.workspace, actor.account, cause, subject(kind, name, pointer_name), told, at)
    return resolve(tx, actor.workspace, kind, name, pointer_name)


def rollback(
    tx: Connection, actor: Actor, kind: Kind, name: str, pointer_name: str, *, to: str | None = None, reason: str
) -> Position:
    """Put a pointer back to a digest it had before (`to`; by default its previous one): one action, a new row."""
    actor.require("rollback", name)
    if not reason.strip():
        raise InvalidError("a rollback needs a reason", cure="say in a sentence what is wrong")
    present = resolve(tx, actor.workspace, kind, name, pointer_name)
    past = history(tx, actor.workspace, kind, name, pointer_name, limit=None if to else 1000)
    target = to or next((digest for digest in past if digest != present.digest), None)
    if target is None:
        raise ConflictError(f"{pointer_name} of {name} has no earlier position", cure="propose another version")
    if target not in past:
        raise InvalidError(f"{pointer_name} of {name} was never at {target}", cure="choose one of its past positions")
    if target == present.digest:
        return present
    data = {"reason": reason.strip()}
    return move(
        tx,
        actor,
        kind,
        name,
        pointer_name,
        target,
        revision=present.revision,
        urgent=True,
        cause="rollback",
        data=data,
    )


def history(
    tx: Connection, workspace: str, kind: str, name: str, pointer_name: str, limit: int | None = 1000
) -> list[str]:
    """Digests that the pointer has had, newest first, the present one included; `limit` None: all of them."""
    found = tx.execute(
        select(ledger_rows.c.body)
        .where(
            ledger_rows.c.workspace == workspace,
            ledger_rows.c.subject == subject(kind, name, pointer_name),
            ledger_rows.c.kind.in_(("move", "rollback")),
        )
        .order_by(ledger_rows.c.seq.desc())
        .limit(limit)
    ).scalars()
    return [json.loads(body)["data"]["to"] for body in found]


def subject(kind: str, name: str, pointer_name: str) -> str:
    """How the ledger names a pointer."""
    return f"{kind}:{name}@{pointer_name}"


def _find(tx: Connection, workspace: str, kind: str, name: str, pointer_name: str) -> Position | None:
    row = tx.execute(
        select(pointer).where(
            pointer.c.workspace == workspace,
            pointer.c.kind == kind,
            pointer.c.name == name,
            pointer.c.pointer == pointer_name,
        )
    ).first()
    return _position(row) if row else None


def _position(row: Any) -> Position:
    return Position(
        row.kind, row.name, row.pointer, row.digest, row.revision, bool(row.urgent), row.moved_by, row.moved_at
    )


def _named(pointer_name: str) -> None:
    if pointer_name == "latest" or not PATTERN.match(pointer_name):
        cure = "lower-case letters, digits and -; never `latest`, which would say nothing about what was checked"
        raise InvalidError(f"a pointer cannot be called {pointer_name[:64]!r}", cure=cure)


def require_known(tx: Connection, workspace: str, kind: str, name: str, digest: str) -> None:
    """Harnesses and releases live here: a pointer to an unknown one is refused; their owners check the others."""
    table = {"harness": harness_version, "release": release}.get(kind)
    if table is None:
        return
    query = select(table.c.digest).where(table.c.workspace == workspace, table.c.name == name, table.c.digest == digest)
    if tx.execute(query).first() is None:
        raise NotFoundError(f"no {kind} {name} with digest {digest}", place=workspace, cure="push it first")


def _lost(tx: Connection, workspace: str, kind: str, name: str, pointer_name: str) -> ConflictError:
    winner = _find(tx, workspace, kind, name, pointer_name)
    told = f"{winner.moved_by} moved it to {winner.digest} at {winner.moved_at}" if winner else "it does not exist"
    return ConflictError(f"{pointer_name} of {name} moved meanwhile: {told}", cure="look at it and propose again")
