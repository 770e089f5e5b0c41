"""Published schemas are those of the models, traces export to other tools, and the core imports light."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from hat_harness import events as ev
from hat_harness.codec import ACTIONS, EVENTS, decode, encode
from hat_harness.drive import run_batch
from hat_harness.errors import ReplayError
from hat_harness.export import to_openai, to_spans
from hat_harness.schemas import OWN, file_name, regenerate, schema_text, schemas
from hat_harness.spec import Layout
from hat_harness.trace import Trace
from tests.harness.kit import GATE, Scripted, Shop, ask, output, session, small

GOLDEN = Path(__file__).parent / "golden"


def _trace() -> Trace:
    steps = [
        lambda c: output(
            c, "", ask("get_item", "a", item="mug"), reasoning="look", prompt_tokens=9, completion_tokens=4
        ),
        lambda c: ev.Failure("call", "server", c.call_id),
        lambda c: output(c, "it is 39 bye", token_ids=(1, 2), logprobs=(-0.5, 0.0)),
    ]
    one = session(small(hooks=(GATE,), layout=Layout(tools="both")))
    run_batch([(one, [ev.ViewerMessage(("how much",))])], Scripted(*steps), Shop())
    return one.trace


def test_schemas_are_those_of_the_models(repository: Path) -> None:
    for name, schema in schemas().items():
        Draft202012Validator.check_schema(schema)
        for folder in (GOLDEN, repository / "docs" / "schemas"):
            assert (folder / file_name(name)).read_text(encoding="utf-8") == schema_text(schema), (
                f"run regenerate for {name}"
            )


def test_harnesses_and_traces_are_what_their_schemas_say(tmp_path: Path) -> None:
    found = schemas()
    harness, trace = small(hooks=(GATE,)), _trace()
    assert (
        list(Draft202012Validator(found["hatstack.harness/1"]).iter_errors(json.loads(harness.model_dump_json()))) == []
    )
    assert list(Draft202012Validator(found["hatstack.trace/1"]).iter_errors(json.loads(trace.model_dump_json()))) == []
    for entry in trace.entries:
        if entry.kind in ("event", "action") and entry.type != "CallModel":
            part = {"$ref": f"#/$defs/{entry.kind.title()}.{entry.type}", "$defs": found["hatstack.trace/1"]["$defs"]}
            assert list(Draft202012Validator(part).iter_errors(json.loads(json.dumps(entry.data)))) == []
    written = regenerate([tmp_path], {"hatstack.mine/1": Trace})
    assert [path.name for path in written] == [file_name(name) for name in sorted([*OWN, "hatstack.mine/1"])]


SAMPLES = [
    ev.ViewerMessage(("a", "b"), ("v",)),
    ev.RoomEvent("state", {"a": 1}, {"b": [1]}),
    ev.ModelDelta("m", "x"),
    ev.ModelOutput("m", "x", "r", (ev.ToolCall("i", "n", {"a": 1}, "e"),), "length", (1,), (-0.5,), 3, 4),
    ev.ToolResult("c", "x", "timeout"),
    ev.Failure("call", "server", "c", "d"),
    ev.Tick(1.0),
    ev.Cancel("x"),
    ev.CallModel(
        "m",
        0,
        (ev.Message("user", "x"), ev.Message("assistant", tool_calls=(ev.ToolCall("i", "n", {}),))),
        0,
        ({"a": 1},),
        5,
    ),
    ev.CallTools((ev.ToolRequest("c", "n", {"a": 1}, "k", 2.0),)),
    ev.Emit("x"),
    ev.Wait(1.0),
    ev.Reply("x", True),
    ev.Refuse("x", "h"),
    ev.Silence("r"),
    ev.Restart(1, "r"),
    ev.Done(),
]


@pytest.mark.parametrize("record", SAMPLES, ids=[type(record).__name__ for record in SAMPLES])
def test_records_read_back_from_json(record: object) -> None:
    assert decode(type(record).__name__, json.loads(json.dumps(encode(record)))) == record


def test_every_record_has_a_sample_and_wrong_ones_are_told() -> None:
    assert {type(record) for record in SAMPLES} == {*EVENTS, *ACTIONS}
    with pytest.raises(ReplayError, match="unknown record type"):
        decode("Nope", {})
    with pytest.raises(ReplayError, match="wrong fields"):
        decode("Tick", {"then": 1})


def test_openai_lines_hold_every_segment() -> None:
    (line,) = to_openai(_trace()).splitlines()
    conversation = json.loads(line)
    roles = [message["role"] for message in conversation["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    call = conversation["messages"][2]
    assert call["reasoning_content"] == "look"
    assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"item": "mug"}
    assert conversation["messages"][3]["tool_call_id"] == call["tool_calls"][0]["id"] == "a"
    assert [tool["function"]["name"] for tool in conversation["tools"]] == ["use_skill", "get_item", "order"]
    assert "reasoning_content" not in to_openai(_trace(), reasoning=False)


def test_spans_follow_the_conventions_and_hide_texts_unless_asked() -> None:
    spans = to_spans(_trace())
    assert [span["name"] for span in spans] == [
        "invoke_agent small",
        "chat primary",
        "execute_tool get_item",
        "chat primary",
        "chat primary",
    ]
    turn, first, tool, failed, last = spans
    assert {span["parent_id"] for span in spans[1:]} == {turn["span_id"]}
    assert len({span["span_id"] for span in spans}) == 5
    assert (len(turn["trace_id"]), len(turn["span_id"])) == (32, 16)
    assert (first["attributes"]["gen_ai.usage.input_tokens"], tool["attributes"]["gen_ai.tool.call.id"]) == (9, "a")
    assert (failed["status"], failed["attributes"]["error.type"]) == ("ERROR", "server")
    assert last["start_ns"] == 250_000_000 == turn["end_ns"]
    assert "39" not in json.dumps(spans)
    assert "it is 39 bye" in json.dumps(to_spans(_trace(), contents=True))
    assert to_spans(_trace()) == spans


def test_the_session_imports_nothing_heavy() -> None:
    code = (
        "import sys; import hat_harness.session, hat_harness.drive, hat_harness.render, hat_harness.digest;"
        "heavy = {'torch', 'transformers', 'jsonschema', 'yaml', 'cel_expr_python', 'numpy', 'httpx', 'jinja2'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"
