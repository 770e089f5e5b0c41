"""Erasing a viewer removes the viewer's conversations and what was made of them, and nothing of anyone else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hat_components.augment.config import Config as AugmentConfig
from hat_components.augment.step import run as augment
from hat_components.data import Trajectory, load_manifest, read_records
from hat_components.importer.config import Config
from hat_components.importer.conversation import Conversation
from hat_components.importer.erase import erase_viewer
from hat_components.importer.step import run
from hat_components.step import InputError, NullProgress

KEY = b"a secret of more than sixteen bytes"


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with imported conversations of five viewers and trajectories made of one half of them."""
    monkeypatch.setenv("HATSTACK_PSEUDONYM_KEY", KEY.decode())
    tool = {"function": {"name": "get_order", "parameters": {"type": "object", "properties": {}}}}
    lines = []
    for index in range(20):
        made = [{"id": "c", "function": {"name": "get_order", "arguments": "{}"}}]
        messages = [
            {"role": "user", "content": f"where is it {index}"},
            {"role": "assistant", "tool_calls": made},
            {"role": "tool", "tool_call_id": "c", "content": "sent"},
            {"role": "assistant", "content": "sent"},
        ]
        lines.append(json.dumps({"id": f"c{index}", "user": f"u{index % 5}", "tools": [tool], "messages": messages}))
    (tmp_path / "chats.jsonl").write_text("\n".join(lines))
    config = Config(name="chats", purpose="training", held_out=0.3)
    run(config, {"conversations": tmp_path / "chats.jsonl"}, tmp_path / "stores", NullProgress())
    augment(AugmentConfig(), {"conversations": tmp_path / "stores" / "held_in"}, tmp_path / "stores", NullProgress())
    return tmp_path / "stores"


def conversations(stores: Path) -> set[str]:
    return {row.id for half in ("held_in", "held_out") for row in read_records(stores / half, Conversation)}


def test_only_the_viewers_records_go_and_digests_stay_true(stores: Path) -> None:
    before = load_manifest(stores / "held_in").digest
    tried = erase_viewer(stores, "u3", KEY, dry_run=True)
    assert len(conversations(stores)) == 20
    done = erase_viewer(stores, "u3", KEY)
    assert done.records == tried.records
    left = conversations(stores)
    assert {f"c{index}" for index in range(20)} - left == {"c3", "c8", "c13", "c18"}
    assert {row.item for row in read_records(stores / "trajectories", Trajectory)} <= left
    assert load_manifest(stores / "held_in").digest != before or "c3" not in tried.ids
    assert erase_viewer(stores, "u3", KEY).records == {}


def test_another_key_or_viewer_erases_nothing(stores: Path) -> None:
    assert erase_viewer(stores, "u3", b"quite another secret").records == {}
    assert erase_viewer(stores, "u9", KEY).records == {}
    assert len(conversations(stores)) == 20


def test_a_dataset_that_was_tampered_with_is_not_rewritten(stores: Path) -> None:
    path = stores / "held_in" / "held_in.jsonl"
    path.write_text(path.read_text().replace("where", "WHERE", 1))
    with pytest.raises(InputError, match="digest"):
        erase_viewer(stores, "u3", KEY)
    assert "WHERE" in path.read_text()
    assert not list(stores.glob(".*"))
