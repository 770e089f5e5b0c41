"""Sign-in through an OpenID provider: authorization code with PKCE (authlib), an ID token that is checked (joserfc).

Always holds: state, nonce and verifier are random, live ten minutes in a signed HttpOnly cookie and are used once; the ID
token's signature, issuer, audience, times and nonce are checked, with an asymmetric algorithm that the provider offers;
the redirect address comes from the settings, never from a Host header; nothing of the provider's tokens is kept.
Not here: accounts (hat_registry.accounts_oidc), the routes (pages.entrance).
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from fastapi import Request, Response
from itsdangerous import BadSignature, URLSafeTimedSerializer
from pydantic import BaseModel, ConfigDict, Field, field_validator

from hat_registry.accounts import Role
from hat_registry.errors import AuthenticationError, StoreError

COOKIE = "hatstack_oidc"
MAX_AGE_S = 600
DOCUMENT_S = 3600.0
TIMEOUT_S = 10.0
ALGORITHMS = ("RS256", "PS256", "ES256", "RS384", "PS384", "ES384", "RS512", "PS512", "ES512", "EdDSA")
LOOPBACK = {"127.0.0.1", "::1", "localhost"}


class OidcSettings(BaseModel):
    """A provider."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: str
    """https://…; http only on loopback. `/.well-known/openid-configuration` below it says the rest."""
    client_id: str = Field(min_length=1)
    client_secret: str = Field(default="", repr=False)
    """Empty for a public client."""
    public_url: str
    """Address of this console as browsers see it: the provider sends people back to `<public_url>/login/oidc/back`."""
    title: str = "OpenID"
    """What the button says after “Sign in with”."""
    create: bool = False
    """Make an account at a person's first sign-in; else an admin makes it first, named by e-mail, without a password."""
    workspace: str = "default"
    groups_claim: str = "groups"
    roles: dict[str, Role] = Field(default_factory=dict)
    """Group of the provider → role that a new account gets."""
    scopes: str = "openid email profile"

    @field_validator("issuer", "public_url")
    @classmethod
    def _address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
            raise ValueError("must be https (http on loopback only)")
        return value.rstrip("/")


class Oidc:
    """The flow with one provider. `key` signs the cookie of a sign-in that is under way."""

    def __init__(self, settings: OidcSettings, key: bytes, *, secure: bool = False) -> None:
        self.settings = settings
        self._secure = secure
        self._signer = URLSafeTimedSerializer(key, salt="hatstack-oidc")
        self._document: tuple[float, dict[str, Any]] | None = None
        self._keys: Any = None

    @property
    def back(self) -> str:
        """Where the provider sends people back to."""
        return self.settings.public_url + "/login/oidc/back"

    def begin(self, target: str) -> tuple[str, str]:
        """(address at the provider, cookie value) of a new sign-in that ends at `target`."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        with self._client() as client:
            endpoint = self._about(client)["authorization_endpoint"]
            url, _ = client.create_authorization_url(endpoint, state=state, nonce=nonce, code_verifier=verifier)
        return str(url), self._signer.dumps([state, nonce, verifier, target])

    def remember(self, response: Response, value: str) -> None:
        """Set the cookie of a sign-in that is under way."""
        response.set_cookie(
            COOKIE, value, max_age=MAX_AGE_S, httponly=True, samesite="lax", secure=self._secure, path="/login/oidc"
        )

    def forget(self, response: Response) -> None:
        """Remove it."""
        response.delete_cookie(COOKIE, path="/login/oidc")

    def finish(self, request: Request) -> tuple[dict[str, Any], str]:
        """The checked claims of who came back, and where they were going. AuthenticationError for anything amiss."""
        try:
            state, nonce, verifier, target = self._signer.loads(request.cookies.get(COOKIE, ""), max_age=MAX_AGE_S)
        except (BadSignature, ValueError, TypeError):
            raise AuthenticationError("this sign-in is too old or was not begun here", cure="begin again") from None
        given = request.query_params
        if not hmac.compare_digest(str(state), given.get("state", "")):
            raise AuthenticationError("this sign-in was not begun here", cure="begin again")
        if given.get("error") or not given.get("code"):
            told = "".join(c for c in given.get("error", "no code") if c.isalnum() or c in " _-")[:60]
            raise AuthenticationError(f"the provider did not sign you in ({told})", cure="begin again")
        return self._claims(given["code"], str(verifier), str(nonce)), str(target)

    def _claims(self, code: str, verifier: str, nonce: str) -> dict[str, Any]:
        from authlib.integrations.base_client import OAuthError

        with self._client() as client:
            about = self._about(client)
            try:
                answer = client.fetch_token(about["token_endpoint"], code=code, code_verifier=verifier)
            except OAuthError as error:
                raise AuthenticationError(f"the provider refused the code ({str(error.error)[:60]})") from None
            except Exception as error:  # whatever the transport raises: the provider's answer never arrived
                raise StoreError(f"the provider does not answer ({type(error).__name__})") from None
            return self._checked(client, about, str(answer.get("id_token") or ""), nonce)

    def _checked(self, client: Any, about: Mapping[str, Any], token: str, nonce: str) -> dict[str, Any]:
        """Claims of an ID token whose signature and claims hold."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        offered = about.get("id_token_signing_alg_values_supported") or ["RS256"]
        algorithms = [name for name in ALGORITHMS if name in offered]
        needs: dict[str, Any] = {
            "iss": {"essential": True, "value": about["issuer"]},
            "aud": {"essential": True, "value": self.settings.client_id},
            "sub": {"essential": True}, "exp": {"essential": True}, "iat": {"essential": True},
            "nonce": {"essential": True, "value": nonce},
        }  # fmt: skip
        for fresh in (False, True):  # a key that is not known may be new: ask once more
            try:
                found = jwt.decode(token, self._key_set(client, about, fresh=fresh), algorithms=algorithms)
                jwt.JWTClaimsRegistry(leeway=60, **needs).validate(found.claims)
                claims = dict(found.claims)
                if isinstance(claims["aud"], list) and len(claims["aud"]) > 1:
                    needs["azp"] = {"essential": True, "value": self.settings.client_id}
                    jwt.JWTClaimsRegistry(leeway=60, **needs).validate(found.claims)
                return claims
            except (JoseError, ValueError, KeyError) as error:
                if fresh:
                    reason = type(error).__name__
                    raise AuthenticationError(f"the provider's token does not hold ({reason})") from None
        raise AssertionError("unreachable")

    def _key_set(self, client: Any, about: Mapping[str, Any], *, fresh: bool) -> Any:
        from joserfc.jwk import KeySet

        if self._keys is None or fresh:
            self._keys = KeySet.import_key_set(cast(Any, _json(client, about["jwks_uri"])))
        return self._keys

    def _about(self, client: Any) -> dict[str, Any]:
        """The provider's metadata, which must speak of the issuer that was asked."""
        now = time.monotonic()
        if self._document is None or now >= self._document[0]:
            found = _json(client, self.settings.issuer + "/.well-known/openid-configuration")
            if str(found.get("issuer", "")).rstrip("/") != self.settings.issuer:
                raise StoreError("the provider calls itself by another name", place=self.settings.issuer)
            missing = {"authorization_endpoint", "token_endpoint", "jwks_uri"} - set(found)
            if missing:
                raise StoreError(f"the provider does not tell {', '.join(sorted(missing))}")
            self._document = (now + DOCUMENT_S, found)
        return self._document[1]

    def _client(self) -> Any:
        from authlib.integrations.httpx_client import OAuth2Client

        return OAuth2Client(
            client_id=self.settings.client_id,
            client_secret=self.settings.client_secret or None,
            token_endpoint_auth_method="client_secret_basic" if self.settings.client_secret else "none",
            scope=self.settings.scopes,
            redirect_uri=self.back,
            code_challenge_method="S256",
            timeout=TIMEOUT_S,
            follow_redirects=False,
        )


def _json(client: Any, url: str) -> dict[str, Any]:
    try:
        answer = client.request("GET", url, withhold_token=True)
        found = answer.json() if answer.status_code == 200 else None
    except Exception as error:  # the transport's errors and a body that is not JSON
        raise StoreError(f"the provider does not answer ({type(error).__name__})", place=url) from None
    if not isinstance(found, dict):
        raise StoreError("the provider did not answer with a JSON object", place=url)
    return found
