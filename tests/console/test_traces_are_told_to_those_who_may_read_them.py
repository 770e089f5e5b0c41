"""A trace is found by its id from chat to erasure, told turn by turn, and hidden from whoever may not read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from hat_components.evaluate.result import TraceRecord
from hat_console.app import ConsoleSettings
from hat_harness.trace import Trace
from hat_registry import accounts
from hat_registry.accounts import Actor
from hat_registry.registry import Registry
from hat_serving.gateway.app import pseudonym
from hat_serving.gateway.conversations import Conversations
from hat_serving.gateway.erase import erase_viewer
from tests.console.conftest import Console, serve
from tests.console.test_experiments_say_what_to_do import violations
from tests.console.test_reviewers_label_and_compare import evaluation
from tests.serving.conftest import ADMIN, KEY, World, world

__all__ = ["world"]
ATTACK = "price of <script>alert(1)</script>"
TOLD = {"Accept": "application/json"}


@pytest.fixture
def shown(tmp_path: Path, world: World) -> Iterator[Console]:
    """A console over a gateway and a runs directory; Stan is an admin elsewhere, Nell a reviewer of another harness."""
    (tmp_path / "admin.token").write_text(ADMIN)
    registry = Registry.open(f"sqlite:///{tmp_path}/registry.db", tmp_path / "blobs")
    with registry.database.write() as tx:
        for name, role in (("ada", "editor"), ("eve", "viewer"), ("nell", "reviewer"), ("stan", "admin")):
            accounts.create(tx, accounts.SYSTEM, name, password=f"{name}-has-a-long-password")
            where = Actor("system", "elsewhere" if name == "stan" else "default", accounts.SYSTEM.grants)
            accounts.give(tx, where, name, role, "other" if name == "nell" else "*")  # type: ignore[arg-type]  # the tuple loses the literal
    settings = ConsoleSettings(
        session_key=b"k" * 32, gateway=world.url, gateway_token=tmp_path / "admin.token", runs=tmp_path / "runs"
    )
    server, thread, url = serve(registry, settings)
    yield Console(url, registry, "")
    server.should_exit = True
    thread.join(20)
    registry.close()


@contextmanager
def bring(console: Console, name: str, workspace: str = "default") -> Iterator[httpx.Client]:
    with httpx.Client(base_url=console.url, timeout=20) as client:
        said = {"name": name, "password": f"{name}-has-a-long-password", "workspace": workspace}
        assert client.post("/login", data=said).status_code == 303
        yield client


def test_from_the_chat_to_the_trace(shown: Console, page: Page, tmp_path: Path) -> None:
    shown.sign_in(page, "ada")
    page.goto(shown.url + "/traces")
    expect(page.locator("main")).to_contain_text("There is none yet")
    page.goto(shown.url + "/chat")
    page.fill("input[name=text]", "what is the price")
    page.click("button.primary")
    page.click(".exchange >> text=Trace")
    expect(page.locator("article.turn")).to_have_count(1)
    words = page.locator("main").inner_text()
    assert "what is the price" in words
    assert "get_item(item='mug')" in words
    assert "it costs 42 bye" in words
    assert re.search(r"Arm\s+stable", words)
    bars = page.locator("svg.waterfall rect")
    expect(bars).to_have_count(4)  # the turn, two model calls, one tool call
    page.locator("article.turn > details > summary").click()
    assert "gate" in page.locator("article.turn table").nth(1).inner_text()
    assert violations(page) == []
    page.screenshot(path=str(tmp_path / "trace.png"), full_page=True)
    page.goto(shown.url + "/traces")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert violations(page) == []
    page.click("button[name=language]")
    page.click("tbody a")
    expect(page.locator("html")).to_have_attribute("lang", "zh")
    assert violations(page) == []


def test_the_twin_is_the_api_and_words_are_never_markup(shown: Console, world: World) -> None:
    for text in ["hi", ATTACK] + ["hi"] * 11:
        assert world.say(text, "c1").status_code == 200
    ident = pseudonym(KEY, "c1")
    with bring(shown, "ada") as client:
        for path in ("/traces", f"/traces/{ident}", f"/traces/{ident}?upto=3"):
            twin = client.get(path, headers=TOLD).json()
            assert twin == client.get("/api/v1" + path).json(), path
        newest = client.get(f"/api/v1/traces/{ident}").json()
        assert [turn["index"] for turn in newest["turns"]] == list(range(4, 14))
        assert (newest["count"], newest["earlier"], newest["arm"], newest["source"]) == (13, 3, "stable", "store")
        page = client.get(f"/traces/{ident}?upto=3").text
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert" in page
        assert len(client.get(f"/traces/{ident}").content) < 100_000
        whole = Trace.model_validate(client.get(f"/api/v1/traces/{ident}?whole=true").json())
        assert len([entry for entry in whole.entries if entry.type == "ViewerMessage"]) == 13
        assert "close with bye" in [line["text"] for line in newest["prompt"]]


def test_who_may_not_read_it_learns_nothing(shown: Console, world: World) -> None:
    world.say("hi", "c1")
    ident = pseudonym(KEY, "c1")
    for name, workspace, codes in (
        ("eve", "default", (403, 403)),
        ("nell", "default", (403, 404)),
        ("stan", "elsewhere", (200, 404)),
    ):
        with bring(shown, name, workspace) as client:
            for base in ("", "/api/v1"):
                answers = [client.get(f"{base}/traces{more}", headers=TOLD) for more in ("", f"/{ident}")]
                assert tuple(answer.status_code for answer in answers) == codes, (name, base)
                assert all(ident not in answer.text or answer.status_code == 404 for answer in answers)
            if name == "stan":
                assert client.get("/api/v1/traces").json()["connected"] is False
                assert client.get("/api/v1/experiments").json() == {"items": [], "connected": False}
                assert client.get("/api/v1/chat").json() == {"deployments": [], "connected": False}
                said = client.post("/api/v1/chat", json={"name": "shop", "text": "hi"})
                assert said.status_code in (403, 404)


def test_what_retention_or_an_erasure_took_is_gone(shown: Console, world: World, tmp_path: Path) -> None:
    for viewer in ("anna", "bert"):
        assert world.say("hi", f"talk of {viewer}", user=viewer).status_code == 200
    assert world.host is not None
    assert world.host.traces is not None
    world.host.traces.close()
    anna, bert = (pseudonym(KEY, f"talk of {viewer}") for viewer in ("anna", "bert"))
    with bring(shown, "ada") as client:
        assert {one["id"] for one in client.get("/api/v1/traces").json()["items"]} == {anna, bert}
        erase_viewer(tmp_path, "anna", KEY)
        assert client.get(f"/api/v1/traces/{anna}").status_code == 404
        from hat_registry.store.database import Database

        store = Database(f"sqlite:///{tmp_path}/gateway.db")
        assert Conversations(store).expire("9999") == 1
        store.close()
        assert client.get("/api/v1/traces").json()["items"] == []
        kept = client.get(f"/api/v1/traces/{bert}").json()
        assert (kept["source"], kept["turns"][0]["reply"]) == ("files", "hello number 1 bye")
        for path in (tmp_path / "traces").glob("*.jsonl"):
            path.unlink()
        gone = client.get(f"/traces/{bert}", headers={"Accept": "text/html"})
        assert gone.status_code == 404
        assert "is past its day" in gone.text


def test_a_session_of_a_run_is_found_from_its_evaluation(shown: Console, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "run-a" / "steps" / "evaluate" / "artifacts"
    folder.mkdir(parents=True)
    (folder / "evaluation.json").write_text(json.dumps(evaluation("naive", [0.0, 1.0])))
    lines = [
        TraceRecord(
            suite="t1", item=f"item-{k}", state=state, harness="sha256:" + "1" * 64,
            trace=Trace(session=f"{k}-{state}", harness="sha256:" + "1" * 64, harness_name="shop"),
        ).model_dump_json()
        for k in range(2) for state in range(2)
    ]  # fmt: skip
    (folder / "traces.jsonl").write_text("\n".join([*lines, '{"suite":"t1","item":"cut']))
    with bring(shown, "ada") as client:
        listed = client.get("/api/v1/evaluations").json()["items"]
        page = client.get(f"/evaluations/{listed[0]['digest']}").text
        (link,) = re.findall(r'href="(/traces/[^"]+)"', page)
        link = link.replace("&amp;", "&")
        twin = client.get(link, headers=TOLD).json()
        assert (twin["session"], twin["run"], twin["item"], twin["state"]) == ("0-0", "run-a", "item-0", 0)
        assert client.get(f"/api/v1{link}&state=1").json()["session"] == "0-1"
        assert client.get(f"/api/v1{link}&state=2").status_code == 404
        told = client.get("/api/v1/traces?run=run-a&step=evaluate").json()
        assert [one["item"] for one in told["items"]] == ["item-0", "item-0", "item-1", "item-1"]
        assert client.get("/api/v1/traces?run=..%2F..&step=x").status_code == 404
    with bring(shown, "stan", "elsewhere") as client:
        assert client.get(f"/api/v1{link}").status_code == 404
        assert client.get("/api/v1/evaluations").json() == {"items": []}
