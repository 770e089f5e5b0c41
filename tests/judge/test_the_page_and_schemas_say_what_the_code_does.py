"""docs/judge.md runs and is complete; published schemas are those of the models; the KFP component builds."""

from __future__ import annotations

import contextlib
import io
import re
import typing
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from hat_components.judge import component
from hat_components.judge.calibration import JudgeCalibration
from hat_components.judge.checks import CHECKS
from hat_components.judge.evidence import TOOLS
from hat_components.judge.result import Judged
from hat_components.judge.rubric import parse_rubric
from hat_components.judge.spec import Judge, build_judge, load_judge
from hat_components.judge.verdict import Flag, Reason
from hat_harness.schemas import file_name, schema_of, schema_text

FORMATS: dict[str, type[BaseModel]] = {
    "hatstack.judge/1": Judge,
    "hatstack.judged/1": Judged,
    "hatstack.calibration/1": JudgeCalibration,
}


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "judge.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_the_example_prints_what_the_page_shows(page: str) -> None:
    for block in blocks(page, "python"):
        shown = [line.removeprefix("# → ") for line in block.splitlines() if line.startswith("# → ")]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, "judge.md", "exec"), {"__name__": "example"})
        assert printed.getvalue().splitlines() == shown
        assert shown


def test_the_shown_judge_and_rubric_are_valid(page: str) -> None:
    rubric = parse_rubric(blocks(page, "markdown")[0])
    judge = build_judge({**yaml.safe_load(blocks(page, "yaml")[0]), "rubric": rubric})
    assert [member.type for member in judge.members] == ["endpoint", "oracle"]


def test_every_reason_flag_check_and_tool_is_on_the_page(page: str) -> None:
    names = [*typing.get_args(Reason), *typing.get_args(Flag), *CHECKS, *(tool["function"]["name"] for tool in TOOLS)]
    assert [name for name in names if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", FORMATS)
def test_schemas_are_those_of_the_models(name: str, repository: Path) -> None:
    schema = schema_of(name, FORMATS[name])
    Draft202012Validator.check_schema(schema)
    published = repository / "docs" / "schemas" / file_name(name)
    assert published.read_text(encoding="utf-8") == schema_text(schema), f"write schema_text of {name} to {published}"


def test_a_judge_is_what_its_schema_says(repository: Path) -> None:
    schema = schema_of("hatstack.judge/1", Judge)
    found = load_judge("live-commerce").model_dump(mode="json")
    assert list(Draft202012Validator(schema).iter_errors(found)) == []


def test_the_component_takes_the_steps_inputs() -> None:
    spec = component.judge.component_spec
    assert set(spec.inputs) == {"config", "evaluation", "traces", "labels", "calibration", "history"}
    assert set(spec.outputs) == {"judged", "calibration_made", "judgements"}
