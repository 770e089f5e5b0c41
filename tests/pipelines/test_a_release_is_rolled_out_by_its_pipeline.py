"""The canary step asks the console for one rollout, waits no longer than it may, and tells how it ended."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hat_components.canary import step
from hat_components.canary.config import Config
from hat_components.registry_http import RegistryError
from hat_components.step import InputError, NullProgress
from hat_console.app import ConsoleSettings
from hat_registry import accounts, ledger
from hat_registry.registry import Registry
from hat_serving.canary.folder import Folder
from hat_serving.canary.spec import API_VERSION, KIND
from hat_serving.canary.state import State, to_status
from tests.console.conftest import serve

DIGEST = "sha256:" + "3f9c" * 16
NAME = f"live-commerce-{('3f9c' * 3)}"
SPEC = {
    "target": {"backend": "gateway", "url": "http://127.0.0.1:1", "deployment": "live", "harness": "live@<harness>"},
    "steps": [{"setWeight": 10}, {"pause": {}}],
}


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Folder, Registry]]:
    """A console over a folder of rollouts, and a token of an account that may start them."""
    registry = Registry.open(f"sqlite:///{tmp_path}/registry.db", tmp_path / "blobs")
    with registry.database.write() as tx:
        scopes: dict[str, tuple[accounts.Permission, ...]] = {"robot": ("read", "move", "rollback"), "guest": ("read",)}
        for name, role in (("robot", "approver"), ("guest", "editor")):
            accounts.create(tx, accounts.SYSTEM, name, password=f"{name}-has-a-long-password")
            accounts.give(tx, accounts.SYSTEM, name, role)  # type: ignore[arg-type]  # the tuple loses the literal
            actor = accounts.actor_of(tx, name, "default")
            _, token = accounts.issue_token(tx, actor, label="step", scopes=scopes[name], days=1)
            monkeypatch.setenv(f"TOKEN_{name.upper()}", token)
    server, thread, url = serve(registry, ConsoleSettings(session_key=b"k" * 32, rollouts=str(tmp_path / "rollouts")))
    yield url, Folder(tmp_path / "rollouts"), registry
    server.should_exit = True
    thread.join(20)
    registry.close()


def proposal(tmp_path: Path, **more: Any) -> dict[str, Path]:
    path = tmp_path / "proposal.json"
    release = {"name": "live-commerce", "model": "sha256:" + "aa" * 32, "harness": "sha256:" + "bb" * 32}
    path.write_text(json.dumps({"release": release, "digest": DIGEST, "proposal": "p1", "sent": True, **more}))
    return {"proposal": path}


def config(url: str, **changes: Any) -> Config:
    base = {"registry": url, "token_variable": "TOKEN_ROBOT", "namespace": "live", "spec": SPEC, "interval_s": 0.02}
    return Config.model_validate({**base, **changes})


def played(folder: Folder, *states: State) -> Callable[[], None]:
    """Writes what a controller would, once the rollout is there."""

    def play() -> None:
        pause = threading.Event()
        while folder.get(API_VERSION, KIND, NAME, "live") is None:
            pause.wait(0.01)
        for state in states:
            folder.patch(API_VERSION, KIND, NAME, "live", {"status": to_status(state)}, status=True)
            pause.wait(0.1)

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    return thread.join


MIDWAY = State(phase="Progressing", desired_weight=10, effective_weight=10)


def test_a_promoted_release_is_told_and_started_once(tmp_path: Path, console: tuple[str, Folder, Registry]) -> None:
    url, folder, registry = console
    ended = played(folder, MIDWAY, State(phase="Healthy", step=2, effective_weight=100, reason="Promoted"))
    for _ in range(2):
        result = step.run(config(url), proposal(tmp_path), tmp_path, NullProgress())
        assert result.metrics == {"started": 1.0, "promoted": 1.0, "taken_back": 0.0}
    ended()
    found = folder.get(API_VERSION, KIND, NAME, "live")
    assert found is not None
    assert found["spec"]["release"] == DIGEST
    assert found["spec"]["target"]["harness"] == "live@sha256:" + "bb" * 32
    with registry.database.read() as tx:
        rows = ledger.rows(tx, "default", kind="canary", subject=f"canary:live/{NAME}")
    assert [(row.actor, row.data["asked"]) for row in rows] == [("robot", "start")]
    with pytest.raises(RegistryError, match="exists with another spec"):
        step.run(config(url, spec={**SPEC, "soak": "1s"}), proposal(tmp_path), tmp_path, NullProgress())


@pytest.mark.parametrize("alarm", [True, False])
def test_a_release_that_is_taken_back_ends_the_run(
    tmp_path: Path, console: tuple[str, Folder, Registry], alarm: bool
) -> None:
    url, folder, _ = console
    ended = played(folder, State(phase="Degraded", reason="AnalysisFailed", message="errors: worse"))
    if alarm:
        with pytest.raises(step.NotPromotedError, match="taken back: AnalysisFailed errors: worse") as caught:
            step.run(config(url), proposal(tmp_path), tmp_path, NullProgress())
        assert caught.value.kind == "check_failed"
    else:
        metrics = step.run(config(url, alarm=False), proposal(tmp_path), tmp_path, NullProgress()).metrics
        assert (metrics["promoted"], metrics["taken_back"]) == (0.0, 1.0)
    ended()
    assert json.loads((tmp_path / "canary.json").read_text())["reason"] == "AnalysisFailed"


@pytest.mark.parametrize("on_timeout", ["abort", "leave"])
def test_what_does_not_end_in_time_is_taken_back_or_left(
    tmp_path: Path, console: tuple[str, Folder, Registry], on_timeout: str
) -> None:
    url, folder, _ = console
    with pytest.raises(step.NotPromotedError, match="not ended in time"):
        step.run(config(url, timeout_s=0.1, on_timeout=on_timeout), proposal(tmp_path), tmp_path, NullProgress())
    found = folder.get(API_VERSION, KIND, NAME, "live")
    assert found is not None
    assert bool(found["spec"].get("abort")) == (on_timeout == "abort")


def test_what_cannot_start_says_why(tmp_path: Path, console: tuple[str, Folder, Registry]) -> None:
    url, folder, _ = console
    for changes, why in (({"registry": ""}, "no console"), ({"spec": {}}, "no rollout")):
        step.run(config(url, **changes), proposal(tmp_path), tmp_path, NullProgress())
        assert why in json.loads((tmp_path / "canary.json").read_text())["why"]
    with pytest.raises(InputError, match="names a release"):
        step.run(config(url, spec={**SPEC, "release": "x"}), proposal(tmp_path), tmp_path, NullProgress())
    with pytest.raises(RegistryError, match="the first step sets a weight"):
        step.run(config(url, spec={**SPEC, "steps": [{"pause": {}}]}), proposal(tmp_path), tmp_path, NullProgress())
    with pytest.raises(RegistryError) as refused:
        step.run(config(url, token_variable="TOKEN_GUEST"), proposal(tmp_path), tmp_path, NullProgress())
    assert refused.value.kind == "forbidden"
    with pytest.raises(RegistryError) as away:
        step.run(config("http://127.0.0.1:1"), proposal(tmp_path), tmp_path, NullProgress())
    assert away.value.kind == "unavailable"
    assert folder.get(API_VERSION, KIND, NAME, "live") is None
