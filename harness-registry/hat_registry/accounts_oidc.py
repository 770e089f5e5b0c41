"""Accounts of people who sign in through an OpenID provider.

Always holds: an account belongs to a provider's subject (`issuer|sub`), never to a name that a provider tells; an
existing account is linked only when an admin made it without a password and the provider vouches for the e-mail address
that it is called by. Not here: the flow with the provider (hat_console.oidc), what roles may do (accounts).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select, update

from hat_registry import accounts, ledger
from hat_registry.accounts import SYSTEM, Actor, Role
from hat_registry.errors import ConflictError, ForbiddenError
from hat_registry.store.tables import account, token


def sign_in(
    tx: Connection,
    claims: Mapping[str, Any],
    workspace: str,
    *,
    create: bool = False,
    roles: Mapping[str, Role] | None = None,
    groups_claim: str = "groups",
) -> Actor:
    """The actor behind checked ID-token claims; makes the account at its first sign-in where `create` allows it.

    `roles` maps a group of the provider to a role, given at the first sign-in only: later changes are an admin's.
    """
    subject = f"{claims['iss']}|{claims['sub']}"[:256]
    found = tx.execute(select(account.c.id).where(account.c.oidc_subject == subject)).scalar()
    if found is not None:
        return accounts.actor_of(tx, found, workspace)
    name = _name(claims)
    maker = Actor(SYSTEM.account, workspace, SYSTEM.grants)
    present = tx.execute(select(account).where(account.c.id == name)).first()
    if present is not None:
        _linkable(tx, present, claims)
    elif create:
        accounts.create(tx, maker, name, display=str(claims.get("name") or name)[:256])
        _groups(tx, maker, name, claims.get(groups_claim), roles or {})
    else:
        raise ForbiddenError(f"{name} has no account here", cure="ask an admin to make one without a password")
    tx.execute(update(account).where(account.c.id == name).values(oidc_subject=subject))
    data = {"change": "linked", "issuer": str(claims["iss"])[:200]}
    ledger.append(tx, workspace, SYSTEM.account, "account", name, data)
    return accounts.actor_of(tx, name, workspace)


def _name(claims: Mapping[str, Any]) -> str:
    """The verified e-mail address, else the provider's name for the person, else the subject."""
    if claims.get("email_verified") is True and claims.get("email"):
        return str(claims["email"]).lower()
    told = str(claims.get("preferred_username") or claims["sub"])
    return "".join(c for c in told if c.isalnum() or c in "._@-")[:128] or "person"


def _linkable(tx: Connection, present: Any, claims: Mapping[str, Any]) -> None:
    vouched = claims.get("email_verified") is True and str(claims.get("email", "")).lower() == present.id
    used = tx.execute(select(token.c.id).where(token.c.account == present.id).limit(1)).first() is not None
    if present.oidc_subject is not None or present.password is not None or used or not vouched or not present.active:
        raise ConflictError(f"{present.id} belongs to somebody else here", cure="ask an admin for an account")


def _groups(tx: Connection, maker: Actor, name: str, told: Any, roles: Mapping[str, Role]) -> None:
    groups = told if isinstance(told, list) else []
    for role in sorted({roles[group] for group in groups if isinstance(group, str) and group in roles}):
        accounts.give(tx, maker, name, role)
