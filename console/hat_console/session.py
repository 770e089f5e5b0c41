"""Signed-in browsers: a signed cookie and a CSRF token derived from it.

Always holds: the cookie is HttpOnly and SameSite=Lax, signed and dated; a change made with a cookie needs the CSRF token
that belongs to it, and its Origin must be this host. Not here: passwords and roles (hat_registry.accounts), the forms
(pages.entrance).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit

from fastapi import Request, Response
from itsdangerous import BadSignature, URLSafeTimedSerializer

from hat_registry import accounts
from hat_registry.accounts import Actor
from hat_registry.errors import AuthenticationError, ForbiddenError
from hat_registry.registry import Registry

COOKIE = "hatstack_session"
MAX_AGE_S = 12 * 3600


@dataclass(frozen=True, slots=True)
class Browser:
    """A signed-in browser."""

    actor: Actor
    csrf: str


class Sessions:
    """Makes and reads session cookies. `key` is secret and the same on every replica."""

    def __init__(self, registry: Registry, key: bytes, *, secure: bool = False) -> None:
        self._registry = registry
        self._key = key
        self._secure = secure
        self._signer = URLSafeTimedSerializer(key, salt="hatstack-session")

    def start(self, response: Response, account: str, workspace: str) -> None:
        """Sign the browser in."""
        value = self._signer.dumps([account, workspace, secrets.token_hex(8)])
        response.set_cookie(COOKIE, value, max_age=MAX_AGE_S, httponly=True, samesite="lax", secure=self._secure)

    def end(self, response: Response) -> None:
        """Sign it out."""
        response.delete_cookie(COOKIE)

    def read(self, request: Request) -> Browser | None:
        """The signed-in browser; None without a valid cookie or when the account is gone."""
        value = request.cookies.get(COOKIE)
        if not value:
            return None
        try:
            account, workspace, _ = self._signer.loads(value, max_age=MAX_AGE_S)
            with self._registry.database.read() as tx:
                actor = accounts.actor_of(tx, str(account), str(workspace))
        except (BadSignature, ValueError, TypeError, AuthenticationError):
            return None
        return Browser(actor, self.csrf(value))

    def csrf(self, value: str) -> str:
        """The token that belongs to a cookie value (or to "" for an open laptop)."""
        return hmac.new(self._key, b"csrf:" + value.encode(), hashlib.sha256).hexdigest()[:32]


def same_origin(request: Request) -> None:
    """Refuse what a browser says comes from another site."""
    origin = request.headers.get("origin")
    if origin and urlsplit(origin).netloc != request.headers.get("host"):
        raise ForbiddenError("the request comes from another site", cure="use the console's own pages")


def check_change(request: Request, expected: str, given: str) -> None:
    """Refuse a change that does not come from this console's own pages."""
    same_origin(request)
    if not hmac.compare_digest(expected, given or ""):
        raise ForbiddenError("the form is stale", cure="load the page again")
