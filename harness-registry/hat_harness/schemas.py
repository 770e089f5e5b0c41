"""JSON Schema of every published format, from the models themselves.

Always holds: `schemas()` is what `docs/schemas/` and the golden files say (a test compares them; `regenerate` writes
them). Packages above pass their own models: `schemas({"hatstack.release/1": Release})`. The schema of a trace also
describes the records inside its entries (`$defs/Event.<type>`, `$defs/Action.<type>`). Not here: the models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from hat_harness.codec import ACTIONS, EVENTS
from hat_harness.spec import Harness
from hat_harness.trace import Trace

DIALECT = "https://json-schema.org/draft/2020-12/schema"
OWN: dict[str, type[BaseModel]] = {"hatstack.harness/1": Harness, "hatstack.trace/1": Trace}


def schema_of(name: str, model: type[BaseModel]) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one format."""
    schema = {"$schema": DIALECT, "$id": f"https://hatstack.dev/schemas/{name}", **model.model_json_schema()}
    if model is Trace:
        definitions = schema.setdefault("$defs", {})
        for prefix, records in (("Event", EVENTS), ("Action", ACTIONS)):
            for record in records:
                found = TypeAdapter(record).json_schema(ref_template="#/$defs/{model}")
                definitions.update(found.pop("$defs", {}))
                definitions[f"{prefix}.{record.__name__}"] = found
    return schema


def schemas(more: Mapping[str, type[BaseModel]] | None = None) -> dict[str, dict[str, Any]]:
    """Format name → schema, of this package's formats and of those given."""
    return {name: schema_of(name, model) for name, model in sorted({**OWN, **(more or {})}.items())}


def file_name(name: str) -> str:
    """`hatstack.trace/1` → `hatstack.trace.1.schema.json`."""
    return name.replace("/", ".") + ".schema.json"


def schema_text(schema: Mapping[str, Any]) -> str:
    """A schema as the text of its file."""
    return json.dumps(schema, ensure_ascii=False, indent=2) + "\n"


def regenerate(folders: list[Path], more: Mapping[str, type[BaseModel]] | None = None) -> list[Path]:
    """Writes every schema into each folder; returns the files."""
    written = []
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        for name, schema in schemas(more).items():
            path = folder / file_name(name)
            path.write_text(schema_text(schema), encoding="utf-8")
            written.append(path)
    return written
