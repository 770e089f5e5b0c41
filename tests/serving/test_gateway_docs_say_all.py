"""docs/gateway.md names every field that the gateway honours, every setting's flag and every metric, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from hat_serving.experiment.events import Event
from hat_serving.experiment.model import BETTER, ExperimentSpec
from hat_serving.gateway import chat
from hat_serving.gateway.metrics import Metrics
from hat_serving.gateway.proxy import Proxy

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "gateway.md").read_text(encoding="utf-8")
EXPERIMENTS = (DOCS / "experiments.md").read_text(encoding="utf-8")


def rows(heading: str) -> set[str]:
    section = PAGE.split(heading, 1)[1].split("\n#", 1)[0]
    return set(re.findall(r"^\| `([\w.]+)` \|", section, flags=re.MULTILINE))


def test_fields_are_those_of_the_code() -> None:
    assert rows("### `POST /v1/chat/completions`") == chat.CHAT_FIELDS
    assert rows("### `POST /v1/responses`") == chat.RESPONSE_FIELDS
    assert rows("### `POST /v1/rooms/{room}/messages`") == chat.ROOM_FIELDS


def test_metrics_are_those_of_the_code() -> None:
    metrics, names = Metrics(), set()
    Proxy({}, collector=metrics.collector)
    for family in metrics.collector.collect():
        names.add(family.name + "_total" if family.type == "counter" else family.name)
    assert rows("## Metrics") == names


def named(heading: str) -> set[str]:
    """Names in the first cells of the tables below a heading of the page on experiments."""
    section = EXPERIMENTS.split(heading, 1)[1].split("\n## ", 1)[0]
    cells = re.findall(r"^\| (`[^|]*`) \|", section, flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_fields_metrics_and_events_of_experiments_are_those_of_the_code() -> None:
    assert named("## Fields") == set(ExperimentSpec.model_fields) | set(BETTER)
    told = named("## Events")
    also = {"conversation", "room", "item", "order"}
    assert told | also == set(Event.model_fields)
