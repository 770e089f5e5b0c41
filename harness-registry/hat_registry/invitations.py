"""Links that make one account, once: for the first admin of a new registry, and for people whom an admin invites.

Always holds: a secret is 256 random bits, kept as a hash, valid for a time and for one account; the link of the first
admin works only while there is no account at all. Not here: the page behind the link (hat_console), passwords' rules.
"""

from __future__ import annotations

import secrets
from datetime import timedelta
from hashlib import sha256
from typing import cast

from sqlalchemy import Connection, delete, insert, select, update

from hat_registry import accounts, clock, ledger
from hat_registry.accounts import SYSTEM, Actor, Role
from hat_registry.errors import AuthenticationError, ConflictError, InvalidError
from hat_registry.store.access_tables import invitation
from hat_registry.store.tables import account

FIRST_HOURS = 24
HOURS = 72


def first(tx: Connection, workspace: str = "default") -> str | None:
    """The secret of a new first-admin link; links made at earlier starts end. None once there is an account."""
    if tx.execute(select(account.c.id).limit(1)).first() is not None:
        return None
    own = (invitation.c.workspace == workspace, invitation.c.created_by == SYSTEM.account)
    tx.execute(delete(invitation).where(*own, invitation.c.used_at.is_(None)))
    return _make(tx, workspace, SYSTEM.account, "admin", FIRST_HOURS)


def invite(tx: Connection, actor: Actor, role: Role, *, hours: int = HOURS) -> str:
    """The secret of a link that makes an account with `role` in the actor's workspace."""
    actor.require("accounts")
    if role not in accounts.PERMISSIONS:
        raise InvalidError(f"unknown role {role!r}", cure=f"one of {', '.join(accounts.PERMISSIONS)}")
    secret = _make(tx, actor.workspace, actor.account, role, hours)
    data = {"change": "invited", "role": role}
    ledger.append(tx, actor.workspace, actor.account, "account", "invitation", data)
    return secret


def look(tx: Connection, secret: str) -> tuple[str, Role]:
    """The workspace and role of an open link. AuthenticationError for one that is unknown, used or late."""
    found = tx.execute(select(invitation).where(invitation.c.secret_hash == _hash(secret))).first()
    if found is None or found.used_at is not None or found.expires_at <= clock.text(clock.now()):
        raise AuthenticationError("this link is not valid any more", cure="ask an admin for another")
    if found.created_by == SYSTEM.account and tx.execute(select(account.c.id).limit(1)).first() is not None:
        raise AuthenticationError("this link is not valid any more", cure="an admin exists: ask them for an invitation")
    return found.workspace, cast(Role, found.role)


def accept(tx: Connection, secret: str, name: str, password: str, *, display: str = "") -> Actor:
    """Make the account that the link is for and use the link up."""
    workspace, role = look(tx, secret)
    used = tx.execute(
        update(invitation)
        .where(invitation.c.secret_hash == _hash(secret), invitation.c.used_at.is_(None))
        .values(used_at=clock.text(clock.now()))
    )
    if used.rowcount != 1:
        raise ConflictError("this link was used at the same time", cure="ask an admin for another")
    maker = Actor(SYSTEM.account, workspace, SYSTEM.grants)
    accounts.create(tx, maker, name, display=display, password=password)
    accounts.give(tx, maker, name, role)
    return accounts.actor_of(tx, name, workspace)


def _make(tx: Connection, workspace: str, by: str, role: str, hours: int) -> str:
    secret = secrets.token_urlsafe(32)
    now = clock.now()
    row = {"id": secrets.token_hex(8), "workspace": workspace, "secret_hash": _hash(secret), "role": role}
    times = {"created_at": clock.text(now), "expires_at": clock.text(now + timedelta(hours=hours)), "used_at": None}
    tx.execute(insert(invitation).values(**row, **times, created_by=by))
    return secret


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()
