"""One world that every security test asks: two workspaces, an account for each role, one of everything there is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi import FastAPI, Response
from fastapi.testclient import TestClient

from hat_console.app import ConsoleSettings, create_app
from hat_pipelines.desk.catalogue import Catalogue
from hat_pipelines.desk.desk import Desk, Settings
from hat_registry import accounts, evidence, mutes, pointers, proposals, releases, webhooks
from hat_registry.accounts import SYSTEM, Actor
from hat_registry.api.limits import Buckets
from hat_registry.archive import read_folder
from hat_registry.registry import Registry
from hatstack import paths

HARNESS = Path(__file__).resolve().parents[2] / "harness-registry" / "harnesses" / "react-baseline"
MARK = "seen-in-the-default-workspace-alone"
ROOM = "a-room-of-the-default-workspace"
ROLES = ("viewer", "reviewer", "editor", "approver", "admin")
ONE, TWO = ("sha256:" + digit * 64 for digit in "12")


@dataclass
class World:
    """A registry with everything in it, and the ids of what is there."""

    folder: Path
    ids: dict[str, str]

    @property
    def registry(self) -> Registry:
        return Registry.open(f"sqlite:///{self.folder}/registry.db", self.folder / "blobs")


def build(folder: Path) -> World:
    """A world in an empty folder."""
    registry = Registry.open(f"sqlite:///{folder}/registry.db", folder / "blobs")
    version, _ = registry.push(SYSTEM, read_folder(HARNESS), message=MARK)
    ids = {"digest": version.digest, "name": version.name}
    with registry.database.write() as tx:
        for role in ROLES:
            accounts.create(tx, SYSTEM, role, display=f"{role} {MARK}")
            accounts.give(tx, SYSTEM, role, role)  # type: ignore[arg-type]  # the tuple loses the literal
        accounts.create(tx, SYSTEM, "narrow")
        accounts.give(tx, SYSTEM, "narrow", "viewer", "other")
        elsewhere = Actor("system", "elsewhere", SYSTEM.grants)
        accounts.create(tx, elsewhere, "stranger")
        accounts.give(tx, elsewhere, "stranger", "admin")
        pointers.move_free(tx, SYSTEM, "harness", version.name, "staging", version.digest)
        proposal = proposals.propose(
            tx, SYSTEM, "harness", version.name, "production", version.digest, reason=f"because {MARK}"
        )
        new = releases.Release(name="shop", model=ONE, model_reference=MARK, harness=version.digest, profile=TWO)
        ids["release"], _ = releases.add(tx, SYSTEM, new)
        pointers.move_free(tx, SYSTEM, "release", "shop", "staging", ids["release"])
        ids["evidence"] = evidence.add(
            tx, SYSTEM, evidence.Evidence(subject=version.digest, type="evaluation", content={"note": MARK})
        )
        hook, _ = webhooks.add(tx, SYSTEM, f"https://8.8.8.8/{MARK}", [], ())
        ids["webhook"], ids["proposal"] = hook["id"], proposal.id
        mutes.mute(tx, SYSTEM, ROOM)
        admin = accounts.actor_of(tx, "admin", "default")
        ids["token"], _ = accounts.issue_token(tx, admin, label=MARK, scopes=["read"])
    registry.close()
    return World(folder, ids)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> World:
    return build(tmp_path_factory.mktemp("world"))


@pytest.fixture
def world(template: World, tmp_path: Path) -> World:
    """A copy that a test may change."""
    shutil.copytree(template.folder, tmp_path / "world")
    return World(tmp_path / "world", template.ids)


@dataclass
class Site:
    """A console over a world, asked in process."""

    app: FastAPI
    client: TestClient
    registry: Registry

    def cookie(self, name: str, workspace: str = "default") -> dict[str, str]:
        """Headers of a signed-in browser."""
        answer = Response()
        self.app.state.sessions.start(answer, name, workspace)
        value = answer.headers["set-cookie"].split(";")[0]
        return {"cookie": value, "x-csrf-token": self.app.state.sessions.csrf(value.partition("=")[2])}


def opened(world: World, **settings: object) -> Site:
    registry = world.registry
    runs = world.folder / "runs"
    runs.mkdir(exist_ok=True)
    rollouts = world.folder / "rollouts"
    rollouts.mkdir(exist_ok=True)
    made = ConsoleSettings(
        session_key=b"k" * 32, runs=runs, rollouts=str(rollouts), gateway="http://127.0.0.1:9", send_webhooks=False,
        writes_per_s=10_000, **settings,  # type: ignore[arg-type]  # the mapping loses the fields' types
    )  # fmt: skip
    catalogue = Catalogue(paths.shipped("profiles"), paths.shipped("harnesses"))
    desk = Desk(registry.database, catalogue, Settings(root=runs))
    app = create_app(registry, made, desk)
    app.state.wrong = Buckets(10_000, 10_000)
    app.state.hub.lifetime_s = 0.0
    client = TestClient(app, raise_server_exceptions=False, follow_redirects=False, base_url="http://127.0.0.1")
    return Site(app, client, registry)


@pytest.fixture
def site(world: World) -> Iterator[Site]:
    made = opened(world)
    yield made
    made.registry.close()
