"""What only has to be done once is done before a console takes requests: its first list of runs costs what others do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import pydantic
import pytest
import yaml
from starlette.testclient import TestClient

from hat_console import messages
from hat_console.app import ConsoleSettings, create_app
from hat_console.view import environment
from hat_pipelines.desk import look
from hat_pipelines.runs import RunRecord, StepRecord, create, now
from hat_registry.registry import Registry

RUNS, STEPS = 20, 10


def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts, from now on, of what is done once: records parsed, templates compiled, messages read, routes built."""
    found: Counter[str] = Counter()
    for owner, name in (
        (RunRecord, "model_validate_json"),
        (jinja2.Environment, "compile"),
        (yaml, "load"),
        (pydantic.TypeAdapter, "__init__"),
    ):
        real = getattr(owner, name)

        def spy(*given: Any, _real: Callable[..., Any] = real, _name: str = name, **more: Any) -> Any:
            found[_name] += 1
            return _real(*given, **more)

        monkeypatch.setattr(owner, name, spy)
    return found


def test_the_first_list_of_runs_reads_and_builds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = StepRecord(component="evaluate", state="done", started=now(), ended=now())
    steps = {f"step-{k}": step for k in range(STEPS)}
    for number in range(RUNS):
        record = RunRecord(
            id="", pipeline="train", profile="smoke", config="", code="", started=now(), state="done", steps=steps
        )
        create(tmp_path / "runs", f"run-{number}", "name: smoke\n", record)
    environment.cache_clear()  # as in a process that has just begun
    messages.catalogue.cache_clear()
    look.record_of.cache_clear()
    registry = Registry.open(f"sqlite:///{tmp_path}/registry.db", tmp_path / "blobs")
    done = counted(monkeypatch)
    app = create_app(registry, ConsoleSettings(session_key=b"k" * 32, open_access=True, runs=tmp_path / "runs"))
    with TestClient(app, base_url="http://localhost", client=("127.0.0.1", 5)) as client:
        assert done["model_validate_json"] == RUNS
        assert done["load"] == len(messages.LANGUAGES)
        assert done["compile"] > 40
        assert done["__init__"] > 100
        done.clear()
        assert len(client.get("/api/v1/runs").json()["items"]) == RUNS
        assert "run-19" in client.get("/runs", headers={"Accept": "text/html"}).text
        assert done == Counter()
    registry.close()
