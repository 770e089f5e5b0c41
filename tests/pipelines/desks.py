"""A desk over toy pipelines, worked by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from hat_pipelines.desk.catalogue import Catalogue
from hat_pipelines.desk.desk import Desk, Settings
from hat_pipelines.desk.order import Order
from hat_registry.store.database import Database

TOYS = "tests.pipelines.toys.pipelines"
HOLDING = "tests.pipelines.toys.holding"
BROKEN = "tests.pipelines.toys.broken"
PROFILE = """\
format: hatstack.profile/1
name: toy
pipeline: tests.pipelines.toys.pipelines
harness: small
arms: [naive, hsa]
local: {threads: 1, parallel: 2}
"""
WAIT_S = 60.0


class Clock:
    """A time that a test moves."""

    def __init__(self) -> None:
        self.time = datetime(2026, 1, 31, 2, 29, 30, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time


def catalogue(folder: Path) -> Catalogue:
    (folder / "profiles").mkdir(parents=True, exist_ok=True)
    (folder / "harnesses" / "small").mkdir(parents=True, exist_ok=True)
    (folder / "profiles" / "toy.yaml").write_text(PROFILE)
    (folder / "harnesses" / "small" / "harness.yaml").write_text("name: small\n")
    return Catalogue(folder / "profiles", folder / "harnesses", (TOYS, HOLDING, BROKEN))


def make_desk(folder: Path, database: Database | None = None, clock: Callable[[], datetime] | None = None) -> Desk:
    database = database or Database(f"sqlite:///{folder}/desk.db")
    settings = Settings(root=folder / "runs", cache=folder / "cache", limit=1)
    more = {"now": clock} if clock else {}
    return Desk(database, catalogue(folder), settings, **more)


def holding(folder: Path, **more: object) -> Order:
    """An order of the pipeline that waits for `folder/release`."""
    values = {"steps.hold.release": str(folder / "release")}
    return Order.model_validate({"pipeline": HOLDING, "profile": "toy", "values": values, **more})


def until(true: Callable[[], object], desk: Desk | None = None) -> None:
    """Wait until something holds, working the desk meanwhile; a failure after a minute, which decides nothing else."""
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.05)):
        if desk is not None:
            desk.tick()
        if true():
            return
        pause.wait(0.05)
    raise AssertionError("it did not come to be")
