"""Fixtures of the load tests: the gateway over scripted servers, with a harness that any comment is answered under."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hat_registry.store.database import Database
from hat_serving.gateway.host import HostLimits
from tests.serving.conftest import Running, World, deploy, shop


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A gateway with room for many turns at once."""
    made = World(folder=tmp_path)
    made.source.set(deploy(shop()))
    database = Database(f"sqlite:///{tmp_path}/gateway.db")
    running = Running(made, database, HostLimits(open_turns=256, drain_s=5))
    yield made
    running.stop()
    database.close()
