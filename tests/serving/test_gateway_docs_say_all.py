"""docs/gateway.md names every field that the gateway honours, every setting's flag and every metric, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from hat_serving.gateway import chat
from hat_serving.gateway.metrics import Metrics

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "gateway.md").read_text(encoding="utf-8")


def rows(heading: str) -> set[str]:
    section = PAGE.split(heading, 1)[1].split("\n#", 1)[0]
    return set(re.findall(r"^\| `([\w.]+)` \|", section, flags=re.MULTILINE))


def test_fields_are_those_of_the_code() -> None:
    assert rows("### `POST /v1/chat/completions`") == chat.CHAT_FIELDS
    assert rows("### `POST /v1/responses`") == chat.RESPONSE_FIELDS
    assert rows("### `POST /v1/rooms/{room}/messages`") == chat.ROOM_FIELDS


def test_metrics_are_those_of_the_code() -> None:
    names = set()
    for family in Metrics().collector.collect():
        names.add(family.name + "_total" if family.type == "counter" else family.name)
    assert rows("## Metrics") == names
