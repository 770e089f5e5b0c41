"""Every migration takes live data along and lets code of the revision before go on writing (expand, then contract)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from hat_components.label.model import Rating
from hat_components.label.store import LabelStore
from hat_registry import accounts, comments, evidence, harnesses, ledger, mutes, pointers, proposals, releases
from hat_registry.registry import Registry
from hat_registry.store import database as module
from hat_registry.store import label_tables
from hat_registry.store.blobs import FolderBlobs
from hat_registry.store.database import Database
from hat_registry.upkeep import dump
from hat_registry.upkeep.check import check
from tests.labels.conftest import pairs, person
from tests.registry.conftest import people
from tests.registry.pusher import files
from tests.registry.servers import database_name, fresh

SCRIPTS = ScriptDirectory(str(Path(module.__file__).parent / "migrations"))
STEPS = [(step.revision, step.down_revision) for step in SCRIPTS.walk_revisions() if step.down_revision]
SAMPLES = {sa.Integer: 1, sa.Boolean: True, sa.String: "x", sa.Text: "x"}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/registry.db"
        return
    yield fresh(request.getfixturevalue("postgres"), database_name(request.node.name))


def reflected(database: Database) -> dict[str, sa.Table]:
    metadata = sa.MetaData()
    with database.read() as tx:
        metadata.reflect(tx)
    return {table.name: table for table in metadata.sorted_tables if table.name != "alembic_version"}


def lived(database: Database, folder: Path) -> None:
    """A registry in which everything has happened once."""
    ada, bo, _ = people(database)
    registry = Registry(database, FolderBlobs(folder))
    for number in range(3):
        version, _ = registry.push(ada, files(number), message=f"number {number}")
    with database.write() as tx:
        evidence.add(tx, ada, evidence.Evidence(subject=version.digest, type="cost", content={"tokens_per_reply": 9}))
        opened = proposals.propose(tx, ada, "harness", "shop", "production", version.digest, reason="go")
        comments.add(tx, ada, opened.id, "why now?")
        proposals.run_gates(tx, ada, opened.id)
        proposals.decide(tx, bo, opened.id, "approve")
        proposals.promote(tx, ada, opened.id)
        pointers.set_policy(tx, accounts.SYSTEM, "harness", "production", 1, [])
        new = releases.Release(
            name="shop", model="sha256:" + "a" * 64, harness=version.digest, profile="sha256:" + "b" * 64
        )
        releases.add(tx, ada, new)
        mutes.mute(tx, accounts.SYSTEM, "room-1")
        accounts.issue_token(tx, ada, label="t", scopes=("read",))
    registry.once(ada, "key", ["x"], lambda tx: (200, {"done": True}))
    project, tasks = pairs()
    store = LabelStore(database)
    store.create(person("ann"), project, tasks)
    store.put_all(
        person("ann"), project.name, [Rating(item="item-0#1", account="ann", criterion="preference", label="a")], {}
    )


def content(database: Database, columns: dict[str, list[str]]) -> dict[str, list[str]]:
    tables = reflected(database)
    with database.read() as tx:
        return {
            name: sorted(str(tuple(row)) for row in tx.execute(sa.select(*(tables[name].c[column] for column in kept))))
            for name, kept in columns.items()
        }


@pytest.mark.parametrize(("revision", "before"), STEPS, ids=[f"{one}-from-{other}" for one, other in STEPS])
def test_live_data_comes_along_and_code_of_the_revision_before_goes_on(
    url: str, tmp_path: Path, revision: str, before: str
) -> None:
    grown = Database(f"sqlite:///{tmp_path}/grown.db")
    grown.migrate()
    lived(grown, tmp_path / "blobs")
    new = reflected(grown)
    database = Database(url)
    database.migrate(before)
    old = reflected(database)
    with grown.snapshot() as tx:
        dump.dump(tx, list(new.values()), tmp_path / "dump")
    with database.write() as tx:
        shared = [old[name] for name in old if name in new]
        dump.load(
            tx, shared, tmp_path / "dump", lambda name, row: {key: row[key] for key in row if key in old[name].columns}
        )
    columns = {name: [column.name for column in table.columns if column.name in new[name].columns]
               for name, table in old.items() if name in new}  # fmt: skip
    kept = content(database, columns)
    assert sum(map(len, kept.values())) > 20
    database.migrate(revision)
    assert content(database, columns) == kept, "live data came along"
    with database.write() as tx:
        for number, table in enumerate(old.values()):
            tx.execute(table.insert().values(**written_by_the_code_before(tx, table, number)))
    database.migrate()
    with database.snapshot() as tx:
        assert ledger.verify(tx, "default").rows > 10
        assert len(harnesses.log(tx, "default", "shop")) == 3
    database.close()
    grown.close()


def written_by_the_code_before(tx: sa.Connection, table: sa.Table, number: int) -> dict[str, Any]:
    """A row with a value for each column that code knew then, and none for those that came since."""
    row: dict[str, Any] = {}
    for column in table.columns:
        sample = next(value for kind, value in SAMPLES.items() if isinstance(column.type, kind))
        row[column.name] = f"x{number}" if column.primary_key and sample == "x" else sample
        for key in column.foreign_keys:
            row[column.name] = tx.execute(sa.select(key.column).limit(1)).scalar_one()
    return row


def test_label_tables_that_came_before_the_migrations_are_taken_over(url: str, tmp_path: Path) -> None:
    database = Database(url)
    database.migrate("0001")
    made = [table for table in label_tables.metadata.sorted_tables if table.name.startswith("label_")]
    with database.write() as tx:
        label_tables.metadata.create_all(tx, tables=made)
        tx.exec_driver_sql("create table label_schema (version integer primary key)")
        tx.exec_driver_sql("insert into label_schema values (1)")
    project, tasks = pairs()
    LabelStore(database).create(person("ann"), project, tasks)
    database.migrate()
    store = LabelStore(database)
    assert [task.id for task in store.tasks(person("ann"), project.name)] == [task.id for task in tasks]
    database.close()


def test_labels_live_on_every_database(url: str) -> None:
    database = Database(url)
    database.migrate()
    store, (ann, ben) = LabelStore(database), (person("ann"), person("ben"))
    project, tasks = pairs()
    store.create(ann, project, tasks)
    store.rate(ann, project.name, "item-0#1", {"preference": "first"})
    store.rate(ben, project.name, "item-0#1", {"preference": "second"})
    store.rate(ben, project.name, "item-0#1", {"preference": "tie"})
    assert store.progress(ann, project.name).mine == 1
    assert {one.account for one in store.ratings(ann, project.name)} == {"ann", "ben"}
    store.decide(ann, project.name, "item-0#1", "preference", "tie")
    assert store.progress(ann, project.name).decided == 1
    assert store.erase(ann, ["item-0#1"]) == 1
    database.close()


def test_servers_that_start_at_once_migrate_once(url: str) -> None:
    databases = [Database(url) for _ in range(4)]
    failures: list[str] = []
    gate = threading.Barrier(len(databases))

    def start(database: Database) -> None:
        gate.wait(timeout=20)
        try:
            database.migrate()
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=start, args=(database,)) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert failures == []
    with databases[0].read() as tx:
        assert tx.exec_driver_sql("select count(*) from alembic_version").scalar_one() == 1
    for database in databases:
        database.close()


def test_the_check_finds_nothing_wrong_with_a_life(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/registry.db")
    database.migrate()
    lived(database, tmp_path / "blobs")
    assert check(Registry(database, FolderBlobs(tmp_path / "blobs")), deep=True).findings == []
    database.close()
