"""Canary rollouts on the console: what stands in the resource, in both languages, and buttons by role, in the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from hat_console.app import ConsoleSettings
from hat_registry import accounts, ledger
from hat_registry.registry import Registry
from hat_serving.canary import control
from hat_serving.canary.conditions import conditions
from hat_serving.canary.folder import Folder
from hat_serving.canary.kube import Manifest
from hat_serving.canary.spec import API_VERSION, KIND, read_spec
from hat_serving.canary.state import State, Tally, Window, to_status
from tests.console.conftest import Console, serve

NOW = 1_790_000_000.0
RELEASE = "sha256:" + "3f9c" * 16


def spec(**changes: Any) -> dict[str, Any]:
    rate = {"query": "q", "success": {"atMost": 2.0}}
    share = {"events": "e", "total": "t", "margin": 0.02}
    return {
        "release": RELEASE,
        "baseline": "sha256:" + "77aa" * 16,
        "target": {"backend": "gateway", "url": "http://127.0.0.1:1", "deployment": "live", "harness": "live@next"},
        "steps": [
            {"setWeight": 5},
            {"pause": {"duration": "600s"}},
            {"setWeight": 25},
            {"analysis": {}},
            {"setWeight": 50},
            {"pause": {}},
        ],
        "metrics": [{"name": "first-token", "threshold": rate}, {"name": "turns", "share": share}],
        "prometheus": {"url": "http://127.0.0.1:1"},
        **changes,
    }


def seed(folder: Folder, name: str, state: State, **changes: Any) -> None:
    made = folder.create(control.render(name, "live", read_spec(spec(**changes))))
    status = to_status(state) | {"conditions": conditions(state, (), made["metadata"]["generation"], NOW)}
    folder.patch(API_VERSION, KIND, name, "live", {"status": status}, status=True)


def running() -> State:
    tallies = (
        Tally(name="first-token", successes=3, outcome="success", value=1.31, message="1.31"),
        Tally(name="turns", value=0.004, message="not decided yet: difference +0.0040, interval -0.0110 to +0.0260"),
    )
    window = Window(step=1, weight=5, started=NOW, ended=NOW + 612, metrics={"first-token": 1.29})
    return State(
        phase="Progressing", step=3, desired_weight=25, effective_weight=25, clock_started=NOW + 640,
        analysis=tallies, windows=(window,), message="analysis", started_at=NOW,
    )  # fmt: skip


def event(reason: str, note: str) -> Manifest:
    return {
        "kind": "Event", "metadata": {"generateName": "chat-", "namespace": "live"}, "eventTime": "2026-09-21T14:05:00Z",
        "reason": reason, "note": note, "type": "Normal", "regarding": {"kind": KIND, "name": "chat-v8"},
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "rollouts")
    seed(made, "chat-v8", running())
    seed(made, "chat-v7", State(phase="Degraded", step=1, reason="AnalysisFailed", message="errors: worse",
                                started_at=NOW, finished_at=NOW + 90))  # fmt: skip
    seed(made, "other", State(), workspace="elsewhere")
    made.create(event("WaitingForSplit", "Progressing, step 3 of 6 (setWeight 25): <script>alert(1)</script>"))
    return made


@pytest.fixture
def console(tmp_path: Path, folder: Folder) -> Iterator[Console]:
    registry = Registry.open(f"sqlite:///{tmp_path}/registry.db", tmp_path / "blobs")
    with registry.database.write() as tx:
        for name, role in (("ada", "approver"), ("root", "admin"), ("eve", "viewer")):
            accounts.create(tx, accounts.SYSTEM, name, password=f"{name}-has-a-long-password")
            accounts.give(tx, accounts.SYSTEM, name, role)  # type: ignore[arg-type]  # the tuple loses the literal
    settings = ConsoleSettings(session_key=b"k" * 32, rollouts=str(tmp_path / "rollouts"))
    server, thread, url = serve(registry, settings)
    yield Console(url, registry, "")
    server.should_exit = True
    thread.join(20)
    registry.close()


def test_the_page_shows_what_the_controller_wrote_down(console: Console, page: Page) -> None:
    console.sign_in(page, "eve")
    page.click("nav a:has-text('Canaries')")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(page.locator("main")).not_to_contain_text("other")
    page.click("a:has-text('live/chat-v8')")
    expect(page.locator("h1 .state")).to_have_text("progressing")
    expect(page.locator(".timeline .now")).to_contain_text("analysis")
    expect(page.locator("svg.steps rect")).to_have_count(7)
    words = page.locator("main").inner_text()
    for said in ("25 %", "≤ 2", "± 0.02", "1.31", "interval -0.0110 to +0.0260", "612.0", "SplitInForce", "gateway"):
        assert said in words, said
    assert page.locator("button", has_text="Abort").count() == 0
    assert "approver or admin" in words


def test_the_page_follows_the_rollout_by_itself(console: Console, folder: Folder, page: Page) -> None:
    console.sign_in(page, "eve")
    page.goto(f"{console.url}/canaries/live/chat-v8")
    expect(page.locator(".timeline .now")).to_contain_text("analysis")
    later = running().model_copy(update={"step": 4, "desired_weight": 50, "effective_weight": 25})
    folder.patch(API_VERSION, KIND, "chat-v8", "live", {"status": to_status(later)}, status=True)
    expect(page.locator(".timeline .now")).to_contain_text("setWeight 50")
    expect(page.locator("dl")).to_contain_text("not in force yet")


def test_a_click_is_a_wish_in_the_resource_and_a_row_of_the_ledger(
    console: Console, folder: Folder, page: Page
) -> None:
    console.sign_in(page, "ada")
    page.goto(f"{console.url}/canaries/live/chat-v8")
    page.click("button:has-text('Pause')")
    page.click("button:has-text('Pause')")
    page.click("button:has-text('Resume')")
    page.click("button:has-text('Promote without waiting')")
    page.click("summary:has-text('Abort')")
    expect(page.locator(".actions")).to_contain_text("cannot be taken back")
    page.click("button:has-text('Abort')")
    found = folder.get(API_VERSION, KIND, "chat-v8", "live")
    assert found is not None
    wishes = {key: found["spec"].get(key) for key in ("paused", "promote", "abort")}
    assert wishes == {"paused": False, "promote": True, "abort": True}
    with console.registry.database.read() as tx:
        rows = ledger.rows(tx, "default", kind="canary", subject="canary:live/chat-v8")
    assert [(row.actor, row.data["asked"]) for row in rows] == [
        ("ada", "pause"), ("ada", "resume"), ("ada", "promote"), ("ada", "abort"),
    ]  # fmt: skip


def test_what_has_ended_offers_nothing(console: Console, page: Page) -> None:
    console.sign_in(page, "ada")
    page.goto(f"{console.url}/canaries/live/chat-v7")
    expect(page.locator("h1 .state")).to_have_text("taken back")
    assert page.locator(".actions").count() == 0


@pytest.mark.parametrize("language", ["en", "zh"])
def test_canary_pages_are_accessible_in_both_languages(console: Console, page: Page, language: str) -> None:
    console.sign_in(page, "root")
    if language == "zh":
        page.click("button:has-text('中文')")
    for path in ("/canaries", "/canaries/live/chat-v8", "/canaries/live/chat-v7"):
        errors: list[str] = []
        page.on("pageerror", lambda error, errors=errors: errors.append(str(error)))  # type: ignore[misc]
        answer = page.goto(console.url + path)
        assert answer is not None
        assert answer.status == 200
        assert len(answer.body()) < 100_000
        violations = Axe().run(page).response["violations"]
        assert [(path, one["id"], one["nodes"][0]["html"][:120]) for one in violations] == []
        assert errors == []


def test_pages_equal_their_json_and_roles_are_kept(console: Console) -> None:
    with httpx.Client(base_url=console.url, timeout=20) as client:
        client.post("/login", data={"name": "eve", "password": "eve-has-a-long-password"})
        for path in ("/canaries", "/canaries/live/chat-v8"):
            twin = client.get(path, headers={"Accept": "application/json"})
            assert twin.json() == client.get("/api/v1" + path).json(), path
        page = client.get("/canaries/live/chat-v8").text
        assert "<script>alert" not in page
        token = page.split('name="csrf" value="')[1][:32]
        headers = {"X-CSRF-Token": token}
        assert client.post("/api/v1/canaries/live/chat-v8/abort", headers=headers).status_code == 403
        assert client.get("/api/v1/canaries/live/other").status_code == 404
        assert client.get("/api/v1/canaries/..%2f..%2fetc/passwd").status_code in (404, 422)
        client.post("/login", data={"name": "ada", "password": "ada-has-a-long-password"})
        token = client.get("/canaries/live/chat-v8").text.split('name="csrf" value="')[1][:32]
        headers = {"X-CSRF-Token": token}
        assert client.post("/api/v1/canaries/live/chat-v8/pause").status_code == 403
        assert client.post("/api/v1/canaries/live/chat-v8/explode", headers=headers).status_code == 404
        assert client.post("/api/v1/canaries/live/chat-v7/abort", headers=headers).status_code == 409
        first = client.post("/api/v1/canaries/live/chat-v8/pause", headers=headers)
        again = client.post("/api/v1/canaries/live/chat-v8/pause", headers=headers)
        assert (first.json()["changed"], again.json()["changed"]) == (True, False)
