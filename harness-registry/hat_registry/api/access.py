"""Who is asking: a bearer token, or nobody where the registry runs open on a laptop.

Sessions and OIDC of the console end in the same `Actor`. Not here: what the actor may do (accounts).
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy import select

from hat_registry import accounts
from hat_registry.accounts import Actor
from hat_registry.errors import AuthenticationError, ForbiddenError
from hat_registry.registry import Registry
from hat_registry.store.tables import account


def registry_of(request: Request) -> Registry:
    """The registry that the application serves."""
    found: Registry = request.app.state.registry
    return found


async def actor_of(request: Request) -> Actor:
    """The authenticated actor. Raises AuthenticationError; 403 for a write while the registry is read-only."""
    if request.app.state.read_only and request.method not in {"GET", "HEAD", "OPTIONS"}:
        raise ForbiddenError("the registry is read-only", cure="try again when maintenance is over")
    registry = registry_of(request)
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if secret and scheme.lower() == "bearer":
        with registry.database.read() as tx:
            return accounts.by_token(tx, secret.strip())
    signed_in = getattr(request.state, "actor", None)
    if isinstance(signed_in, Actor):
        return signed_in
    if request.app.state.open_access:
        with registry.database.read() as tx:
            empty = tx.execute(select(account.c.id).limit(1)).first() is None
        if empty:
            return accounts.SYSTEM
    raise AuthenticationError("not signed in", cure="send Authorization: Bearer <token>")


CurrentActor = Annotated[Actor, Depends(actor_of)]
CurrentRegistry = Annotated[Registry, Depends(registry_of)]
