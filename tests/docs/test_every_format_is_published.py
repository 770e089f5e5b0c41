"""docs/schemas holds the JSON Schema of every format of the contract, equal to the models, and each schema is one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from hat_harness.schemas import file_name, schema_text, schemas
from hatstack.schemas import formats

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "schemas"
CONTRACT = ("harness", "trace", "trajectory", "dataset", "evaluation", "evidence", "release", "ledger", "run")
ALL = schemas(formats())


def test_the_contract_is_covered() -> None:
    assert {f"hatstack.{name}/1" for name in CONTRACT} == set(ALL)


@pytest.mark.parametrize("name", sorted(ALL))
def test_the_published_schema_is_that_of_the_model(name: str) -> None:
    published = (FOLDER / file_name(name)).read_text(encoding="utf-8")
    assert published == schema_text(ALL[name]), "run python -m hatstack.schemas"
    Draft202012Validator.check_schema(json.loads(published))
