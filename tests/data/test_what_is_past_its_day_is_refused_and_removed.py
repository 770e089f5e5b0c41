"""Each store keeps what people said for a time that somebody chose, and not longer."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from hat_components import data
from hat_components.augment.config import Config as AugmentConfig
from hat_components.augment.step import run as augment
from hat_components.importer.config import Config
from hat_components.importer.erase import erase_expired
from hat_components.importer.step import run
from hat_components.step import InputError, NullProgress
from hat_registry import clock
from hat_registry.store.database import Database
from hat_serving.errors import ServingError
from hat_serving.gateway.conversations import Conversations, Stored
from hat_serving.gateway.retention import Retention, expire, keeping
from tests.data.test_import_protects_viewers_and_reports_every_bad_line import conversation


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two imports, of 10 and 100 days, and trajectories made of the first."""
    monkeypatch.setenv("HATSTACK_PSEUDONYM_KEY", "a secret of more than sixteen bytes")
    monkeypatch.setattr(data, "today", lambda: date(2026, 5, 1))
    source = tmp_path / "chats.jsonl"
    source.write_text("".join(json.dumps(conversation(index)) + "\n" for index in range(12)))
    for name, days in (("short", 10), ("long", 100)):
        monkeypatch.setattr("hat_components.importer.step.today", lambda: date(2026, 5, 1))
        config = Config.model_validate({"name": name, "purpose": "training", "held_out": 0.3, "keep_days": days})
        run(config, {"conversations": source}, tmp_path / name, NullProgress())
    augment(AugmentConfig(), {"conversations": tmp_path / "short" / "held_in"}, tmp_path / "made", NullProgress())
    return tmp_path


def on(monkeypatch: pytest.MonkeyPatch, day: date) -> None:
    monkeypatch.setattr(data, "today", lambda: day)


def test_a_dataset_says_its_day_and_what_is_made_of_it_inherits_it(stores: Path) -> None:
    days = [data.load_manifest(stores / path).facts[data.KEEP_UNTIL] for path in ("short/held_in", "long/held_out")]
    assert days == ["2026-05-11", "2026-08-09"]
    assert data.load_manifest(stores / "made" / "trajectories").facts[data.KEEP_UNTIL] == "2026-05-11"


def test_steps_refuse_a_dataset_from_the_day_after(stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = {"x": stores / "short" / "held_in"}
    on(monkeypatch, date(2026, 5, 11))
    assert data.require(inputs, "x", kind="conversations")[1].count
    on(monkeypatch, date(2026, 5, 12))
    with pytest.raises(InputError, match="kept until 2026-05-11"):
        data.require(inputs, "x", kind="conversations")
    with pytest.raises(InputError, match="kept until"):
        augment(AugmentConfig(), {"conversations": inputs["x"]}, stores / "again", NullProgress())


def test_only_what_is_past_its_day_is_removed_whole(stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, date(2026, 5, 12))
    told = erase_expired(stores, dry_run=True)
    assert (stores / "short" / "held_in").exists()
    gone = erase_expired(stores)
    assert gone.records == told.records
    assert set(gone.records) == {
        str(stores / path) for path in ("short/held_in", "short/held_out", "made/trajectories")
    }
    assert not any((stores / "short").iterdir())
    assert data.load_manifest(stores / "long" / "held_in").count
    assert erase_expired(stores).records == {}


def test_retention_is_bounded_and_has_a_default() -> None:
    assert Config.model_validate({"name": "a", "purpose": "training"}).keep_days == 365
    for days in (0, -1, 10_000):
        with pytest.raises(ValidationError):
            Config.model_validate({"name": "a", "purpose": "training", "keep_days": days})
        with pytest.raises(ServingError):
            Retention(conversations_days=days)


NOW = datetime(2026, 5, 30, 12, tzinfo=UTC)


def gateway(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Conversations 0 to 3 of 0, 20, 40 and 60 days ago, and trace files beside them."""
    store = Database(f"sqlite:///{folder / 'gateway.db'}")
    conversations = Conversations(store)
    (folder / "traces").mkdir()
    for number in range(4):
        then = NOW - timedelta(days=20 * number)
        monkeypatch.setattr(clock, "now", lambda then=then: then)
        head = Stored(f"c{number}", "unit", "a", "r", "h", {}, 0)
        conversations.append(head, [(0.0, "ViewerMessage", {"texts": ["hi"]})])
        (folder / "traces" / f"{then:%Y-%m-%d}.jsonl").write_text("{}\n")
    (folder / "traces" / "notes.jsonl").write_text("mine\n")
    store.close()
    monkeypatch.setattr(clock, "now", lambda: NOW)
    return folder


def left(folder: Path) -> tuple[list[bool], list[str]]:
    store = Database(f"sqlite:///{folder / 'gateway.db'}")
    found = [Conversations(store).find(f"c{number}") is not None for number in range(4)]
    store.close()
    return found, sorted(path.name for path in (folder / "traces").iterdir())


def test_a_gateways_stores_are_kept_by_their_own_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = gateway(tmp_path, monkeypatch)
    before = left(folder)
    keep = Retention(conversations_days=30, traces_days=50)
    told = expire(folder, keep, dry_run=True)
    assert left(folder) == before
    gone = expire(folder, keep)
    assert (gone, gone.conversations, len(gone.traces)) == (told, 2, 1)
    assert left(folder) == (
        [True, True, False, False],
        ["2026-04-20.jsonl", "2026-05-10.jsonl", "2026-05-30.jsonl", "notes.jsonl"],
    )


def test_a_running_gateway_removes_by_itself_and_writes_its_rule_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    folder = gateway(tmp_path, monkeypatch)

    async def main() -> None:
        async with keeping(folder, Retention(25, 30)):
            while left(folder)[0][2]:
                await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert Retention.of(folder) == Retention(25, 30)
    assert Retention.of(tmp_path / "other") == Retention()
    (folder / "retention.json").write_text('{"years": 1}')
    with pytest.raises(ServingError, match="cannot be read"):
        Retention.of(folder)
