"""Each page's JSON twin is its API resource; texts come from the catalogue; cookies, CSRF, XSS and redirects are held."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from importlib.resources import files

import httpx
import pytest

from hat_console.messages import LANGUAGES, catalogue
from hat_registry import accounts, ledger, proposals, webhooks
from tests.console.conftest import Console

TEMPLATES = sorted(path for path in files("hat_console").joinpath("templates").iterdir() if path.name.endswith(".html"))


@pytest.fixture
def client(console: Console) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=console.url, follow_redirects=False, timeout=20) as made:
        yield made


def signed_in(client: httpx.Client, name: str) -> str:
    answer = client.post("/login", data={"name": name, "password": f"{name}-has-a-long-password"})
    assert answer.status_code == 303, answer.text
    found = re.search(r'name="csrf" value="(\w+)"', client.get("/").text)
    assert found
    return found.group(1)


def test_each_page_asked_for_json_is_its_api_resource(console: Console, client: httpx.Client) -> None:
    signed_in(client, "root")
    digest = console.digest
    with console.registry.database.write() as tx:
        hook, _ = webhooks.add(tx, accounts.SYSTEM, "https://8.8.8.8/hook", [])
    twins = {
        "/": "/overview",
        "/harnesses": "/harnesses",
        "/harnesses/live-commerce": "/harnesses/live-commerce",
        f"/harnesses/live-commerce/{digest}": f"/harnesses/live-commerce/versions/{digest}/content",
        "/proposals": "/proposals",
        "/releases": "/releases",
        "/ledger": "/ledger",
        "/ledger/verify": "/ledger/verify",
        "/accounts": "/accounts",
        "/settings": "/tokens",
        "/?upto=1": "/overview?upto=1",
        "/ledger?upto=1": "/ledger?upto=1",
        "/models": "/models",
        "/live": "/live",
        "/traces": "/traces",
        "/webhooks": "/webhooks",
        f"/webhooks/{hook['id']}": f"/webhooks/{hook['id']}",
    }
    for path, resource in twins.items():
        twin = client.get(path, headers={"Accept": "application/json"})
        assert twin.status_code == 200, path
        assert twin.json() == client.get("/api/v1" + resource).json(), path


def test_pages_send_the_unsigned_to_the_login(client: httpx.Client) -> None:
    answer = client.get("/harnesses", headers={"Accept": "text/html"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=/harnesses"


def test_a_change_needs_the_token_of_its_own_session(client: httpx.Client) -> None:
    token = signed_in(client, "ada")
    assert client.post("/mute", data={"room": "r1"}).status_code == 403
    assert client.post("/mute", data={"room": "r1", "csrf": "0" * 32}).status_code == 403
    evil = {"Origin": "http://evil.example"}
    assert client.post("/mute", data={"room": "r1", "csrf": token}, headers=evil).status_code == 403
    assert client.put("/api/v1/mutes/r1").status_code == 403
    assert client.put("/api/v1/mutes/r1", headers={"X-CSRF-Token": token}).status_code == 200
    assert client.post("/mute", data={"room": "r2", "csrf": token}).status_code == 303


def test_guessing_passwords_is_slowed_down(client: httpx.Client) -> None:
    codes = [client.post("/login", data={"name": "ada", "password": "x"}).status_code for _ in range(12)]
    assert codes == [401] * 10 + [429] * 2


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example"])
def test_login_never_redirects_elsewhere(client: httpx.Client, target: str) -> None:
    answer = client.post("/login", data={"name": "ada", "password": "ada-has-a-long-password", "next": target})
    assert answer.headers["location"] == "/"


def test_what_people_write_is_never_markup(console: Console, client: httpx.Client) -> None:
    signed_in(client, "ada")
    attack = '"><script>alert(1)</script>'
    with console.registry.database.write() as tx:
        accounts.create(tx, accounts.SYSTEM, "mallory", display=attack)
    with console.registry.database.write() as tx:
        actor = accounts.actor_of(tx, "ada", "default")
        proposals.propose(tx, actor, "harness", "live-commerce", "production", console.digest, reason=attack)
        hook, _ = webhooks.add(tx, accounts.SYSTEM, f"https://8.8.8.8/{attack}", [])
    signed_in(client, "root")
    paths = (
        "/",
        "/proposals",
        "/ledger",
        "/accounts",
        "/webhooks",
        f"/webhooks/{hook['id']}",
        "/login?next=/%22%3E%3Cscript%3E",
    )
    for path in (*paths, f"/harnesses?search={attack}", f"/ledger?subject={attack}", f"/setup?link={attack}"):
        page = client.get(path)
        assert "<script>alert" not in page.text, path
        assert "script-src 'self'" in page.headers["content-security-policy"]


def test_the_discussion_of_a_proposal_is_kept_escaped_and_for_those_who_may_speak(
    console: Console, client: httpx.Client
) -> None:
    attack = "why now? <script>alert(1)</script>\nsee the ledger"
    with console.registry.database.write() as tx:
        actor = accounts.actor_of(tx, "ada", "default")
        opened = proposals.propose(tx, actor, "harness", "live-commerce", "production", console.digest, reason="go")
    page, resource = f"/proposals/{opened.id}", f"/api/v1/proposals/{opened.id}"
    token = signed_in(client, "bo")
    assert client.post(f"{page}/comments", data={"text": attack}).status_code == 403, "a foreign page cannot speak"
    assert client.post(f"{page}/comments", data={"text": attack, "csrf": token}).status_code == 303
    for wrong in ("  ", "x" * 4001):
        assert client.post(f"{page}/comments", data={"text": wrong, "csrf": token}).status_code == 422
    token = signed_in(client, "ada")
    client.post(f"{resource}/decision", json={"verdict": "reject"}, headers={"x-csrf-token": token})
    after = client.post(f"{resource}/comments", json={"text": "the gate"}, headers={"x-csrf-token": token})
    assert after.status_code == 201, "also after the decision"
    token = signed_in(client, "eve")
    assert client.post(f"{page}/comments", data={"text": "hm", "csrf": token}).status_code == 403
    told = client.get(page, headers={"Accept": "application/json"}).json()
    assert told == client.get(resource).json()
    assert [(one["author"], one["text"]) for one in told["comments"]] == [("bo", attack), ("ada", "the gate")]
    shown = client.get(page).text
    assert "<script>alert" not in shown
    assert "&lt;script&gt;alert" in shown
    assert f"{page}/comments" not in shown, "who may not speak sees no form"
    with console.registry.database.read() as tx:
        rows = ledger.rows(tx, "default", kind="comment")
    assert [row.actor for row in rows] == ["bo", "ada"]
    assert rows[0].data["text"] == "sha256:" + hashlib.sha256(attack.encode()).hexdigest()


def test_both_catalogues_have_the_same_keys_and_fields() -> None:
    english, chinese = catalogue("en"), catalogue("zh")
    assert set(english) == set(chinese)
    for key, text in english.items():
        assert set(re.findall(r"{(\w+)}", text)) == set(re.findall(r"{(\w+)}", chinese[key])), key
    assert LANGUAGES == ("en", "zh")


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_no_text_stands_outside_the_catalogue(template: object) -> None:
    source = template.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    bare = re.sub(r"{#.*?#}|{%.*?%}|{{.*?}}|<code>.*?</code>|<!doctype html>", "", source, flags=re.DOTALL)
    attributes = re.findall(r'(?:title|placeholder|aria-label)="([^"{]+)"', source)
    words = [text.strip() for text in re.sub(r"<[^>]*>", "\n", bare).splitlines()]
    left = [text for text in words + attributes if re.search(r"[A-Za-z\u4e00-\u9fff]{2}", text)]
    allowed = {"hatstack", "· hatstack", "2026-01-31T14:05:00Z", "v", "p50", "p95"}
    assert [text for text in left if text not in allowed] == []


def test_pages_are_small(console: Console, client: httpx.Client) -> None:
    signed_in(client, "root")
    for path in ("/", "/harnesses", "/ledger", f"/harnesses/live-commerce/{console.digest}"):
        assert len(client.get(path).content) < 100_000, path
