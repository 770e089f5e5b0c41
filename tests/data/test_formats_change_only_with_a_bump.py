"""The formats that steps write are pinned: a changed schema needs a new format number and a reader for the old one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from hat_components.data import Dataset, Trajectory
from hat_components.evaluate.result import Evaluation
from hat_components.importer.conversation import Conversation

GOLDEN = Path(__file__).parent / "golden"
FORMATS: dict[str, type[BaseModel]] = {
    "dataset-1": Dataset,
    "trajectory-1": Trajectory,
    "evaluation-1": Evaluation,
    "conversation": Conversation,
}


def shape(model: type[BaseModel]) -> object:
    """The model's JSON Schema without the prose."""

    def bare(value: object) -> object:
        if isinstance(value, dict):
            return {key: bare(inner) for key, inner in value.items() if key not in ("description", "title")}
        return [bare(inner) for inner in value] if isinstance(value, list) else value

    schema = model.model_json_schema()
    # `title` is also a field of a suite: only the prose of the schema is dropped, not fields of that name.
    return bare(json.loads(json.dumps(schema).replace('"title": {"', '"title_": {"')))


@pytest.mark.parametrize("name", FORMATS)
def test_the_schema_is_the_pinned_one(name: str) -> None:
    assert shape(FORMATS[name]) == json.loads((GOLDEN / f"{name}.schema.json").read_text())


@pytest.mark.parametrize("name", FORMATS)
def test_a_record_of_that_format_is_still_read_and_written_alike(name: str) -> None:
    text = (GOLDEN / f"{name}.json").read_text()
    record = FORMATS[name].model_validate_json(text)
    assert json.loads(record.model_dump_json()) == json.loads(text)
