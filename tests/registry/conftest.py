"""A registry on SQLite and, for what must hold there too, on a real Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hat_harness.spec import Harness, Prompt
from hat_registry import accounts, harnesses
from hat_registry.accounts import Actor
from hat_registry.store.blobs import FolderBlobs, S3Blobs
from hat_registry.store.database import Database
from tests.registry import servers


@dataclass
class Place:
    """A migrated database, a blob store and three people."""

    database: Database
    blobs: FolderBlobs
    ada: Actor
    bo: Actor
    eve: Actor


def harness(text: str, name: str = "shop") -> Harness:
    return Harness(name=name, sections=("rules",), prompts=(Prompt(id="rules", section="rules", text=text),))


def push(place: Place, text: str, parent: str | None = None) -> str:
    content = text.encode()
    with place.database.write() as tx:
        files = harnesses.store_blobs(place.blobs, {"prompts/rules.md": content})
        version, _ = harnesses.push(tx, place.ada, harness(text), files, message=f"say {text}", parent=parent)
    return version.digest


def people(database: Database) -> tuple[Actor, Actor, Actor]:
    with database.write() as tx:
        for name in ("ada", "bo", "eve"):
            accounts.create(tx, accounts.SYSTEM, name, password=f"{name}-has-a-long-password")
        accounts.give(tx, accounts.SYSTEM, "ada", "approver")
        accounts.give(tx, accounts.SYSTEM, "bo", "approver")
        accounts.give(tx, accounts.SYSTEM, "eve", "viewer")
        ada, bo, eve = (accounts.actor_of(tx, name, "default") for name in ("ada", "bo", "eve"))
    return ada, bo, eve


def open_place(url: str, folder: Path) -> Place:
    database = Database(url)
    database.migrate()
    return Place(database, FolderBlobs(folder / "blobs"), *people(database))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = open_place(f"sqlite:///{tmp_path}/registry.db", tmp_path)
    yield made
    made.database.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Address of a Postgres that all tests of this folder share; each makes databases of its own."""
    server = servers.Postgres()
    yield server.url
    server.close()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Blobs]:
    """Blobs on an S3 server that all tests of this folder share."""
    server = servers.S3(tmp_path_factory.mktemp("weed"))
    yield server.blobs()
    server.kill()


@pytest.fixture
def on_postgres(postgres: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """A registry on Postgres."""
    made = open_place(servers.fresh(postgres, servers.database_name(request.node.name)), tmp_path)
    yield made
    made.database.close()
