"""Imported conversations are valid, scrubbed, tagged and split, or nothing is imported and every reason is said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from hat_components.data import load_manifest, read_records
from hat_components.importer.config import Config
from hat_components.importer.conversation import Conversation, Reader
from hat_components.importer.scrub import Scrubber, pseudonym
from hat_components.importer.step import ConversationsError, half_of, run
from hat_components.step import InputError, NullProgress, StepResult

KEY = "a secret of more than sixteen bytes"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_order",
        "description": "look up an order",
        "parameters": {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]},
    },
}


def conversation(index: int = 0, **changes: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "get_order", "arguments": json.dumps({"order": "A1"})}}
    return {
        "id": f"conv-{index}",
        "user": f"viewer{index}@example.com",
        "tools": [TOOL],
        "messages": [
            {"role": "system", "content": "You host a live room."},
            {"role": "user", "content": f"where is my order, {index}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "sent"},
            {"role": "assistant", "content": "It was sent."},
        ],
        **changes,
    }


def import_(tmp_path: Path, rows: list[Any], **changes: Any) -> StepResult:
    source = tmp_path / "chats.jsonl"
    source.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    config = Config.model_validate({"name": "chats", "purpose": "training", "held_out": 0.3, **changes})
    return run(config, {"conversations": source}, tmp_path / "out", NullProgress())


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HATSTACK_PSEUDONYM_KEY", KEY)


def both(out: Path) -> list[Conversation]:
    return [row for half in ("held_in", "held_out") for row in read_records(out / half, Conversation)]


def test_conversations_are_split_tagged_and_kept_whole(tmp_path: Path) -> None:
    result = import_(tmp_path, [conversation(i) for i in range(60)])
    held_in, held_out = (load_manifest(tmp_path / "out" / half) for half in ("held_in", "held_out"))
    assert held_in.count + held_out.count == 60
    assert 5 < held_out.count < 35
    assert held_in.purpose == held_out.purpose == "training"
    assert result.digests == {"held_in": held_in.digest, "held_out": held_out.digest}
    first = both(tmp_path / "out")[0]
    assert first.messages[2]["tool_calls"][0]["function"]["arguments"] == '{"order": "A1"}'
    assert first.messages[3]["name"] == "get_order"


def test_no_viewer_id_is_in_any_output(tmp_path: Path) -> None:
    rows = [conversation(i, user=f"raw-viewer-{i}") for i in range(8)]
    rows[3]["messages"][1]["content"] = "我是raw-viewer-3啊, call me on 138 1234 5678 or write to me@mail.example.cn"
    import_(tmp_path, rows)
    written = "".join(path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert "raw-viewer" not in written
    assert "1234 5678" not in written
    assert "me@mail" not in written
    aliases = {row.viewer for row in both(tmp_path / "out")}
    assert aliases == {pseudonym(KEY.encode(), f"raw-viewer-{i}") for i in range(8)}


def test_without_a_key_viewers_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HATSTACK_PSEUDONYM_KEY")
    with pytest.raises(InputError, match="no key"):
        import_(tmp_path, [conversation()])
    short = tmp_path / "key"
    short.write_text("short")
    with pytest.raises(InputError, match="shorter than 16"):
        import_(tmp_path, [conversation()], key_file=str(short))
    import_(tmp_path, [conversation(user=None)])


def test_purpose_has_no_default() -> None:
    with pytest.raises(ValidationError, match="purpose"):
        Config.model_validate({"name": "chats"})


def broken(**changes: Any) -> list[tuple[Any, str]]:
    call = {"id": "c9", "function": {"name": "no_such_tool", "arguments": "{}"}}
    user = {"role": "user", "content": "x"}
    said = {"role": "assistant", "content": "y"}

    def calling(arguments: Any) -> list[dict[str, Any]]:
        made = {"id": "c1", "function": {"name": "get_order", "arguments": arguments}}
        return [user, {"role": "assistant", "tool_calls": [made]}]

    return [
        ("{", "not JSON"),
        ("[1]", "a list"),
        ('{"messages": [{"role": "user", "content": NaN}]}', "NaN"),
        ("[" * 30_000, "JSON|nested"),
        (conversation(messages=[]), "one message or more"),
        (conversation(messages=[user]), "no assistant message"),
        (conversation(messages=[user, {"role": "bot", "content": "x"}]), "unknown role 'bot'"),
        (conversation(messages=[user, {"role": "assistant", "tool_calls": [call]}]), "not among the tools"),
        (conversation(messages=calling("{oops")), "arguments are not JSON"),
        (conversation(messages=calling("[]")), "arguments are an object"),
        (conversation(messages=calling("{}")), "required is broken"),
        (conversation(messages=[*calling('{"order": "1"}'), said]), "has no answer"),
        (conversation(messages=[user, {"role": "tool", "tool_call_id": "c1", "content": ""}, said]), "not open"),
        (conversation(messages=[user, {"role": "assistant", "content": ""}]), "has neither"),
        (conversation(messages=[{"role": "user", "content": [{"type": "image_url"}]}, said]), "content is text"),
        (conversation(tools=[TOOL, TOOL]), "used twice"),
        (conversation(tools=[{"type": "function", "function": {"name": "a b"}}]), "name that OpenAI and MCP"),
        (
            conversation(tools=[{"function": {"name": "f", "parameters": {"type": "objekt"}}}], messages=[user, said]),
            "not JSON Schema",
        ),
    ]


@pytest.mark.parametrize(("row", "reason"), broken())
def test_each_kind_of_bad_line_is_refused_with_its_reason(tmp_path: Path, row: Any, reason: str) -> None:
    with pytest.raises(ConversationsError, match=f"chats.jsonl:2: .*({reason})"):
        import_(tmp_path, [conversation(), row])
    assert not (tmp_path / "out" / "held_in").exists()


def test_all_bad_lines_are_reported_and_the_list_is_bounded(tmp_path: Path) -> None:
    rows = [conversation(0), *["{" for _ in range(30)], conversation(1)]
    with pytest.raises(ConversationsError) as caught:
        import_(tmp_path, rows, max_problems=10)
    assert caught.value.total == 30
    assert [problem.split(":")[1] for problem in caught.value.problems] == [str(n) for n in range(2, 12)]
    assert "and 20 more" in str(caught.value)


def test_bad_lines_can_be_left_out_and_are_listed(tmp_path: Path) -> None:
    result = import_(tmp_path, [conversation(0), "{", conversation(1)], on_error="skip")
    assert result.metrics["rejected_lines"] == 1
    assert "chats.jsonl:2" in (tmp_path / "out" / "rejected.jsonl").read_text()
    assert len(both(tmp_path / "out")) == 2


def test_a_line_too_long_is_a_problem_of_that_line(tmp_path: Path) -> None:
    rows = [conversation(0), conversation(1, extra="x" * 5000), conversation(2)]
    result = import_(tmp_path, rows, on_error="skip", max_line_bytes=2048)
    assert result.metrics == {**result.metrics, "conversations": 2.0, "rejected_lines": 1.0}


def test_gzip_and_folders_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with gzip.open(folder / "a.jsonl.gz", "wt") as stream:
        stream.write(json.dumps(conversation(1)) + "\n")
    (folder / "b.jsonl").write_text("\n" + json.dumps(conversation(2)) + "\n")
    config = Config(name="logs", purpose="evaluation")
    run(config, {"conversations": folder}, tmp_path / "out", NullProgress())
    assert {row.id for row in both(tmp_path / "out")} == {"conv-1", "conv-2"}


def test_nothing_to_import_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no conversation"):
        import_(tmp_path, [""])


def test_remote_schemas_are_never_fetched() -> None:
    tool = {"function": {"name": "f", "parameters": {"$ref": "http://127.0.0.1:9/schema.json"}}}
    made = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    row = conversation(
        tools=[tool], messages=[{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [made]}]
    )
    _, problems = Reader().parse(json.dumps(row).encode())
    assert any("never fetched" in problem for problem in problems)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("write to li.wei+live@shop.example.com today", "write to <email> today"),
        ("13812345678", "<phone>"),
        ("邮箱me@mail.example.cn吧", "邮箱<email>吧"),
        ("电话13812345678，谢谢", "电话<phone>，谢谢"),
        ("+44 20 7946 0958 is my number", "<phone> is my number"),
        ("call (020) 7946 0958", "call <phone>"),
        ("id 11010519491231002X", "id <id>"),
        ("order 6217000012345678", "order <id>"),
        ("from 1999-2999 yuan", "from 1999-2999 yuan"),
        ("sizes 100 110 120 130", "sizes 100 110 120 130"),
        ("on 2026-01-02 14:05", "on 2026-01-02 14:05"),
        ("the S24 with 12345678 fans", "the S24 with 12345678 fans"),
        ("price 1234.56", "price 1234.56"),
        ("sizes +5 10 20", "sizes +5 10 20"),
        ("+1 (555) 010-9999", "<phone>"),
    ],
)
def test_scrubbing_takes_people_out_and_leaves_goods_in(text: str, clean: str) -> None:
    assert Scrubber().text(text) == clean


def test_numbers_as_arguments_are_scrubbed_too() -> None:
    assert Scrubber().value({"phone": 13812345678, "n": 3, "ok": True, "to": ["a@b.example"]}) == {
        "phone": 0,
        "n": 3,
        "ok": True,
        "to": ["<email>"],
    }


@given(st.text(alphabet="0123456789 -+()@.aé例", max_size=40))
@settings(max_examples=200, deadline=None)
def test_scrubbing_twice_changes_nothing_more(text: str) -> None:
    once = Scrubber().text(text)
    assert Scrubber().text(once) == once


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_give_a_record_or_problems(line: bytes) -> None:
    record, problems = Reader().parse(line)
    assert problems or record["messages"]


def test_an_id_falls_on_the_same_side_whatever_else_is_imported() -> None:
    sides = [half_of(f"id{i}", 0.2) for i in range(2000)]
    assert 300 < sides.count("held_out") < 500
    assert sides == [half_of(f"id{i}", 0.2) for i in range(2000)]
    assert all(half_of(f"id{i}", 0.5) == "held_out" for i, side in enumerate(sides) if side == "held_out")
