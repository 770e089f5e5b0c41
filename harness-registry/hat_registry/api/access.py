"""Who is asking: a bearer token, a signed-in browser, or nobody where the registry runs open on a laptop.

Always holds: credentials are checked at every request, so that a revoked token ends at once; while the registry is
read-only every change answers 403 before anything is read. Not here: what the actor may do (accounts).
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy import Connection, select

from hat_registry import accounts
from hat_registry.accounts import Actor
from hat_registry.api.limits import Buckets
from hat_registry.errors import AuthenticationError, ForbiddenError
from hat_registry.registry import Registry
from hat_registry.store.tables import account

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_ANYBODY = select(account.c.id).limit(1)


async def registry_of(request: Request) -> Registry:
    """The registry that the application serves."""
    found: Registry = request.app.state.registry
    return found


async def actor_of(request: Request) -> Actor:
    """The authenticated actor. Raises AuthenticationError; 403 for a write while the registry is read-only."""
    change = request.method not in SAFE
    if change and request.app.state.read_only:
        raise ForbiddenError("the registry is read-only", cure="try again when maintenance is over")
    registry: Registry = request.app.state.registry
    with registry.database.read() as tx:
        actor = identify(request, tx)
    if change:
        writes: Buckets = request.app.state.writes
        writes.spend(f"{actor.workspace}/{actor.account}", "changes")
    return actor


def identify(request: Request, tx: Connection) -> Actor:
    """The actor of a request, on a connection that the caller has. Raises AuthenticationError."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if secret and scheme.lower() == "bearer":
        try:
            return accounts.by_token(tx, secret.strip())
        except AuthenticationError:
            wrong: Buckets = request.app.state.wrong
            wrong.spend(address(request), "wrong credentials")
            raise
    signed_in = getattr(request.state, "actor", None)
    if isinstance(signed_in, Actor):
        return signed_in
    if request.app.state.open_access and local(request) and nobody(tx):
        return accounts.SYSTEM
    raise AuthenticationError("not signed in", cure="send Authorization: Bearer <token>")


def local(request: Request) -> bool:
    """Whether the caller asked for this machine by a name of its own: another name that leads here is a rebound one."""
    host = request.headers.get("host", "")
    return (host.rsplit(":", 1)[0] if not host.endswith("]") else host) in LOOPBACK


def nobody(tx: Connection) -> bool:
    """Whether there is no account yet."""
    return tx.execute(_ANYBODY).first() is None


def address(request: Request) -> str:
    """The network address of the caller, as the server sees it (a proxy's, unless uvicorn is told to trust it)."""
    return request.client.host if request.client else ""


CurrentActor = Annotated[Actor, Depends(actor_of)]
CurrentRegistry = Annotated[Registry, Depends(registry_of)]
