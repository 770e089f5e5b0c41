"""The pages of experiments and of the chat show the gateway's own words; actions go by role and stand in the ledger."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page
from sqlalchemy import insert

from hat_console.app import ConsoleSettings
from hat_registry import accounts
from hat_registry.registry import Registry
from hat_serving.experiment import records
from hat_serving.experiment.assignment import Arm, Split
from hat_serving.experiment.events import event
from hat_serving.gateway.live import Deployment, live_arm
from tests.console.conftest import Console, serve
from tests.serving.conftest import ADMIN, World, shop, world

__all__ = ["world"]
PLAN = {
    "name": "warm-closing",
    "deployment": "shop",
    "description": "Does a warmer closing sell more?",
    "arms": [{"name": "warm", "harness": "candidate"}],
    "margin": 0.01,
    "guardrails": [{"metric": "seconds_per_reply", "margin": 0.5}],
    "price_in": 1.0,
    "price_out": 4.0,
}


@pytest.fixture
def shown(tmp_path: Path, world: World) -> Iterator[Console]:
    """A console over a gateway with one experiment that runs."""
    arm = live_arm("stable", shop("farewell", "candidate"))
    world.source.set(Deployment("candidate", Split("candidate", (Arm("stable", 100),)), {"stable": arm}))
    (tmp_path / "admin.token").write_text(ADMIN)
    registry = Registry.open(f"sqlite:///{tmp_path}/registry.db", tmp_path / "blobs")
    with registry.database.write() as tx:
        for name, role in (("ada", "approver"), ("eve", "viewer")):
            accounts.create(tx, accounts.SYSTEM, name, password=f"{name}-has-a-long-password")
            accounts.give(tx, accounts.SYSTEM, name, role)  # type: ignore[arg-type]  # the tuple loses the literal
    settings = ConsoleSettings(session_key=b"k" * 32, gateway=world.url, gateway_token=tmp_path / "admin.token")
    server, thread, url = serve(registry, settings)
    yield Console(url, registry, "")
    server.should_exit = True
    thread.join(20)
    registry.close()


def fill(world: World, each: int, bought: tuple[float, float], began: float) -> None:
    """`each` units per arm, one turn each, of which a share has bought."""
    assert world.trials is not None
    exposures, turns, events = [], [], []
    for arm, share in zip(("control", "warm"), bought, strict=True):
        for number in range(each):
            unit, at = f"{arm}-{number}", began + number / 100
            exposures.append(
                {"workspace": "default", "subject": "experiment:warm-closing", "unit": unit, "assigned": arm}
                | {"served": arm, "at": at}
            )
            turns.append(
                {"workspace": "default", "conversation": unit, "number": 1, "deployment": "shop", "viewer": unit}
                | {"unit": unit, "served": arm, "release": "", "moved": "", "outcome": "reply", "at": at}
                | {"seconds": 1.0 + number % 5 / 10, "tokens_in": 900, "tokens_out": 40, "tool_calls": 1}
                | {"tool_failures": 0}
            )
            if number % 100 < 100 * share:
                events.append(
                    {"workspace": "default", "key": unit, "type": "order_confirmed", "viewer": unit, "order": unit}
                    | {
                        "conversation": "",
                        "room": "",
                        "item": "",
                        "value": 1990,
                        "at": at,
                        "received": at,
                        "content": "",
                    }
                )
    with world.trials._database.write() as tx:
        tx.execute(insert(records.exposure), exposures)
        tx.execute(insert(records.turn), turns)
        tx.execute(insert(event), events)


@pytest.fixture
def running(world: World, shown: Console) -> Console:
    assert world.admin("POST", "/experiments", PLAN).status_code == 201
    began = world.admin("POST", "/experiments/warm-closing/start").json()["stages"][0]["began"]
    fill(world, 600, (0.2, 0.4), began)
    return shown


def violations(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {[node['html'][:120] for node in one['nodes']]}" for one in found]


def test_the_page_decides_in_words_in_both_languages(running: Console, page: Page, tmp_path: Path) -> None:
    running.sign_in(page, "ada")
    page.goto(running.url + "/experiments")
    link = page.locator("text=warm-closing").get_attribute("href")
    page.goto(f"{running.url}{link}")
    words = page.locator(".decision").inner_text()
    assert "Keep" in words
    assert "+20.00" in words or "20.00 points" in words
    assert page.locator("svg.band").count() == 1
    assert "1,200" not in words
    table = page.locator("table").first.inner_text()
    assert "600" in table
    assert "0.001060" in table
    assert violations(page) == []
    page.screenshot(path=str(tmp_path / "experiment.png"), full_page=True)
    page.click("button[name=language]")
    assert re.search("采用", page.locator(".decision").inner_text())
    assert violations(page) == []


def test_the_json_twin_is_the_api_and_the_gateways_own(running: Console, world: World) -> None:
    with httpx.Client(base_url=running.url, timeout=20) as client:
        client.post("/login", data={"name": "eve", "password": "eve-has-a-long-password"})
        for path in ("/experiments", "/experiments/warm-closing", "/chat"):
            twin = client.get(path, headers={"Accept": "application/json"}).json()
            assert twin == client.get("/api/v1" + path).json(), path
        told = client.get("/api/v1/experiments/warm-closing").json()
        assert told == world.admin("GET", "/experiments/warm-closing").json()
        assert client.get("/experiments/nobody", headers={"Accept": "application/json"}).status_code == 422
        token = re.search(r'name="csrf" value="(\w+)"', client.get("/experiments").text)
        assert token
        refused = client.post("/experiments/warm-closing/stop", data={"csrf": token.group(1)})
        assert refused.status_code == 403
        assert world.admin("GET", "/experiments/warm-closing").json()["state"] == "running"


def test_an_approver_stops_it_and_the_ledger_says_who(running: Console, page: Page, world: World) -> None:
    running.sign_in(page, "ada")
    page.goto(running.url + "/experiments/warm-closing")
    page.fill("input[name=reason]", "enough seen")
    page.click("button.danger >> text=Stop")
    page.wait_for_selector(".state.stopped")
    assert world.admin("GET", "/experiments/warm-closing").json()["reason"] == "enough seen"
    page.goto(running.url + "/ledger")
    assert "experiment:warm-closing" in page.locator("main").inner_text()


def test_a_talk_shows_tools_arm_and_timings_under_each_reply(running: Console, page: Page, tmp_path: Path) -> None:
    running.sign_in(page, "ada")
    page.goto(running.url + "/chat")
    page.fill("input[name=text]", "what is the price")
    page.click("button.primary")
    page.wait_for_selector(".exchange")
    assert "it costs 42" in page.locator(".exchange .answer").inner_text()
    assert re.search(r"reply · Arm \w+ · \d+ ms", page.locator(".exchange .note").first.inner_text())
    page.click(".exchange summary")
    assert "get_item" in page.locator(".exchange table").first.inner_text()
    page.select_option("select[name=arm]", "stable")
    page.fill("input[name=talk]", "2")
    page.fill("input[name=text]", "hi")
    page.click("button.primary")
    page.wait_for_selector(".exchange >> nth=1")
    assert page.locator(".exchange .answer").nth(1).inner_text() == "hello number 1 bye"
    assert violations(page) == []
    page.screenshot(path=str(tmp_path / "chat.png"), full_page=True)


def test_without_a_gateway_the_pages_say_how_to_get_one(console: Console, page: Page) -> None:
    console.sign_in(page, "eve")
    for path in ("/experiments", "/chat"):
        page.goto(console.url + path)
        assert page.locator("main code").count() == 1
