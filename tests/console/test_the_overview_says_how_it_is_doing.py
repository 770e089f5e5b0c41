"""Latency, goodput and cost on the overview are differences of the gateway's own counters, and none where none are known."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from hat_console import pulse
from hat_console.app import ConsoleSettings
from hat_console.pulse import Counters, Prices, Pulse, quantile
from hat_registry import accounts
from hat_registry.registry import Registry
from tests.console.conftest import Console, serve
from tests.console.test_experiments_say_what_to_do import violations
from tests.serving.conftest import ADMIN, World, world

__all__ = ["world"]
TEXT = """
hatstack_gateway_turns_total{workspace="default",release="r1",arm="stable",harness="h1",outcome="reply"} %d
hatstack_gateway_turns_total{workspace="default",release="r1",arm="stable",harness="h1",outcome="safe"} %d
hatstack_gateway_tokens_total{workspace="default",release="r1",arm="stable",harness="h1",direction="in"} %d
hatstack_gateway_tokens_total{workspace="default",release="r1",arm="stable",harness="h1",direction="out"} %d
hatstack_gateway_turn_seconds_bucket{workspace="default",release="r1",arm="stable",harness="h1",le="1.0"} %d
hatstack_gateway_turn_seconds_bucket{workspace="default",release="r1",arm="stable",harness="h1",le="2.0"} %d
hatstack_gateway_turn_seconds_bucket{workspace="default",release="r1",arm="stable",harness="h1",le="+Inf"} %d
hatstack_gateway_open_turns_count 3
"""


def test_quantiles_lie_within_their_bucket() -> None:
    buckets = {1.0: 50.0, 2.0: 90.0, math.inf: 100.0}
    assert quantile(buckets, 0.5) == 1.0
    assert quantile(buckets, 0.7) == pytest.approx(1.5)
    assert quantile(buckets, 0.95) == 2.0
    assert quantile({1.0: 0.0, math.inf: 0.0}, 0.5) is None
    assert quantile({}, 0.5) is None


def test_numbers_are_of_the_last_minutes_and_a_restart_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [
        TEXT % (100, 0, 10_000, 500, 60, 100, 100),
        TEXT % (190, 10, 20_000, 1_500, 110, 195, 200),
        TEXT % (4, 0, 400, 20, 4, 4, 4),
    ]
    now = [0.0]
    asked: list[str] = []

    def get(url: str, timeout: float) -> httpx.Response:
        asked.append(url)
        return httpx.Response(200, text=pages[len(asked) - 1], request=httpx.Request("GET", url))

    monkeypatch.setattr(pulse.httpx, "get", get)
    watched = Pulse(["http://gateway/metrics"], Prices(1.0, 4.0), clock=lambda: now[0])
    first = watched.told()
    assert first["arms"][0] | {"p95_line": []} == {
        "release": "r1", "arm": "stable", "harness": "h1", "turns": 100, "safe": 0, "p50_s": pytest.approx(0.8333, rel=1e-3),
        "p95_s": pytest.approx(1.875), "goodput_per_s": None, "tokens_per_reply": 105.0, "cost_per_reply": 0.00012,
        "p95_line": [],
    }  # fmt: skip
    watched.told()
    assert len(asked) == 1, "who looks again at once costs the gateway nothing"
    now[0] = 60.0
    told = watched.told()
    (arm,) = told["arms"]
    assert (arm["turns"], arm["safe"], told["window_s"]) == (100, 10, 60)
    assert arm["goodput_per_s"] == pytest.approx(90 / 60)
    assert arm["cost_per_reply"] == pytest.approx((10_000 + 4 * 1_000) / 1e6 / 100)
    now[0] = 120.0
    (arm,) = watched.told()["arms"]
    assert (arm["turns"], arm["p50_s"]) == (4, pytest.approx(0.5))
    assert Counters().since(None) == Counters()


@pytest.fixture
def shown(tmp_path: Path, world: World) -> Iterator[Console]:
    (tmp_path / "admin.token").write_text(ADMIN)
    registry = Registry.open(f"sqlite:///{tmp_path}/registry.db", tmp_path / "blobs")
    with registry.database.write() as tx:
        accounts.create(tx, accounts.SYSTEM, "eve", password="eve-has-a-long-password")
        accounts.give(tx, accounts.SYSTEM, "eve", "viewer")
    settings = ConsoleSettings(
        session_key=b"k" * 32, gateway=world.url, gateway_token=tmp_path / "admin.token", prices=Prices(1.0, 4.0)
    )
    server, thread, url = serve(registry, settings)
    yield Console(url, registry, "")
    server.should_exit = True
    thread.join(20)
    registry.close()


def test_the_overview_shows_the_arms_with_their_numbers(
    shown: Console, world: World, page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "EVERY_S", 0.001)
    shown.sign_in(page, "eve")
    table = page.locator("section[aria-labelledby=pulse] table")
    expect(table).to_contain_text("shop · stable")
    for number in range(5):
        assert world.say("what is the price", f"c{number}").status_code == 200
    page.goto(shown.url + "/")
    expect(table.locator("tbody tr").first).to_contain_text("0.000060")
    row = table.locator("tbody tr").first.inner_text()
    assert re.search(r"shop · stable\s+100 %", row)
    assert re.search(r"\d+ ms\s+\d+ ms", row)
    assert row.split("\t")[4] == "5"
    assert violations(page) == []
    page.screenshot(path=str(tmp_path / "overview.png"), full_page=True)
    page.goto(shown.url + "/live")
    assert violations(page) == []


def test_without_a_source_it_says_so_and_a_gateway_that_is_away_hides_nothing(console: Console, page: Page) -> None:
    console.sign_in(page, "eve")
    page.goto(console.url + "/")
    expect(page.locator("section[aria-labelledby=pulse]")).to_contain_text("No source of numbers is configured")
    assert violations(page) == []
    server, thread, url = serve(console.registry, ConsoleSettings(session_key=b"k" * 32, gateway="http://127.0.0.1:9"))
    with httpx.Client(base_url=url, timeout=20) as client:
        client.post("/login", data={"name": "eve", "password": "eve-has-a-long-password"})
        told = client.get("/api/v1/live").json()
        assert told["deployments"] == []
        assert "does not answer" in told["trouble"]
        assert client.get("/").status_code == 200
    server.should_exit = True
    thread.join(20)
