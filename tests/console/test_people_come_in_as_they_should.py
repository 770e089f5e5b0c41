"""The ways in: the first admin's link, invitations, a real OpenID provider; and what is refused at each."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient
from joserfc import jwt
from joserfc.jwk import RSAKey
from oidc_provider_mock import User, run_server_in_thread

from hat_console.app import ConsoleSettings, create_app
from hat_console.oidc import Oidc, OidcSettings
from hat_registry import accounts, clock, invitations
from hat_registry.accounts import SYSTEM, Actor
from hat_registry.errors import AuthenticationError, ConflictError, ForbiddenError, InvalidError
from hat_registry.registry import Registry
from hat_registry.store.blobs import FolderBlobs
from hat_registry.store.database import Database

KEY = b"k" * 32
PASSWORD = "a-password-that-is-long"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    made = Registry.open(f"sqlite:///{tmp_path}/registry.db", tmp_path / "blobs")
    yield made
    made.close()


def client_of(registry: Registry, base: str = "http://127.0.0.1", **settings: object) -> TestClient:
    made = ConsoleSettings(session_key=KEY, send_webhooks=False, **settings)  # type: ignore[arg-type]  # a mapping of fields
    return TestClient(create_app(registry, made), base_url=base, follow_redirects=False, raise_server_exceptions=False)


def first_link(registry: Registry) -> str:
    with registry.database.write() as tx:
        link = invitations.first(tx)
    assert link is not None
    return link


# ---- links ----------------------------------------------------------------------------------------------------


def test_the_first_link_makes_one_admin_once(registry: Registry) -> None:
    client = client_of(registry)
    old, link = first_link(registry), first_link(registry)
    assert client.get("/setup", params={"link": old}).status_code == 403, "a restart ends earlier links"
    assert "admin" in client.get("/setup", params={"link": link}).text
    fields = {"link": link, "name": "root", "password": PASSWORD}
    assert client.post("/setup", data={**fields, "password": "short"}).status_code == 422
    made = client.post("/setup", data=fields)
    assert (made.status_code, made.headers["location"]) == (303, "/")
    assert client.get("/api/v1/me").json()["grants"] == {"*": ["admin"]}
    assert client.post("/setup", data={**fields, "name": "mallory"}).status_code == 403
    with registry.database.write() as tx:
        assert invitations.first(tx) is None


def test_an_invitation_gives_its_role_in_its_workspace_and_ends(registry: Registry) -> None:
    with registry.database.write() as tx:
        accounts.create(tx, SYSTEM, "root", password=PASSWORD)
        accounts.give(tx, SYSTEM, "root", "admin")
        link = invitations.invite(tx, accounts.actor_of(tx, "root", "default"), "editor")
        late = invitations.invite(tx, accounts.actor_of(tx, "root", "default"), "admin", hours=-1)
    with registry.database.write() as tx, pytest.raises(AuthenticationError):
        invitations.accept(tx, late, "mallory", PASSWORD)
    with registry.database.write() as tx:
        made = invitations.accept(tx, link, "ed", PASSWORD)
        assert made.grants == {"*": frozenset({"editor"})}
    with registry.database.write() as tx, pytest.raises(ForbiddenError):
        invitations.invite(tx, made, "admin")
    with registry.database.write() as tx, pytest.raises(AuthenticationError):
        invitations.accept(tx, link, "ed2", PASSWORD)


def test_links_cannot_be_guessed_quickly(registry: Registry) -> None:
    client = client_of(registry)
    codes = [client.get("/setup", params={"link": f"guess-{number}"}).status_code for number in range(12)]
    assert codes == [403] * 10 + [429] * 2


# ---- tokens and accounts --------------------------------------------------------------------------------------


def test_tokens_are_hashed_scoped_and_end(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    with registry.database.write() as tx:
        accounts.create(tx, SYSTEM, "ed")
        accounts.give(tx, SYSTEM, "ed", "editor")
        ed = accounts.actor_of(tx, "ed", "default")
        with pytest.raises(ForbiddenError, match="cannot pass on"):
            accounts.issue_token(tx, ed, label="x", scopes=["accounts"])
        identity, secret = accounts.issue_token(tx, ed, label="x", scopes=["read", "push"], days=1)
        dumped = "".join(connection_dump(tx))
        assert secret not in dumped
        assert identity in dumped
        actor = accounts.by_token(tx, secret)
        assert (actor.may("read"), actor.may("push"), actor.may("mute")) == (True, True, False)
        _, longer = accounts.issue_token(tx, actor, label="y", scopes=["read"], days=3650)
        assert accounts.by_token(tx, longer).expires_at == actor.expires_at
        with pytest.raises(ForbiddenError):
            accounts.change_password(tx, actor, PASSWORD, PASSWORD)
        real = clock.now
        monkeypatch.setattr(clock, "now", lambda: real().replace(year=real().year + 1))
        for ended in (secret, longer):
            with pytest.raises(AuthenticationError, match="expired"):
                accounts.by_token(tx, ended)


def connection_dump(tx: object) -> list[str]:
    return [str(row) for row in tx.exec_driver_sql("select * from token")]  # type: ignore[attr-defined]  # a connection


def test_an_account_that_is_shut_out_is_out_at_once(registry: Registry) -> None:
    with registry.database.write() as tx:
        for name, role in (("root", "admin"), ("ed", "editor")):
            accounts.create(tx, SYSTEM, name, password=PASSWORD)
            accounts.give(tx, SYSTEM, name, role)  # type: ignore[arg-type]  # the tuple loses the literal
        _, secret = accounts.issue_token(tx, accounts.actor_of(tx, "ed", "default"), label="x", scopes=["read"])
    client = client_of(registry)
    assert client.post("/login", data={"name": "ed", "password": PASSWORD}).status_code == 303
    assert client.get("/api/v1/me").status_code == 200
    with registry.database.write() as tx:
        root = accounts.actor_of(tx, "root", "default")
        assert accounts.set_active(tx, root, "ed", False)
        with pytest.raises(ConflictError, match="last admin"):
            accounts.set_active(tx, root, "root", False)
    assert client.get("/api/v1/me").status_code == 401
    assert client.get("/api/v1/me", headers={"Authorization": f"Bearer {secret}"}).status_code == 401
    assert client.post("/login", data={"name": "ed", "password": PASSWORD}).status_code == 401


def test_another_site_cannot_sign_anybody_in(registry: Registry) -> None:
    client = client_of(registry)
    for path in ("/login", "/setup"):
        answer = client.post(path, data={"name": "x", "password": "y"}, headers={"Origin": "https://evil.example"})
        assert answer.status_code == 403


def test_an_open_laptop_answers_to_its_own_names_only(registry: Registry) -> None:
    client = client_of(registry, open_access=True)
    assert client.get("/api/v1/harnesses").status_code == 200
    assert client.put("/api/v1/mutes/r1").status_code == 200, "a program needs no form"
    crossed = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert client.put("/api/v1/mutes/r2", headers=crossed).status_code == 403
    rebound = client_of(registry, base="http://evil.example:8700", open_access=True)
    assert rebound.get("/api/v1/harnesses").status_code == 401
    assert rebound.get("/", headers={"Accept": "text/html"}).status_code == 303
    assert client.post("/api/v1/tokens", json={"label": "x", "scopes": ["read"]}).status_code == 409


def test_read_only_refuses_every_change(registry: Registry) -> None:
    link = first_link(registry)
    client = client_of(registry, open_access=True, read_only=True)
    assert client.get("/api/v1/harnesses").status_code == 200
    assert client.put("/api/v1/mutes/r1").status_code == 403
    assert client.post("/setup", data={"link": link, "name": "root", "password": PASSWORD}).status_code == 403


def test_a_database_that_is_away_is_told_on_pages_and_in_the_api(tmp_path: Path) -> None:
    away = Registry(Database("postgresql+psycopg://hat:very-secret@127.0.0.1:9/none"), FolderBlobs(tmp_path))
    client = client_of(away, open_access=True)
    client.cookies.set("hatstack_session", "x")
    for path, headers in (("/", {"Accept": "text/html"}), ("/api/v1/harnesses", {}), ("/readyz", {})):
        answer = client.get(path, headers=headers)
        assert answer.status_code == 503, path
        assert "very-secret" not in answer.text
    away.close()


def test_changes_have_a_rate(registry: Registry) -> None:
    client = client_of(registry, open_access=True, writes_per_s=0.3)
    codes = [client.put(f"/api/v1/mutes/r{number}").status_code for number in range(5)]
    assert codes == [200, 200, 200, 429, 429]
    assert int(client.put("/api/v1/mutes/x").headers["retry-after"]) in range(1, 5)
    assert client.get("/api/v1/mutes").status_code == 200


# ---- OpenID ---------------------------------------------------------------------------------------------------


@contextmanager
def provider(*people: User) -> Iterator[str]:
    with run_server_in_thread(require_nonce=True, user_claims=people) as server:
        yield f"http://localhost:{server.server_port}"


def settings_of(issuer: str, **more: object) -> OidcSettings:
    told = {"issuer": issuer, "client_id": "hatstack", "client_secret": "x", "public_url": "http://127.0.0.1", **more}
    return OidcSettings.model_validate(told)


def through(client: TestClient, sub: str, target: str = "/ledger") -> httpx.Response:
    """Sign in at the provider as a browser would."""
    begun = client.get("/login/oidc", params={"next": target})
    assert begun.status_code == 303, begun.text
    consent = httpx.post(begun.headers["location"], data={"sub": sub})
    assert consent.status_code == 302, consent.text
    back = urlsplit(consent.headers["location"])
    return client.get(f"{back.path}?{back.query}")  # type: ignore[return-value]  # starlette's response is httpx's


ADA = User(sub="ada-1", claims={"email": "ada@shop.example", "email_verified": True, "groups": ["ops"]})


def test_a_provider_signs_people_in_and_groups_become_roles(registry: Registry) -> None:
    with provider(ADA) as issuer:
        settings = settings_of(issuer, create=True, roles={"ops": "approver"}, scopes="openid email profile groups")
        client = client_of(registry, oidc=settings)
        assert "/login/oidc" in client.get("/login").text
        answer = through(client, "ada-1")
        assert (answer.status_code, answer.headers["location"]) == (303, "/ledger"), answer.text
        me = client.get("/api/v1/me").json()
        assert me["account"] == "ada@shop.example"
        assert me["grants"] == {"*": ["approver"]}
        assert through(client_of(registry, oidc=settings), "ada-1").status_code == 303
        with registry.database.read() as tx:
            assert len(accounts.listing(tx, SYSTEM)) == 1


def test_a_person_without_an_account_is_told_whom_to_ask(registry: Registry) -> None:
    with provider(ADA) as issuer:
        client = client_of(registry, oidc=settings_of(issuer))
        refused = through(client, "ada-1")
        assert refused.status_code == 403
        assert "ask an admin" in refused.text
        with registry.database.write() as tx:
            accounts.create(tx, SYSTEM, "ada@shop.example")
            accounts.give(tx, SYSTEM, "ada@shop.example", "viewer")
        assert through(client, "ada-1").status_code == 303


@pytest.mark.parametrize("kind", ["password", "unverified", "token"])
def test_an_account_is_never_taken_over_by_a_name(registry: Registry, kind: str) -> None:
    claims = {"email": "ada@shop.example", "email_verified": kind != "unverified", "preferred_username": "root"}
    with registry.database.write() as tx:
        for name in ("ada@shop.example", "root"):
            accounts.create(tx, SYSTEM, name, password=PASSWORD if kind == "password" else None)
            accounts.give(tx, SYSTEM, name, "admin")
            if kind == "token":
                accounts.issue_token(tx, accounts.actor_of(tx, name, "default"), label="x", scopes=["read"])
    with provider(User(sub="mallory", claims=claims)) as issuer:
        client = client_of(registry, oidc=settings_of(issuer, create=True))
        assert through(client, "mallory").status_code == 409
        assert client.get("/api/v1/me").status_code == 401


def test_a_way_back_that_was_not_begun_here_is_refused(registry: Registry) -> None:
    with provider(ADA) as issuer:
        client = client_of(registry, oidc=settings_of(issuer, create=True))
        begun = client.get("/login/oidc")
        query = parse_qs(urlsplit(begun.headers["location"]).query)
        assert query["code_challenge_method"] == ["S256"]
        assert query["redirect_uri"] == ["http://127.0.0.1/login/oidc/back"]
        consent = httpx.post(begun.headers["location"], data={"sub": "ada-1"})
        code = parse_qs(urlsplit(consent.headers["location"]).query)["code"][0]
        state = query["state"][0]
        for told in ({"code": code, "state": "x" * len(state)}, {"code": code}, {"state": state}, {"error": "denied"}):
            answer = client.get("/login/oidc/back?" + urlencode(told))
            assert answer.status_code == 401, told
            client.cookies.set("hatstack_oidc", begun.cookies["hatstack_oidc"], path="/login/oidc", domain="127.0.0.1")
        stranger = client_of(registry, oidc=settings_of(issuer, create=True))
        assert stranger.get(f"/login/oidc/back?code={code}&state={state}").status_code == 401
        assert client.get("/api/v1/me").status_code == 401


def forged(oidc: Oidc, key: RSAKey, **changes: object) -> str:
    now = int(time.time())
    claims = {
        "iss": oidc.settings.issuer,
        "aud": "hatstack",
        "sub": "mallory",
        "exp": now + 60,
        "iat": now,
        "nonce": "n",
    }
    return jwt.encode({"alg": "RS256", "kid": key.kid or "k"}, {**claims, **changes}, key)


def test_a_token_that_does_not_hold_is_refused() -> None:
    with provider(ADA) as issuer:
        oidc = Oidc(settings_of(issuer), KEY)
        key = RSAKey.generate_key(2048)
        with oidc._client() as client:
            about = oidc._about(client)
            real = oidc._key_set
            with pytest.raises(AuthenticationError):
                oidc._checked(client, about, forged(oidc, key), "n")
            oidc._key_set = lambda *_, **__: key  # type: ignore[method-assign]
            assert oidc._checked(client, about, forged(oidc, key), "n")["sub"] == "mallory"
            wrong = (
                {"iss": "https://evil.example"}, {"aud": "another"}, {"exp": 1}, {"nonce": "other"}, {"sub": None},
                {"iat": None}, {"aud": ["hatstack", "another"]},
            )  # fmt: skip
            for changes in wrong:
                with pytest.raises(AuthenticationError):
                    oidc._checked(client, about, forged(oidc, key, **changes), "n")
            unsigned = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
            body = forged(oidc, key).split(".")[1]
            for token in (f"{unsigned}.{body}.", "a.b.c", ""):
                with pytest.raises(AuthenticationError):
                    oidc._checked(client, about, token, "n")
            oidc._key_set = real  # type: ignore[method-assign]


@pytest.mark.parametrize("issuer", ["http://idp.example", "ftp://idp.example", "idp.example"])
def test_a_provider_is_asked_over_tls(issuer: str) -> None:
    with pytest.raises(ValueError, match="https"):
        settings_of(issuer)


def test_the_command_line_says_what_is_wrong(registry: Registry) -> None:
    import argparse

    from hat_console import entry

    parser = argparse.ArgumentParser()
    entry.add_options(parser)
    parser.add_argument("--port", default=8700)
    for words in (["--oidc-issuer", "http://idp.example"], ["--oidc-issuer", "https://i.example", "--oidc-role", "x"]):
        with pytest.raises(InvalidError):
            entry.oidc(parser.parse_args([*words, "--oidc-client", "c"]))
    good = parser.parse_args(["--oidc-issuer", "https://i.example", "--oidc-client", "c", "--oidc-role", "ops=editor"])
    made = entry.oidc(good)
    assert made is not None
    assert made.roles == {"ops": "editor"}
    assert re.match(r"https://i.example", made.issuer)
    assert Actor("x", "default").names() == frozenset()
