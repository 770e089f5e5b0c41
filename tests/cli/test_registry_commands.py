"""Against a real registry over HTTP: push, propose, approve by another, promote, roll back, verify; refusals have exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn

from hat_registry import accounts
from hat_registry.api.app import create_app
from hat_registry.registry import Registry


@dataclass
class Shop:
    """A registry and the tokens of two people."""

    url: str
    tokens: dict[str, str]
    registry: Registry

    def hat(self, who: str, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HATSTACK_REGISTRY": self.url, "HATSTACK_TOKEN": self.tokens.get(who, "")}
        return subprocess.run(
            [sys.executable, "-m", "hatstack.cli.main", *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def answer(self, who: str, *words: str) -> dict[str, object]:
        done = self.hat(who, *words, "--output", "json")
        assert done.returncode == 0, done.stderr
        found: dict[str, object] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("registry")
    registry = Registry.open(f"sqlite:///{folder}/registry.db", folder / "blobs")
    tokens = {}
    for name in ("ada", "bo", "eve"):
        with registry.database.write() as tx:
            accounts.create(tx, accounts.SYSTEM, name)
            accounts.give(tx, accounts.SYSTEM, name, "viewer" if name == "eve" else "approver")
            actor = accounts.actor_of(tx, name, "default")
            scopes = sorted(accounts.PERMISSIONS["viewer" if name == "eve" else "approver"])
            tokens[name] = accounts.issue_token(tx, actor, label="test", scopes=scopes)[1]
    server = uvicorn.Server(uvicorn.Config(create_app(registry), host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    pause = threading.Event()
    while not server.started and thread.is_alive():
        pause.wait(0.02)
    yield Shop(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", tokens, registry)
    server.should_exit = True
    thread.join(20)
    registry.close()


def test_from_push_to_rollback(shop: Shop, tmp_path: Path) -> None:
    first = shop.answer("ada", "harness", "push", "react-baseline", "-m", "first")
    assert first["changed"] is True
    assert shop.answer("ada", "harness", "push", "react-baseline", "-m", "again")["changed"] is False
    digest = str(first["digest"])
    made = shop.answer("ada", "harness", "propose", "react-baseline", digest, "--reason", "go live")
    identity = str(made["id"])
    own = shop.hat("ada", "harness", "approve", identity)
    assert (own.returncode, "author cannot approve" in own.stderr) == (4, True)
    early = shop.hat("ada", "harness", "promote", identity)
    assert (early.returncode, "0 of 1 approvals" in early.stderr) == (4, True)
    assert shop.answer("bo", "harness", "approve", identity)["state"] == "approved"
    assert shop.answer("ada", "harness", "promote", identity, "--dry-run")["changed"] is False
    assert shop.answer("ada", "harness", "promote", identity)["digest"] == digest
    alone = shop.hat("bo", "harness", "rollback", "react-baseline", "--reason", "bad")
    assert (alone.returncode, "no earlier position" in alone.stderr) == (4, True)
    pulled = shop.answer("eve", "harness", "pull", "react-baseline", str(tmp_path / "got"))
    assert pulled["digest"] == digest
    assert (tmp_path / "got" / "harness.yaml").is_file()
    taken = shop.hat("eve", "harness", "pull", "react-baseline", str(tmp_path / "got"))
    assert taken.returncode == 4
    assert "production" in shop.hat("eve", "harness", "log", "react-baseline").stdout
    export = tmp_path / "ledger.jsonl"
    rows = shop.answer("eve", "ledger", "export", str(export))["rows"]
    assert shop.answer("eve", "ledger", "verify", str(export))["rows"] == rows
    export.write_text(export.read_text().replace("go live", "go away"))
    broken = shop.hat("eve", "ledger", "verify", str(export))
    assert (broken.returncode, "was changed" in broken.stderr) == (1, True)


def test_a_viewer_and_a_stranger_are_refused_and_an_absent_registry_is_unavailable(shop: Shop) -> None:
    viewer = shop.hat("eve", "harness", "push", "react-baseline", "-m", "x")
    assert (viewer.returncode, "needs one of" in viewer.stderr) == (4, True)
    stranger = shop.hat("nobody", "harness", "list")
    assert (stranger.returncode, "not signed in" in stranger.stderr) == (4, True)
    away = Shop("http://127.0.0.1:9", shop.tokens, shop.registry).hat("ada", "ledger", "show")
    assert (away.returncode, "does not answer" in away.stderr) == (5, True)
    assert "Traceback" not in viewer.stderr + stranger.stderr + away.stderr
