"""Traces that the installed MLflow wrote are imported as conversations, under the same protection as any other log."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hat_components.data import read_records
from hat_components.importer.config import Config
from hat_components.importer.conversation import Conversation, Reader
from hat_components.importer.mlflow_traces import conversations_of, is_trace
from hat_components.importer.scrub import pseudonym
from hat_components.importer.step import ConversationsError, run
from hat_components.step import NullProgress

KEY = "a secret of more than sixteen bytes"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    maker = Path(__file__).with_name("trace_maker.py")
    made = subprocess.run([sys.executable, str(maker), str(folder)], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-3000:]
    return folder


def imported(monkeypatch: pytest.MonkeyPatch, source: Path, out: Path, **changes: Any) -> list[Conversation]:
    monkeypatch.setenv("HATSTACK_PSEUDONYM_KEY", KEY)
    config = Config.model_validate({"name": "traces", "purpose": "training", "held_out": 0.5, **changes})
    run(config, {"conversations": source}, out, NullProgress())
    return [row for half in ("held_in", "held_out") for row in read_records(out / half, Conversation)]


def test_an_agents_calls_are_one_conversation_with_its_tools(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = imported(monkeypatch, traces / "agent.json", tmp_path / "out")
    assert one.id == json.loads((traces / "agent.json").read_text())["info"]["trace_id"]
    assert [message["role"] for message in one.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert json.loads(one.messages[2]["tool_calls"][0]["function"]["arguments"]) == {"order": 7}
    assert (one.messages[3]["name"], one.messages[3]["content"]) == ("get_order", "7 shipped")
    assert [tool["function"]["name"] for tool in one.tools] == ["get_order"]


def test_viewers_are_protected_as_everywhere(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = imported(monkeypatch, traces / "agent.json", tmp_path / "out")
    assert one.viewer == pseudonym(KEY.encode(), "customer-7")
    assert one.messages[1]["content"] == f"where is order 7, says {one.viewer}"
    assert "<email>" in one.messages[-1]["content"]
    for path in (tmp_path / "out").rglob("*"):
        assert path.is_dir() or b"customer-7" not in path.read_bytes()
        assert path.is_dir() or b"session-1" not in path.read_bytes()


def test_a_streamed_answer_is_whole_and_separate_calls_stay_separate(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (streamed,) = imported(monkeypatch, traces / "stream.json", tmp_path / "stream")
    assert streamed.messages[-1]["content"].startswith("on its way, mail me at <email>")
    both = imported(monkeypatch, traces / "two.json", tmp_path / "two")
    assert sorted(one.messages[0]["content"] for one in both) == ["first", "second"]
    assert len({one.id for one in both}) == 2


def test_a_table_of_traces_holds_the_same_conversations(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = imported(monkeypatch, traces / "table.jsonl", tmp_path / "table")
    assert len(rows) == 4
    (agent,) = imported(monkeypatch, traces / "agent.json", tmp_path / "agent")
    assert agent in rows


def test_a_call_without_an_answer_is_told(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConversationsError) as caught:
        imported(monkeypatch, traces / "broken.json", tmp_path / "out")
    assert "broken.json:1: the span 'Completions' has no answer" in str(caught.value)


def test_traces_of_one_session_stay_on_one_side(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = json.loads((traces / "agent.json").read_text())
    lines = []
    for number in range(24):
        info = {**whole["info"], "trace_id": f"tr-{number}"}
        info["trace_metadata"] = {**info["trace_metadata"], "mlflow.trace.session": f"s{number % 2}"}
        lines.append(json.dumps({**whole, "info": info}))
    source = tmp_path / "many.jsonl"
    source.write_text("\n".join(lines))
    imported(monkeypatch, source, tmp_path / "out")
    sides = {}
    for half in ("held_in", "held_out"):
        for row in read_records(tmp_path / "out" / half, Conversation):
            sides.setdefault(int(row.id[3:]) % 2, set()).add(half)
    assert all(len(found) == 1 for found in sides.values())


def older() -> dict[str, Any]:
    """A trace of schema 2: spans with a context, attributes as JSON, the chat in `mlflow.chat.messages`."""
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    attributes = {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.chat.messages": json.dumps(messages)}
    span = {"name": "chat", "context": {"span_id": "0x1"}, "parent_id": None, "start_time": 1, "attributes": attributes}
    return {"info": {"request_id": "r1", "request_metadata": {"mlflow.trace.user": "u"}}, "data": {"spans": [span]}}


def test_older_traces_are_read_too() -> None:
    found, problems = conversations_of(older())
    assert not problems
    assert (found[0]["id"], found[0]["user"], len(found[0]["messages"])) == ("r1", "u", 2)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"data": {"spans": []}}, "without a chat span"),
        ({"data": {"spans": 3}}, "no list of objects"),
        ({"spans": [{"attributes": {"mlflow.spanType": '"TOOL"'}}]}, "without a chat span"),
        ({"trace": "{", "trace_id": "t", "spans": [1]}, "no list of objects"),
        (
            {"data": {"spans": [{"attributes": {"mlflow.spanType": '"LLM"', "mlflow.chat.messages": '["x"]'}}]}},
            "object",
        ),
    ],
)
def test_what_is_no_chat_is_refused_with_its_reason(raw: dict[str, Any], problem: str) -> None:
    assert is_trace(raw)
    problems = [text for _, found in Reader().read(json.dumps(raw).encode()) for text in found]
    assert any(problem in text for text in problems), problems


def test_a_conversation_is_never_taken_for_a_trace() -> None:
    assert not is_trace({"messages": [], "spans": []})
    assert not is_trace({"id": "x"})
    assert not is_trace([])
