"""A console over a fresh registry, on a real socket, and a real Chromium that looks at it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from hat_console.app import ConsoleSettings, create_app
from hat_pipelines.desk.desk import Desk
from hat_registry import accounts
from hat_registry.archive import read_folder
from hat_registry.registry import Registry

HARNESSES = Path(__file__).resolve().parents[2] / "harness-registry" / "harnesses"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Console:
    """A running console."""

    url: str
    registry: Registry
    digest: str

    def sign_in(self, page: Page, name: str) -> None:
        page.goto(self.url + "/login")
        page.fill("input[name=name]", name)
        page.fill("input[name=password]", f"{name}-has-a-long-password")
        page.click("main button")
        page.wait_for_url(self.url + "/")


def serve(
    registry: Registry, settings: ConsoleSettings, desk: Desk | None = None
) -> tuple[uvicorn.Server, threading.Thread, str]:
    server = uvicorn.Server(
        uvicorn.Config(create_app(registry, settings, desk), host="127.0.0.1", port=0, log_level="warning")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    pause = threading.Event()
    while not server.started and thread.is_alive():
        pause.wait(0.02)
    return server, thread, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    registry = Registry.open(f"sqlite:///{tmp_path}/registry.db", tmp_path / "blobs")
    version, _ = registry.push(accounts.SYSTEM, read_folder(HARNESSES / "live-commerce"), message="the first version")
    with registry.database.write() as tx:
        for name, role in (("ada", "approver"), ("bo", "approver"), ("root", "admin"), ("eve", "viewer")):
            accounts.create(tx, accounts.SYSTEM, name, password=f"{name}-has-a-long-password")
            accounts.give(tx, accounts.SYSTEM, name, role)  # type: ignore[arg-type]  # the tuple loses the literal
    server, thread, url = serve(registry, ConsoleSettings(session_key=b"k" * 32))
    yield Console(url, registry, version.digest)
    server.should_exit = True
    thread.join(20)
    registry.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    # Not for the whole session: while it lives, an event loop runs in this thread and no other test could start one.
    found = os.environ.get("HATSTACK_CHROMIUM") or shutil.which("chromium")
    assert found, "no Chromium: make deps installs it (Debian package chromium), or set HATSTACK_CHROMIUM"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    made = chromium.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB")
    made.set_default_timeout(15_000)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()
