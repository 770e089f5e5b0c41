"""Two evaluations of the same items (live-commerce and react-baseline, scripted expert with faults), stores and people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hat_components.evaluate.config import Config as EvaluateConfig
from hat_components.evaluate.step import run as evaluate
from hat_components.label.model import CAUSES, PAIR, Project, Task
from hat_components.label.store import LabelStore
from hat_components.simulate.config import Config as SimulateConfig
from hat_components.simulate.step import run as simulate
from hat_components.step import NullProgress
from hat_registry.accounts import Actor
from hat_registry.store.database import Database

HARNESSES = Path(__file__).resolve().parents[2] / "harness-registry" / "harnesses"


def person(name: str, role: str = "reviewer", workspace: str = "default") -> Actor:
    return Actor(name, workspace, {"*": frozenset({role})})  # type: ignore[arg-type]  # roles are literals


@dataclass
class Place:
    """A store and three reviewers."""

    store: LabelStore
    ann: Actor
    ben: Actor
    cat: Actor


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    database = Database(f"sqlite:///{tmp_path}/labels.db")
    database.migrate()
    yield Place(LabelStore(database), person("ann"), person("ben"), person("cat"))
    database.close()


def pairs(count: int = 6, name: str = "duel") -> tuple[Project, list[Task]]:
    project = Project(
        name=name, kind="pair", criteria=(PAIR,), causes=CAUSES, arms=("ours", "theirs"), ratings_per_item=2
    )
    tasks = [
        Task(
            id=f"item-{k}#1",
            intent="chat" if k % 2 else "faq",
            shown={"before": [], "event": f"comment {k}", "a": f"reply of one {k}", "b": f"reply of two {k}"},
            hidden={"winner": ("a", "tie", "b")[k % 3], "cause": CAUSES[k % 5] if k % 3 != 1 else ""},
        )
        for k in range(count)
    ]
    return project, tasks


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folder of an evaluation per harness, over the same items."""
    root = tmp_path_factory.mktemp("evaluated")
    simulate(SimulateConfig(train=1, dev=12, test=1), {}, root / "data", NullProgress())
    found = {}
    for name in ("live-commerce", "react-baseline"):
        found[name] = root / name
        evaluate(
            EvaluateConfig(arm=name, policy="expert", suites=("t1",), draws=200),
            {"items": root / "data" / "items_dev", "harness": HARNESSES / name},
            found[name],
            NullProgress(),
        )
    return found
