"""In a real Chromium: edit → propose → gates → approve by another → promote → roll back; mute; pages without faults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Page, expect

from hat_registry import accounts, clock, evidence, gates, harnesses, invitations, ledger, pointers, webhooks
from tests.console.conftest import Console

PAGES = (
    "/", "/harnesses", "/harnesses/live-commerce", "/proposals", "/releases", "/ledger", "/ledger?upto=1", "/accounts",
    "/settings", "/webhooks", "/models", "/login",
)  # fmt: skip


def edit_gate(console: Console, page: Page, text: str) -> None:
    page.goto(f"{console.url}/harnesses/live-commerce/edit?base={console.digest}")
    area = page.locator("textarea[name='file:harness.yaml']")
    page.locator("summary", has_text="harness.yaml").click() if not area.is_visible() else None
    area.fill(area.input_value().replace("an AI host answers viewers of a room that sells products", text))
    page.fill("input[name=message]", text)
    page.click("text=Save as version")
    page.wait_for_url(f"{console.url}/harnesses/live-commerce/sha256:*")


def promote_the_open_page(console: Console, page: Page, other: Page, reason: str) -> None:
    page.locator("summary", has_text="Propose").click()
    page.fill("details[open] input[name=reason]", reason)
    page.locator("details[open] button", has_text="Propose").click()
    page.wait_for_url(f"{console.url}/proposals/*")
    assert page.locator("button", has_text="Approve").count() == 0, "an author must not be offered to approve"
    other.goto(page.url)
    other.click("button:has-text('Approve')")
    expect(other.locator("h1 .state")).to_have_text("approved")
    page.reload()
    page.click("button:has-text('Promote to production')")
    expect(page.locator("h1 .state")).to_have_text("moved")


def protect(console: Console) -> None:
    """Production needs an approval and two gates from now on."""
    made = [
        gates.Gate(id="t2", title="T2 accuracy", observed="suites.T2.accuracy", threshold=0.9),
        gates.Gate(
            id="tokens", title="Tokens per reply", observed="cost.tokens_per_reply", operator="<=", threshold=400
        ),
    ]
    with console.registry.database.write() as tx:
        pointers.set_policy(tx, accounts.actor_of(tx, "root", "default"), "harness", "production", 1, made)


def see(console: Console, accuracy: float, tokens: float) -> None:
    """Evidence about the newest version."""
    with console.registry.database.write() as tx:
        newest = harnesses.log(tx, "default", "live-commerce", limit=1)[0].digest
        for kind, content in (
            ("evaluation", {"suites": {"T2": {"accuracy": accuracy}}}),
            ("cost", {"tokens_per_reply": tokens}),
        ):
            evidence.add(tx, accounts.SYSTEM, evidence.Evidence(subject=newest, type=kind, content=content))  # type: ignore[arg-type]  # the tuple loses the literal


def test_the_whole_way(console: Console, context: BrowserContext, chromium: object, tmp_path: Path) -> None:
    page = context.new_page()
    console.sign_in(page, "ada")
    second = context.browser.new_context() if context.browser else None
    assert second is not None
    second.set_default_timeout(15_000)
    other = second.new_page()
    console.sign_in(other, "bo")
    page.goto(f"{console.url}/harnesses/live-commerce/{console.digest}")
    promote_the_open_page(console, page, other, "the first release")
    protect(console)
    edit_gate(console, page, "an AI host that is kinder than before")
    page.click("text=Compare with its parent")
    expect(page.locator("ins", has_text="kinder")).to_have_count(1)
    page.click("main a:has-text('Propose')")
    page.fill("details[open] input[name=reason]", "kinder")
    page.locator("details[open] button", has_text="Propose").click()
    page.wait_for_url(f"{console.url}/proposals/*")
    expect(page.locator("td .outcome")).to_have_text(["no evidence", "no evidence"])
    other.goto(page.url)
    other.click("button:has-text('Approve')")
    page.reload()
    proposal = page.url
    page.click("button:has-text('Promote to production')")
    expect(page.locator("main")).to_contain_text("T2 accuracy")
    page.goto(proposal)
    expect(page.locator("h1 .state")).to_have_text("approved")
    see(console, 0.71, 310.0)
    page.click("button:has-text('Run gates')")
    rows = page.locator("table", has_text="Observed").locator("tbody tr")
    expect(rows.nth(0)).to_contain_text("0.71")
    expect(page.locator("td .outcome")).to_have_text(["failed", "passed"])
    see(console, 0.93, 310.0)
    page.click("button:has-text('Run gates')")
    expect(rows.nth(0).locator("td")).to_have_text(["T2 accuracy", "0.93", ">= 0.9", re.compile("passed")])
    page.screenshot(path=str(tmp_path / "gates.png"), full_page=True)
    page.click("button:has-text('Promote to production')")
    expect(page.locator("h1 .state")).to_have_text("moved")
    page.goto(f"{console.url}/harnesses/live-commerce")
    page.locator("summary", has_text="Roll back").click()
    page.screenshot(path=str(tmp_path / "way-back.png"), full_page=True)
    page.fill("details[open] input[name=reason]", "prices are wrong")
    page.locator("details[open] button", has_text="Roll back").click()
    expect(page.locator(".cards").first).to_contain_text(console.digest[7:19])
    expect(page.locator("tbody a.kind")).to_have_text("T2 0.93")
    page.click("button:has-text('Compare')")
    expect(page.locator("ins", has_text="kinder")).to_have_count(1)
    page.goto(f"{console.url}/harnesses/live-commerce/{console.digest}")
    ran = page.locator("table", has_text="Until").locator("tbody tr")
    expect(ran).to_have_count(2)
    expect(ran.first).to_contain_text("now")
    page.goto(console.url + "/ledger")
    expect(page.locator("#stood > table tbody tr").first).to_contain_text("rolled back")
    assert page.locator("#stood > table .kind", has_text="ran gates").count() == 2
    page.click("text=Verify the chain")
    expect(page.locator("#verified")).to_contain_text("chain intact")
    second.close()


def test_the_editor_checks_while_one_types(console: Console, page: Page) -> None:
    console.sign_in(page, "ada")
    page.goto(f"{console.url}/harnesses/live-commerce/edit?base={console.digest}")
    area = page.locator("textarea[name='file:harness.yaml']")
    if not area.is_visible():
        page.locator("summary", has_text="harness.yaml").click()
    good = area.input_value()
    area.fill(good + "\nsectoins: [skills]\n")
    expect(page.locator("#checked .problems")).to_contain_text("sectoins")
    area.fill(good)
    expect(page.locator("#checked .problems")).to_have_count(0)
    expect(page.locator("#checked pre.prompt")).to_contain_text("use_skill")


def test_the_slider_shows_what_stood_then(console: Console, page: Page) -> None:
    with console.registry.database.write() as tx:
        before = ledger.rows(tx, "default", limit=1, newest_first=True)[0].seq
        pointers.move_free(tx, accounts.SYSTEM, "harness", "live-commerce", "staging", console.digest)
    console.sign_in(page, "eve")
    for path in ("/", "/ledger"):
        page.goto(console.url + path)
        expect(page.locator("#stood")).to_contain_text("staging")
        page.locator("input[type=range]").evaluate(
            "(slider, row) => { slider.value = row; slider.dispatchEvent(new Event('input', {bubbles: true})); }",
            before,
        )
        expect(page.locator("#as-of-now")).to_contain_text(f"After row {before}")
        expect(page.locator("#stood .pointer")).to_have_count(0)
        assert f"upto={before}" in page.url, "what is shown can be shared"


def test_mute_is_one_click_and_undone_the_same_way(console: Console, page: Page) -> None:
    console.sign_in(page, "ada")
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(console.url + "/")
    page.click("button:has-text('Mute all')")
    expect(page.locator("[role=alert]")).to_contain_text("all rooms")
    page.click("button:has-text('Unmute')")
    expect(page.locator("[role=alert]")).to_have_count(0)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_pages_are_accessible_in_both_languages(console: Console, page: Page, language: str) -> None:
    console.sign_in(page, "root")
    if language == "zh":
        page.click("button:has-text('中文')")
    with console.registry.database.write() as tx:
        hook, _ = webhooks.add(tx, accounts.SYSTEM, "https://8.8.8.8/hook", [])
        pointers.move_free(tx, accounts.SYSTEM, "harness", "live-commerce", "staging", console.digest)
        webhooks.enqueue(tx, clock.now())
        link = invitations.invite(tx, accounts.actor_of(tx, "root", "default"), "viewer")
    paths = [
        *PAGES,
        f"/webhooks/{hook['id']}",
        f"/setup?link={link}",
        f"/harnesses/live-commerce/{console.digest}",
        f"/harnesses/live-commerce/edit?base={console.digest}",
    ]
    for path in paths:
        errors: list[str] = []
        page.on("pageerror", lambda error, errors=errors: errors.append(str(error)))  # type: ignore[misc]
        answer = page.goto(console.url + path)
        assert answer is not None
        assert answer.status == 200, path
        violations = Axe().run(page).response["violations"]
        assert [(path, one["id"], one["nodes"][0]["html"][:120]) for one in violations] == []
        assert errors == []


def test_a_viewer_is_shown_no_button_that_would_be_refused(console: Console, page: Page) -> None:
    console.sign_in(page, "eve")
    page.goto(f"{console.url}/harnesses/live-commerce/{console.digest}")
    words = page.locator("main").inner_text()
    assert "Edit as new version" not in words
    assert "Propose" not in words
    page.goto(console.url + "/accounts")
    expect(page.locator("main")).to_contain_text("needs one of: admin")
