"""A nightly run follows the pointer to the release and draws items that no run before it had."""

from __future__ import annotations

from pathlib import Path

import pytest

from hat_components.simulate import step as simulate
from hat_components.simulate.config import Config
from hat_components.step import NullProgress, StepResult
from hat_pipelines import dags
from hat_pipelines.desk.catalogue import UnknownNameError
from hat_pipelines.desk.order import Order
from hat_pipelines.runs import RunRecord, StepRecord, create, now
from hat_registry import accounts, pointers, releases
from hat_registry.archive import read_folder
from hat_registry.errors import NotFoundError
from hat_registry.registry import Registry
from hatstack import paths
from tests.pipelines.desks import Clock, make_desk

WHO = ("default", "ada")


def trained(root: Path, run: str, digest: str) -> None:
    """A run whose step made a model of this digest."""
    record = RunRecord(
        id="", pipeline="train", profile="toy", config="", code="", started=now(), state="done",
        steps={"sft-hsa": StepRecord(component="sft", state="done")},
    )  # fmt: skip
    step = create(root, run, "name: toy\n", record).step("sft-hsa")
    step.prepare({})
    (step.work / "model").mkdir()
    step.publish(StepResult(artifacts={"model": "model"}, digests={"model": digest}))


def test_a_schedule_plays_the_model_that_the_pointer_leads_to_that_night(tmp_path: Path) -> None:
    registry = Registry.open(f"sqlite:///{tmp_path}/registry.db", tmp_path / "blobs")
    harness, _ = registry.push(accounts.SYSTEM, read_folder(paths.harness("live-commerce")), message="the first")
    digests = {run: f"sha256:{letter * 64}" for run, letter in (("monday", "a"), ("tuesday", "b"))}
    clock = Clock()
    desk = make_desk(tmp_path, registry.database, clock)
    for run, digest in digests.items():
        trained(desk.settings.root, run, digest)

    def live(model: str) -> None:
        with registry.database.write() as tx:
            made = releases.Release(name="live", model=model, harness=harness.digest, profile=f"sha256:{'c' * 64}")
            digest, _ = releases.add(tx, accounts.SYSTEM, made)
            pointers.move_free(tx, accounts.SYSTEM, "release", "live", "staging", digest)

    order = Order(pipeline="nightly", profile="toy", inputs={"model": "@live/staging"})
    with pytest.raises(NotFoundError, match="no pointer staging"):
        desk.place(*WHO, order)
    live(digests["monday"])
    assert desk.released("default") == ["@live/staging"]
    desk.put_schedule(*WHO, "night", "30 2 * * *", order)
    clock.time = clock.time.replace(minute=30, second=5)
    desk._fire(desk.store.scheduled("default", "night"))
    (first,) = desk.store.active()
    assert first.order.inputs == {"model": "monday/sft-hsa.model"}
    desk.store.change(first.id, "queued", "done")
    live(digests["tuesday"])
    clock.time = clock.time.replace(month=2, day=1)
    desk._fire(desk.store.scheduled("default", "night"))
    (second,) = desk.store.active()
    assert second.order.inputs == {"model": "tuesday/sft-hsa.model"}
    desk.store.change(second.id, "queued", "done")
    live(f"sha256:{'d' * 64}")
    with pytest.raises(UnknownNameError, match="no run here made the model of live/staging"):
        desk.place(*WHO, order)
    clock.time = clock.time.replace(day=2)
    desk._fire(desk.store.scheduled("default", "night"))
    assert desk.store.active() == []
    kept = desk.store.scheduled("default", "night")
    assert (kept.fired, kept.skipped) == (2, 1)
    assert "no run here made the model" in kept.note
    registry.close()


def test_items_are_fresh_unless_seeds_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fresh,) = [one for one in dags.build("nightly", ()).steps if one.component == "simulate"]
    (fixed,) = [one for one in dags.build("nightly", (), seeds=(3,)).expand().steps if one.component == "simulate"]
    assert (fresh.cache, fixed.cache, fixed.config) == (False, True, {})
    config = Config.model_validate({"train": 1, "dev": 3, "test": 1, "turns": 1, **fresh.config})
    drawn = []
    for night in range(2):
        minute = 86400.0 * (20000 + night)
        monkeypatch.setattr("hat_components.simulate.step.time.time", lambda minute=minute: minute)
        (tmp_path / str(night)).mkdir()
        drawn.append(simulate.run(config, {}, tmp_path / str(night), NullProgress()))
    assert drawn[0].digests["items_dev"] != drawn[1].digests["items_dev"]
    again = simulate.run(
        config.model_copy(update={"fresh": False, "seed": drawn[0].notes["seed"]}),
        {},
        tmp_path / "again",
        NullProgress(),
    )
    assert again.digests == drawn[0].digests
