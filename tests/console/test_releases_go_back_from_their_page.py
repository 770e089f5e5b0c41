"""A release page shows each way back with what it costs or why it is none, and goes it in one click; any two digests compare."""

from __future__ import annotations

from pathlib import Path

import httpx
from playwright.sync_api import Page, expect

from hat_registry import accounts, pointers, releases
from hat_registry.archive import read_folder
from hat_registry.store.tables import release as table
from tests.console.conftest import HARNESSES, Console
from tests.console.test_experiments_say_what_to_do import violations

ONE, TWO, THREE = ("sha256:" + digit * 64 for digit in "123")


def fill(console: Console) -> tuple[list[str], str]:
    """Three releases of `shop`, of which production stood at each in turn; and another harness."""
    files = dict(read_folder(HARNESSES / "live-commerce"))
    files["harness.yaml"] = files["harness.yaml"].replace(b"an AI host", b"a kind AI host")
    newer, _ = console.registry.push(accounts.SYSTEM, files, message="kinder")
    made = []
    with console.registry.database.write() as tx:
        for model, harness in ((ONE, console.digest), (TWO, console.digest), (TWO, newer.digest)):
            new = releases.Release(name="shop", model=model, harness=harness, profile=THREE)
            digest, _ = releases.add(tx, accounts.SYSTEM, new)
            pointers.move(tx, accounts.SYSTEM, "release", "shop", "production", digest, revision=len(made))
            made.append(digest)
    return made, newer.digest


def test_each_way_back_says_what_it_costs_and_is_one_click(console: Console, page: Page, tmp_path: Path) -> None:
    (first, second, third), _ = fill(console)
    console.sign_in(page, "ada")
    page.goto(f"{console.url}/releases/{third}")
    expect(page.locator("#p-production")).to_contain_text("stands here")
    page.locator("summary", has_text="Roll back").click()
    rows = page.locator("section[aria-labelledby=p-production] tbody tr")
    expect(rows).to_have_count(3)
    assert "the pointer stands there now" in rows.nth(0).inner_text()
    assert "Harness" in rows.nth(1).inner_text()
    assert "next message" in rows.nth(1).inner_text()
    assert "Model, Harness" in rows.nth(2).inner_text()
    assert "load the model" in rows.nth(2).inner_text()
    assert violations(page) == []
    page.screenshot(path=str(tmp_path / "release.png"), full_page=True)
    page.select_option("select[name=to]", first)
    page.locator("details[open] input[name=reason]").fill("answers are wrong")
    page.locator("details[open] button", has_text="Roll back").click()
    page.wait_for_url(f"{console.url}/releases/{first}")
    expect(page.locator("#p-production")).to_contain_text("stands here")
    page.click("button[name=language]")
    page.locator("summary").first.click()
    assert violations(page) == []
    with console.registry.database.write() as tx:
        tx.execute(table.delete().where(table.c.digest == second))
    page.click("button[name=language]")
    page.goto(f"{console.url}/releases/{first}")
    page.locator("summary", has_text="Roll back").click()
    expect(rows.nth(2)).to_contain_text("not stored any more")
    with httpx.Client(base_url=console.url, timeout=20) as client:
        client.post("/login", data={"name": "eve", "password": "eve-has-a-long-password"})
        assert '<button class="danger">Roll back' not in client.get(f"/releases/{first}").text
        twin = client.get(f"/releases/{first}", headers={"Accept": "application/json"}).json()
        assert twin == client.get(f"/api/v1/releases/{first}").json()
        refused = client.post("/api/v1/releases/shop/pointers/production/rollback", json={"reason": "x"})
        assert refused.status_code == 403


def test_a_release_is_proposed_from_its_page_and_the_proposal_names_the_parts(console: Console, page: Page) -> None:
    (_, second, _), _ = fill(console)
    console.sign_in(page, "ada")
    page.goto(f"{console.url}/releases/{second}")
    page.locator("summary", has_text="Propose").click()
    page.locator("details[open] input[name=reason]").fill("the older prompt sold more")
    page.locator("details[open] button", has_text="Propose").click()
    page.wait_for_url(f"{console.url}/proposals/*")
    expect(page.locator("table").last).to_contain_text("harness")
    assert page.locator(f".crumbs a[href='/releases/{second}']").count() == 1
    assert violations(page) == []


def test_any_two_digests_are_compared_without_a_name(console: Console, page: Page) -> None:
    (first, _, third), newer = fill(console)
    console.sign_in(page, "ada")
    page.goto(console.url + "/harnesses")
    page.locator("summary", has_text="Compare two digests").click()
    page.fill("input[name=a]", console.digest[7:19])
    page.fill("input[name=b]", newer)
    page.click("details[open] button")
    expect(page.locator("ins", has_text="kind")).to_have_count(1)
    expect(page.locator("main")).to_contain_text("prompt tokens")
    assert violations(page) == []
    with httpx.Client(base_url=console.url, timeout=20) as client:
        client.post("/login", data={"name": "eve", "password": "eve-has-a-long-password"})
        told = {"Accept": "application/json"}
        for path in (f"/diff/{console.digest}/{newer}", f"/diff/{first}/{third}"):
            twin = client.get(path, headers=told).json()
            assert twin == client.get("/api/v1" + path).json()
            assert (twin["a"], twin["b"]) == (console.digest, newer)
        named = f"/harnesses/live-commerce/diff/{console.digest}/{newer}"
        api = f"/api/v1/harnesses/live-commerce/diff?a={console.digest}&b={newer}"
        assert client.get(named, headers=told).json() == client.get(api).json()
        assert client.get(f"/diff/{ONE}/{newer}", headers=told).status_code == 404
        assert client.get(f"/api/v1/diff/abc/{newer}").status_code == 404
