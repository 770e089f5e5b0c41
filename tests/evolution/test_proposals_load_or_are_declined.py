"""A model behind an endpoint writes edits: bad ones go back with their faults, good ones are measured like any other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hat_components.evolve.result import Evolution
from hat_components.step import NullProgress
from tests.evolution.conftest import HARNESSES
from tests.judge.conftest import said, serve

__all__ = ["serve"]
Evolve = Callable[..., Evolution]
GOOD = {
    "why": "say nothing that was not read",
    "files": [
        {
            "path": "prompts/rules.md",
            "content": (HARNESSES / "live-commerce" / "prompts" / "rules.md").read_text()
            + "say only what you have read\n",
        }
    ],
    "remove": [],
}


def proposer(url: str) -> dict[str, Any]:
    return {"url": url, "model": "writer", "backoff_s": 0.0, "timeout_s": 5.0, "attempts": 1}


def base(inputs: dict[str, Path]) -> dict[str, Path]:
    return {name: path for name, path in inputs.items() if not name.startswith("candidate")}


def test_a_proposal_is_sent_back_until_it_loads_then_measured(
    inputs: dict[str, Path], evolve: Evolve, serve: Callable[..., Any]
) -> None:
    broken = {
        **GOOD,
        "files": [{"path": "hooks/new.yaml", "content": "- {id: x, event: stop, when: 'no(', action: block}\n"}],
    }
    answers = ["let me think about that", json.dumps(broken), "here: ```json\n" + json.dumps(GOOD) + "\n```"]
    endpoint = serve(lambda body, number: said(answers[(number - 1) % 3]))
    found = evolve(base(inputs), proposals=1, proposer=proposer(endpoint.url), patience=0, held_out_items=8)
    (stage,) = found.stages[1:]
    assert (stage.name, stage.kind, stage.parent, stage.note) == ("proposal-1", "proposal", "base", GOOD["why"])
    assert any("prompt rules / text changed" in change for change in stage.changes)
    assert stage.measured["heeding"].errors < found.stages[0].measured["heeding"].errors
    assert stage.outcome == "kept"
    assert len(endpoint.bodies) == 3
    asked = endpoint.bodies[0]["messages"][1]["content"]
    assert "=== prompts/rules.md" in asked
    assert "missing_call" in asked
    assert asked.count("<data>") == asked.count("</data>") == 1
    back = endpoint.bodies[2]["messages"][-1]["content"]
    assert "hooks/new.yaml" in back
    assert "when:" in back


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({**GOOD, "files": [{"path": "../outside.md", "content": "x"}]}, "may not be written"),
        ({**GOOD, "files": [{"path": "skills/x/run.sh", "content": "x"}]}, "may not be written"),
        ({**GOOD, "files": []}, "changes nothing"),
        ({**GOOD, "files": [{"path": "prompts/a.md", "content": "x" * 70_000}]}, "larger than"),
        ({"why": "x"}, "no such JSON object"),
    ],
)
def test_what_cannot_be_used_is_declined_with_the_reason(
    inputs: dict[str, Path], evolve: Evolve, serve: Callable[..., Any], answer: dict[str, Any], told: str
) -> None:
    class Heard(NullProgress):
        def __init__(self) -> None:
            self.warnings: list[str] = []

        def warning(self, message: str) -> None:
            self.warnings.append(message)

    endpoint, heard = serve(lambda body, number: said(json.dumps(answer))), Heard()
    found = evolve(
        base(inputs), heard, proposals=2, proposer=proposer(endpoint.url), proposal_tries=2, items=2, held_out_items=2
    )
    assert [stage.name for stage in found.stages] == ["base"]
    assert told in heard.warnings[0]
    assert len(endpoint.bodies) == 2


def test_a_proposer_that_is_down_ends_the_search_not_the_run(
    inputs: dict[str, Path], evolve: Evolve, serve: Callable[..., Any]
) -> None:
    endpoint = serve(lambda body, number: (503, {}, "no"))
    found = evolve(base(inputs), proposals=3, proposer=proposer(endpoint.url), items=2, held_out_items=2)
    assert found.selected == "base"
    assert len(endpoint.bodies) == 1
