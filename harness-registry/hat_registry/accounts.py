"""Accounts, roles and tokens: who may do what, in which workspace, on which harness.

Always holds: passwords are argon2id hashes, token secrets are shown once and kept as SHA-256 (they are 256 random bits,
so no slow hash is needed); a permission is granted by a role, never by a name. Not here: HTTP, sessions, OIDC flows.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from typing import Any, Literal

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from sqlalchemy import Connection, and_, bindparam, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from hat_registry import clock, ledger
from hat_registry.errors import AuthenticationError, ConflictError, ForbiddenError, InvalidError, NotFoundError
from hat_registry.store.tables import account, grant, token

Role = Literal["viewer", "editor", "approver", "reviewer", "admin"]
Permission = Literal[
    "read",
    "push",
    "propose",
    "evidence",
    "approve",
    "move",
    "rollback",
    "mute",
    "label",
    "traces",
    "policy",
    "accounts",
    "run",
]

PERMISSIONS: dict[Role, frozenset[Permission]] = {
    "viewer": frozenset({"read"}),
    "reviewer": frozenset({"read", "label", "traces"}),
    "editor": frozenset({"read", "push", "propose", "evidence", "traces", "mute", "run"}),
    "approver": frozenset(
        {"read", "push", "propose", "evidence", "approve", "move", "rollback", "traces", "mute", "run"}
    ),
    "admin": frozenset(
        {
            "read",
            "push",
            "propose",
            "evidence",
            "approve",
            "move",
            "rollback",
            "mute",
            "label",
            "traces",
            "policy",
            "accounts",
            "run",
        }
    ),
}
MINIMUM_PASSWORD = 12
TOKEN_PREFIX = "hat_"  # noqa: S105 - a public prefix that lets secret scanners find leaked tokens

_hasher = PasswordHasher()
_ABSENT = _hasher.hash(secrets.token_hex(16))
"""Checked when the account does not exist, so that timing does not tell names apart."""


@dataclass(frozen=True, slots=True)
class Actor:
    """An authenticated account in one workspace. `grants` maps a harness name or `*` to roles."""

    account: str
    workspace: str
    grants: dict[str, frozenset[Role]] = field(default_factory=dict)
    scopes: frozenset[str] | None = None
    """Permissions that the token is limited to; None for no limit."""
    token: str = ""
    """Id of the token that was sent; "" for a signed-in browser."""
    expires_at: str | None = None
    """When that token expires; None for never, or without one."""

    def may(self, permission: Permission, harness: str | None = None) -> bool:
        """Whether the account has `permission`, on `harness` where one is named."""
        if self.scopes is not None and permission not in self.scopes:
            return False
        roles = self.grants.get("*", frozenset()) | (self.grants.get(harness, frozenset()) if harness else frozenset())
        return any(permission in PERMISSIONS[role] for role in roles)

    def may_some(self, permission: Permission) -> bool:
        """Whether the account has `permission` on anything at all."""
        return any(self.may(permission, harness) for harness in (None, *self.grants))

    def names(self, permission: Permission = "read") -> frozenset[str] | None:
        """The harness names on which the account has `permission`; None where it has it on all."""
        if self.may(permission):
            return None
        return frozenset(name for name in self.grants if name != "*" and self.may(permission, name))

    def require_some(self, permission: Permission) -> None:
        """Raise ForbiddenError unless `may_some`: for lists, which then hold only what the account may see."""
        if not self.may_some(permission):
            self.require(permission)

    def require(self, permission: Permission, harness: str | None = None) -> None:
        """Raise ForbiddenError, naming the roles that would do, unless `may`."""
        if not self.may(permission, harness):
            roles = ", ".join(sorted(role for role, held in PERMISSIONS.items() if permission in held))
            what = f"{permission} {harness}" if harness else permission
            raise ForbiddenError(f"{self.account} may not {what}", place=self.workspace, cure=f"needs one of: {roles}")


SYSTEM = Actor(account="system", workspace="default", grants={"*": frozenset({"admin"})})
"""The platform itself, on a laptop without accounts and for its own housekeeping."""


def create(tx: Connection, actor: Actor, name: str, *, display: str = "", password: str | None = None) -> None:
    """Make an account. A password has at least 12 characters; None for accounts that sign in through OIDC or tokens."""
    actor.require("accounts")
    if not name or len(name) > 128 or not all(c.isalnum() or c in "._@-" for c in name):
        raise InvalidError(f"account name {name[:80]!r} is not allowed", cure="letters, digits and . _ @ - only")
    if password is not None and len(password) < MINIMUM_PASSWORD:
        raise InvalidError("the password is too short", cure=f"use at least {MINIMUM_PASSWORD} characters")
    hashed = _hasher.hash(password) if password is not None else None
    row = {"id": name, "display": display or name, "password": hashed, "oidc_subject": None, "active": True}
    try:
        tx.execute(insert(account).values(**row, created_at=clock.text(clock.now())))
    except IntegrityError:
        raise ConflictError(f"account {name} exists") from None
    ledger.append(tx, actor.workspace, actor.account, "account", name, {"change": "created"})


def give(tx: Connection, actor: Actor, name: str, role: Role, harness: str = "*") -> None:
    """Give `role` on `harness` in the actor's workspace; a repeated grant changes nothing."""
    actor.require("accounts")
    if role not in PERMISSIONS:
        raise InvalidError(f"unknown role {role!r}", cure=f"one of {', '.join(PERMISSIONS)}")
    if tx.execute(select(account.c.id).where(account.c.id == name)).first() is None:
        raise NotFoundError(f"no account {name}")
    row = {"account": name, "workspace": actor.workspace, "harness": harness, "role": role}
    present = select(grant).where(*(grant.c[key] == value for key, value in row.items()))
    if tx.execute(present).first() is None:
        tx.execute(insert(grant).values(**row))
        ledger.append(
            tx, actor.workspace, actor.account, "account", name, {"change": "granted", "role": role, "on": harness}
        )


def take(tx: Connection, actor: Actor, name: str, role: Role, harness: str = "*") -> None:
    """Take a role away; the last admin of a workspace cannot be taken."""
    actor.require("accounts")
    here = grant.c.workspace == actor.workspace
    if role == "admin":
        others = select(func.count()).where(here, grant.c.role == "admin", grant.c.account != name)
        if tx.execute(others).scalar_one() == 0:
            raise ConflictError(f"{name} is the last admin of {actor.workspace}", cure="make another admin first")
    gone = tx.execute(
        grant.delete().where(here, grant.c.account == name, grant.c.role == role, grant.c.harness == harness)
    )
    if gone.rowcount:
        ledger.append(
            tx, actor.workspace, actor.account, "account", name, {"change": "revoked", "role": role, "on": harness}
        )


def change_password(tx: Connection, actor: Actor, old: str, new: str) -> None:
    """Change the actor's own password. A token cannot: who finds one must not take the account over."""
    if actor.scopes is not None:
        raise ForbiddenError("a token cannot change a password", cure="sign in on the console")
    try:
        sign_in(tx, actor.account, old, actor.workspace)
    except AuthenticationError:
        raise InvalidError("the present password is wrong", cure="an admin can invite you anew") from None
    if len(new) < MINIMUM_PASSWORD:
        raise InvalidError("the password is too short", cure=f"use at least {MINIMUM_PASSWORD} characters")
    tx.execute(update(account).where(account.c.id == actor.account).values(password=_hasher.hash(new)))
    ledger.append(tx, actor.workspace, actor.account, "account", actor.account, {"change": "password"})


def set_active(tx: Connection, actor: Actor, name: str, active: bool) -> bool:
    """Shut an account out, or let it in again; its sessions and tokens end at once. False when nothing changed.

    Only of accounts that belong to this workspace alone: another workspace's people are not an admin's here.
    """
    actor.require("accounts")
    found = tx.execute(select(account.c.active).where(account.c.id == name)).first()
    places = set(tx.execute(select(grant.c.workspace).where(grant.c.account == name)).scalars())
    if found is None or (places and actor.workspace not in places):
        raise NotFoundError(f"no account {name[:128]}")
    if len(places) > 1:
        raise ConflictError(f"{name} has roles in other workspaces too", cure="take its roles here instead")
    if bool(found.active) == active:
        return False
    if not active:
        here = (grant.c.workspace == actor.workspace, grant.c.role == "admin", grant.c.account != name)
        others = select(func.count()).select_from(grant).join(account, account.c.id == grant.c.account)
        if tx.execute(others.where(*here, account.c.active)).scalar_one() == 0:
            raise ConflictError(f"{name} is the last admin of {actor.workspace}", cure="make another admin first")
    tx.execute(update(account).where(account.c.id == name).values(active=active))
    data = {"change": "let in again" if active else "shut out"}
    ledger.append(tx, actor.workspace, actor.account, "account", name, data)
    return True


def actor_of(tx: Connection, name: str, workspace: str, scopes: Iterable[str] | None = None) -> Actor:
    """The actor for an account that has been authenticated by other means."""
    held = tx.execute(_HELD, {"name": name, "workspace": workspace}).all()
    if not held or not held[0].active:
        raise AuthenticationError("sign in again")
    return _actor(name, workspace, held, scopes)


def sign_in(tx: Connection, name: str, password: str, workspace: str) -> Actor:
    """Check a password. The same error and about the same time for a wrong name and a wrong password."""
    found = tx.execute(select(account).where(account.c.id == name)).first()
    stored = found.password if found is not None and found.password and found.active else _ABSENT
    try:
        _hasher.verify(stored, password)
    except (VerificationError, InvalidHashError):
        raise AuthenticationError("name or password is wrong") from None
    if stored is _ABSENT:
        raise AuthenticationError("name or password is wrong")
    return actor_of(tx, name, workspace)


def listing(tx: Connection, actor: Actor) -> list[dict[str, object]]:
    """Accounts that have a role in the actor's workspace, with it, and accounts that have none anywhere yet."""
    actor.require("accounts")
    held: dict[str, list[str]] = {}
    for row in tx.execute(select(grant).where(grant.c.workspace == actor.workspace).order_by(grant.c.role)):
        held.setdefault(row.account, []).append(row.role if row.harness == "*" else f"{row.role} on {row.harness}")
    elsewhere = select(grant.c.account).where(grant.c.workspace != actor.workspace)
    mine = or_(account.c.id.in_(select(grant.c.account).where(grant.c.workspace == actor.workspace)),
               account.c.id.not_in(elsewhere))  # fmt: skip
    found = tx.execute(select(account).where(mine).order_by(account.c.id))
    return [
        {
            "name": row.id,
            "display": row.display,
            "active": bool(row.active),
            "created_at": row.created_at,
            "roles": held.get(row.id, []),
        }
        for row in found
    ]


def tokens(tx: Connection, actor: Actor) -> list[dict[str, object]]:
    """The actor's own tokens, without their secrets."""
    mine = (token.c.account == actor.account, token.c.workspace == actor.workspace)
    columns = (token.c.id, token.c.label, token.c.scopes, token.c.created_at, token.c.expires_at, token.c.revoked_at)
    found = tx.execute(select(*columns).where(*mine).order_by(token.c.created_at.desc()))
    return [{**row._mapping, "scopes": json.loads(row.scopes)} for row in found]


def issue_token(
    tx: Connection, actor: Actor, *, label: str, scopes: Iterable[Permission], days: int | None = 90
) -> tuple[str, str]:
    """A new token of the actor's own account: (id, secret). The secret is not kept and never shown again.

    A token that makes a token passes on at most its own scopes and its own time.
    """
    limited = sorted(set(scopes))
    beyond = [scope for scope in limited if not actor.may_some(scope)]
    if beyond:
        raise ForbiddenError(f"{actor.account} cannot pass on {', '.join(beyond)}", cure="ask for fewer scopes")
    if tx.execute(select(account.c.id).where(account.c.id == actor.account)).first() is None:
        raise ConflictError("a token belongs to an account, and there is none yet", cure="make an account first")
    identity, secret = secrets.token_hex(8), TOKEN_PREFIX + secrets.token_urlsafe(32)
    created = clock.now()
    ends = clock.text(created + timedelta(days=days)) if days else None
    if actor.expires_at is not None:
        ends = min(ends or actor.expires_at, actor.expires_at)
    tx.execute(
        insert(token).values(
            id=identity,
            account=actor.account,
            workspace=actor.workspace,
            secret_hash=_hash(secret),
            label=label,
            scopes=json.dumps(limited),
            created_at=clock.text(created),
            expires_at=ends,
        )
    )
    data = {"change": "token issued", "token": identity, "scopes": limited}
    ledger.append(tx, actor.workspace, actor.account, "account", actor.account, data)
    return identity, secret


def revoke_token(tx: Connection, actor: Actor, identity: str) -> None:
    """Revoke an own token, or any of the workspace as an admin; a second time changes nothing."""
    found = tx.execute(select(token).where(token.c.id == identity, token.c.workspace == actor.workspace)).first()
    own = found is not None and found.account == actor.account and (not actor.token or actor.token == identity)
    if found is None or not (own or actor.may("accounts")):
        raise NotFoundError(f"no token {identity[:32]}")
    if found.revoked_at is None:
        tx.execute(update(token).where(token.c.id == identity).values(revoked_at=clock.text(clock.now())))
        data = {"change": "token revoked", "token": identity}
        ledger.append(tx, actor.workspace, actor.account, "account", found.account, data)


def by_token(tx: Connection, secret: str) -> Actor:
    """The actor of a bearer token. Raises AuthenticationError for an unknown, expired or revoked one."""
    rows = tx.execute(_BY_TOKEN, {"secret": _hash(secret)}).all()
    if not rows or rows[0].revoked_at is not None:
        raise AuthenticationError("the token is not valid")
    found = rows[0]
    if found.expires_at is not None and found.expires_at <= clock.text(clock.now()):
        raise AuthenticationError("the token has expired")
    if not found.active:
        raise AuthenticationError("sign in again")
    made = _actor(found.id, found.workspace, rows, json.loads(found.scopes))
    return replace(made, token=found.token, expires_at=found.expires_at)


def _actor(name: str, workspace: str, rows: Iterable[Any], scopes: Iterable[str] | None) -> Actor:
    held: dict[str, set[Role]] = {}
    for row in rows:
        if row.role is not None:
            held.setdefault(row.harness, set()).add(row.role)
    limits = frozenset(scopes) if scopes is not None else None
    return Actor(name, workspace, {harness: frozenset(roles) for harness, roles in held.items()}, limits)


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


_HELD = (
    select(account.c.active, grant.c.harness, grant.c.role)
    .outerjoin(grant, and_(grant.c.account == account.c.id, grant.c.workspace == bindparam("workspace")))
    .where(account.c.id == bindparam("name"))
)
_BY_TOKEN = (
    select(
        account.c.id, account.c.active, token.c.id.label("token"), token.c.workspace, token.c.scopes,
        token.c.expires_at, token.c.revoked_at,
        grant.c.harness, grant.c.role,
    )
    .select_from(token)
    .join(account, account.c.id == token.c.account)
    .outerjoin(grant, and_(grant.c.account == token.c.account, grant.c.workspace == token.c.workspace))
    .where(token.c.secret_hash == bindparam("secret"))
)  # fmt: skip
"""Both are one statement each: they run for every request."""
