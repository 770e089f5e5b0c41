"""The command line has every noun and verb of the contract, and each stands in the docs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from hatstack.cli import reference
from hatstack.cli.main import build

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reference-cli.md"
CONTRACT = """
run report up down status chat evaluate compare evolve ablate
harness init|validate|show|diff|render|explain|augment|push|pull|list|log|propose|approve|promote|rollback|export|import
data import|validate|show|erase
model list|show|aliases
judge calibrate|show
train plan
pipeline list|compile|submit|status|cancel
release list|show|render
canary start|status|pause|resume|promote|abort|render
experiment create|start|status|stop
loadtest run|draw|replay|report
ledger show|verify|export
scenario serve
account list|create|grant|revoke|invite|close|reopen|token|me
webhook list|add|show|ping|pause|resume|remove|again
doctor
cache gc
registry backup|restore|check|gc
"""


def contract() -> set[str]:
    found: set[str] = set()
    for line in CONTRACT.strip().splitlines():
        words = line.split()
        if "|" in line or len(words) == 2:
            found |= {f"hat {words[0]} {verb}" for verb in words[1].split("|")}
        else:
            found |= {f"hat {word}" for word in words}
    return found


def commands() -> dict[str, Any]:
    return dict(reference.commands(typer.main.get_command(build())))


def test_the_contract_is_covered_and_nothing_else_is_there() -> None:
    assert set(commands()) == contract()


def test_the_docs_are_those_of_the_code() -> None:
    assert DOCS.read_text(encoding="utf-8") == reference.reference(), "run python -m hatstack.cli.reference"


def test_every_command_and_option_stands_in_the_docs_and_has_a_meaning() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for name, command in commands().items():
        section = text.split(f"## {name}\n", 1)[1].split("\n## ", 1)[0]
        assert command.help
        for parameter in command.params:
            if parameter.name != "help":
                assert parameter.help, f"{name}: {parameter.name} says nothing"
                assert parameter.help.split(".")[0] in section
                if parameter.param_type_name == "option":
                    assert all(f"`{option}`" in section for option in parameter.opts)


def test_every_mutation_has_a_dry_run() -> None:
    mutating = {"run", "evaluate", "harness init", "harness augment", "data import", "pipeline compile", "cache gc"}
    mutating |= {f"harness {verb}" for verb in ("push", "pull", "propose", "approve", "promote", "rollback")}
    mutating |= {"up", "down", "evolve", "loadtest draw", "judge calibrate", "data erase"}
    mutating |= {f"canary {verb}" for verb in ("start", "pause", "resume", "promote", "abort")}
    mutating |= {f"account {verb}" for verb in ("create", "grant", "revoke", "invite", "close", "reopen", "token")}
    mutating |= {f"webhook {verb}" for verb in ("add", "ping", "pause", "resume", "remove", "again")}
    mutating |= {"harness export", "harness import", "model aliases", "release render"}
    mutating |= {f"registry {verb}" for verb in ("backup", "restore", "gc")}
    mutating |= {"ablate", "pipeline submit", "pipeline cancel"}
    mutating |= {f"experiment {verb}" for verb in ("create", "start", "stop")}
    options = {name.removeprefix("hat "): {o for p in c.params for o in p.opts} for name, c in commands().items()}
    assert {name for name, found in options.items() if "--dry-run" in found} == mutating
    assert all("--output" in found for found in options.values())
