"""`hat data`: a good file becomes a tagged dataset, a bad one is refused whole, and a changed one is found out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Hat = Callable[..., Any]


def conversation(index: int) -> str:
    messages = [{"role": "user", "content": f"question {index}"}, {"role": "assistant", "content": f"answer {index}"}]
    return json.dumps({"id": f"c{index}", "messages": messages})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(conversation(index) + "\n" for index in range(40)))
    return path


def test_import_show_and_validate(hat: Hat, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out" / "room-chats"
    dry = hat("data", "import", source, "--purpose", "training", "--to", target, "--dry-run", "--output", "json")
    assert (dry.code, dry.json()["changed"]) == (0, False)
    assert not target.exists()
    made = hat("data", "import", source, "--purpose", "training", "--to", target, "--output", "json")
    assert (made.code, made.json()["metrics"]["conversations"]) == (0, 40.0)
    shown = hat("data", "show", target / "held_in", "--records", 2, "--output", "json").json()
    assert (shown["purpose"], shown["kind"], len(shown["records"])) == ("training", "conversations", 2)
    assert shown["name"].startswith("room-chats")
    assert hat("data", "validate", source).code == 0
    assert hat("data", "import", source, "--purpose", "training", "--to", target).code == 4
    assert [path.name for path in target.parent.iterdir()] == ["room-chats"]


def test_a_bad_line_refuses_all_and_leaves_nothing(hat: Hat, source: Path, tmp_path: Path) -> None:
    source.write_text(source.read_text() + "{not json\n")
    target = tmp_path / "out" / "room-chats"
    done = hat("data", "import", source, "--purpose", "training", "--to", target)
    assert (done.code, done.out) == (3, "")
    assert "chats.jsonl:41" in done.err
    assert "cure: " in done.err
    assert list(target.parent.iterdir()) == []
    assert hat("data", "validate", source).code == 3
    skipped = hat(
        "data", "import", source, "--purpose", "training", "--to", target, "--skip-bad-lines", "--output", "json"
    )
    assert skipped.json()["metrics"]["rejected_lines"] == 1.0


def test_an_edited_dataset_is_found_out(hat: Hat, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "room-chats"
    hat("data", "import", source, "--purpose", "training", "--to", target)
    file = next((target / "held_in").glob("*.jsonl"))
    file.write_text(file.read_text().replace("answer", "lie", 1))
    done = hat("data", "show", target / "held_in")
    assert done.code == 3
    assert "digest" in done.err


def test_a_purpose_is_asked_for_and_checked(hat: Hat, source: Path, tmp_path: Path) -> None:
    assert hat("data", "import", source, "--to", tmp_path / "x").code == 2
    done = hat("data", "import", source, "--purpose", "fun", "--to", tmp_path / "x")
    assert done.code == 2
    assert "purpose" in done.err


def test_erase_says_what_and_from_where(
    hat: Hat, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HATSTACK_PSEUDONYM_KEY", "a secret of more than sixteen bytes")
    rows = [json.loads(line) | {"user": f"u{index % 2}"} for index, line in enumerate(source.read_text().splitlines())]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    target = tmp_path / "chats"
    command = ("data", "import", source, "--purpose", "training", "--to", target, "--held-out", 0)
    assert hat(*command, "--keep-days", 30).code == 0
    assert "kept until 2" in hat("data", "show", target / "held_in").out
    for wrong in ((), ("--viewer", "u1", "--expired"), ("--viewer", "")):
        assert hat("data", "erase", *wrong, "--data", target).code == 2
    assert hat("data", "erase", "--viewer", "u1").code == 2
    assert hat("data", "erase", "--expired", "--mlflow", "sqlite:///x.db").code == 2
    assert hat("data", "erase", "--viewer", "u1", "--data", tmp_path / "none").code == 3
    dry = hat("data", "erase", "--viewer", "u1", "--data", target, "--dry-run", "--output", "json").json()
    assert (dry["changed"], list(dry["datasets"].values())) == (False, [20])
    monkeypatch.delenv("HATSTACK_PSEUDONYM_KEY")
    (tmp_path / "gateway").mkdir()
    (tmp_path / "gateway" / "pseudonym.key").write_bytes(b"a secret of more than sixteen bytes")
    own = ("--gateway", tmp_path / "gateway", "--dry-run", "--output", "json")
    told = hat("data", "erase", "--viewer", "u1", "--data", target, *own).json()
    assert told["datasets"] == dry["datasets"], "turns taken from a gateway are named by its key"
    monkeypatch.setenv("HATSTACK_PSEUDONYM_KEY", "a secret of more than sixteen bytes")
    gone = hat("data", "erase", "--viewer", "u1", "--data", target, "--output", "json").json()
    assert gone["datasets"] == dry["datasets"]
    assert hat("data", "show", target / "held_in", "--output", "json").json()["splits"]["held_in"]["count"] == 20
    assert hat("data", "erase", "--expired", "--data", target, "--output", "json").json()["datasets"] == {}
