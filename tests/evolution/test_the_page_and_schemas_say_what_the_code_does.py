"""docs/evaluation.md names every suite, candidate and command as they are; published schemas are those of the models."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from hat_components.evolve.result import Evolution
from hat_components.label.model import Project
from hat_components.label.preference import Preference
from hat_components.suites import all_suites
from hat_harness.load import load_harness
from hat_harness.schemas import file_name, schema_of, schema_text
from hatstack.cli.main import build
from hatstack.cli.reference import commands
from tests.evolution.conftest import HARNESSES, SHIPPED

FORMATS: dict[str, type[BaseModel]] = {
    "hatstack.evolution/1": Evolution,
    "hatstack.preference/1": Preference,
    "hatstack.labels/1": Project,
}


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "evaluation.md").read_text(encoding="utf-8")


def test_every_suite_stands_on_the_page(page: str) -> None:
    assert [ident for ident in all_suites() if f"`{ident}`" not in page] == []


def test_every_command_on_the_page_has_these_options(page: str) -> None:
    known = dict(commands(typer.main.get_command(build())))
    lines = [line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    shown = [shlex.split(line) for line in lines if line.startswith("hat ")]
    assert len(shown) > 10
    for words in shown:
        name = next(name for name in (" ".join(words[:3]), " ".join(words[:2])) if name in known)
        options = {option for parameter in known[name].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, words


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_candidates_are_edits_of_the_one_before_as_the_page_says(page: str, name: str) -> None:
    harness = load_harness(HARNESSES / name)
    assert f"| `{name}` |" in page
    before = "live-commerce" if name == "evolution-1" else f"evolution-{int(name[-1]) - 1}"
    parent = load_harness(HARNESSES / before)
    assert {skill.id for skill in harness.skills} == {skill.id for skill in parent.skills}
    assert {tool.id for tool in parent.tools} <= {tool.id for tool in harness.tools}
    assert harness.description != parent.description


def test_each_candidate_makes_the_edit_that_it_is_named_for() -> None:
    one, two, three, four = (load_harness(HARNESSES / name) for name in SHIPPED)
    assert {"decline_answer", "refusal_text"} <= {hook.id for hook in one.hooks}
    constraints = next(part for part in one.prompts if part.id == "limits").text.strip().splitlines()
    assert len(constraints) == 4
    exclusions = next(hook for hook in two.hooks if hook.id == "never_decline")
    assert len(re.findall(r'"([a-z ]+)"', exclusions.when.split("[", 1)[1].split("]")[0])) == 7
    assert "stage_first" in {hook.id for hook in two.hooks}
    limits = {hook.id for hook in three.hooks} - {hook.id for hook in two.hooks}
    assert len(limits) == 5
    rules = {hook.id: hook.when for hook in three.hooks}
    assert {hook.id for hook in four.hooks if hook.when != rules[hook.id]} == limits


@pytest.mark.parametrize("name", FORMATS)
def test_schemas_are_those_of_the_models(name: str, repository: Path) -> None:
    schema = schema_of(name, FORMATS[name])
    Draft202012Validator.check_schema(schema)
    published = repository / "docs" / "schemas" / file_name(name)
    assert published.read_text(encoding="utf-8") == schema_text(schema), f"write schema_text of {name} to {published}"


def test_a_finished_evolution_is_what_its_schema_says(evolved: Path) -> None:
    import json

    schema = schema_of("hatstack.evolution/1", Evolution)
    found = json.loads((evolved / "evolution.json").read_text())
    assert list(Draft202012Validator(schema).iter_errors(found)) == []
