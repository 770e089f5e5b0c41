"""Training conversations of the two arms answer the same items within the same budget, and only perfect ones are kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hat_components.augment.config import Config
from hat_components.augment.step import run
from hat_components.data import DatasetWriter, Trajectory, load_manifest, read_items, read_records
from hat_components.evaluate.config import Config as EvaluateConfig
from hat_components.evaluate.result import load_evaluation
from hat_components.evaluate.step import run as evaluate_run
from hat_components.importer.config import Config as ImportConfig
from hat_components.importer.step import run as import_run
from hat_components.step import InputError, NullProgress, StepResult


def augment(out: Path, drawn: Path, harness: Path, **config: Any) -> StepResult:
    inputs = {"items": drawn / "items_train", "harness": harness}
    return run(Config.model_validate(config), inputs, out, NullProgress())


def arms(out: Path) -> dict[str, list[Trajectory]]:
    return {arm: list(read_records(out / "trajectories", Trajectory, arm)) for arm in ("naive", "hsa")}


def test_both_arms_answer_the_same_items_within_the_same_budget(tmp_path: Path, drawn: Path, harness: Path) -> None:
    result = augment(tmp_path, drawn, harness)
    found = arms(tmp_path)
    naive, hsa = ({row.item for row in rows} for rows in found.values())
    assert len(naive & hsa) >= 14
    sizes = [sum(row.size for row in rows) for rows in found.values()]
    assert max(sizes) - min(sizes) <= max(row.size for rows in found.values() for row in rows)
    assert max(sizes) <= result.notes["budget"]
    assert {row.score for rows in found.values() for row in rows} == {1.0}
    assert len({row.harness for row in found["naive"]}) == 1
    assert len({row.harness for row in found["hsa"]}) > 5
    assert {row.operators for row in found["naive"]} == {()}
    manifest = load_manifest(tmp_path / "trajectories")
    assert manifest.purpose == "training"
    assert set(manifest.sources) == {"items", "harness"}


def test_conversations_are_what_a_model_can_learn_from(tmp_path: Path, drawn: Path, harness: Path) -> None:
    augment(tmp_path, drawn, harness)
    for rows in arms(tmp_path).values():
        for row in rows:
            roles = [message["role"] for message in row.messages]
            assert roles[:2] == ["system", "user"]
            assert roles[-1] == "assistant"
            calls = [call for message in row.messages for call in message.get("tool_calls", ())]
            answers = [message for message in row.messages if message["role"] == "tool"]
            assert [call["id"] for call in calls] == [message["tool_call_id"] for message in answers]
            assert all(isinstance(call["function"]["arguments"], str) for call in calls)


def test_the_same_config_gives_the_same_bytes_whatever_the_batch(tmp_path: Path, drawn: Path, harness: Path) -> None:
    first = augment(tmp_path / "a", drawn, harness).digests
    assert augment(tmp_path / "b", drawn, harness, batch=3).digests == first
    assert augment(tmp_path / "c", drawn, harness, seed=2).digests != first


def test_a_held_out_family_is_in_no_training_conversation(tmp_path: Path, drawn: Path, harness: Path) -> None:
    augment(tmp_path / "a", drawn, harness)
    augment(tmp_path / "b", drawn, harness, held_out=["tool_name"])
    assert any("tool_name" in row.operators for row in arms(tmp_path / "a")["hsa"])
    assert not any("tool_name" in row.operators for row in arms(tmp_path / "b")["hsa"])


def test_a_budget_bounds_both_arms(tmp_path: Path, drawn: Path, harness: Path) -> None:
    result = augment(tmp_path, drawn, harness, budget=4000)
    assert 2000 < result.metrics["size_naive"] <= 4000
    assert 2000 < result.metrics["size_hsa"] <= 4000
    with pytest.raises(InputError, match="no conversation"):
        augment(tmp_path / "none", drawn, harness, budget=10)
    assert not (tmp_path / "none" / "trajectories").exists()


def test_a_harness_that_the_expert_cannot_work_under_is_told(tmp_path: Path, drawn: Path, harness: Path) -> None:
    copy = tmp_path / "harness"
    shutil.copytree(harness, copy)
    config = copy / "harness.yaml"
    config.write_text(config.read_text().replace("model_calls: 8", "model_calls: 2"))
    with pytest.raises(InputError, match=r"expert reached the gold outcome in .* causes: .*missing_call"):
        augment(tmp_path / "out", drawn, copy)
    assert not (tmp_path / "out" / "trajectories").exists()


def test_wrong_inputs_are_refused(tmp_path: Path, drawn: Path, harness: Path) -> None:
    copy = tmp_path / "harness"
    shutil.copytree(harness, copy)
    (copy / "prompts" / "rules.md").write_text("---\nsection: no such section\n---\n")
    with pytest.raises(InputError, match=r"rules\.md"):
        augment(tmp_path / "out", drawn, copy)
    with pytest.raises(InputError, match="tagged for evaluation"):
        run(Config(), {"items": drawn / "items_dev", "harness": harness}, tmp_path / "out", NullProgress())
    with pytest.raises(InputError, match="'harness' was not given"):
        run(Config(), {"items": drawn / "items_train"}, tmp_path / "out", NullProgress())
    assert not (tmp_path / "out" / "trajectories").exists()


def test_items_that_were_trained_on_are_not_evaluated(tmp_path: Path, drawn: Path, harness: Path) -> None:
    augment(tmp_path, drawn, harness)
    config = EvaluateConfig(policy="expert", suites=("t1",), draws=100)
    inputs = {"items": drawn / "items_dev", "harness": harness, "trained_on": tmp_path / "trajectories"}
    evaluate_run(config, inputs, tmp_path / "out", NullProgress())
    with DatasetWriter(tmp_path / "leaked", kind="trajectories", splits=["naive"]) as writer:
        row = arms(tmp_path)["naive"][0]
        writer.write("naive", row.model_copy(update={"item": read_items(drawn / "items_dev")[3].id}))
        writer.finish(name="leaked", purpose="training")
    with pytest.raises(InputError, match="was trained on"):
        evaluate_run(config, {**inputs, "trained_on": tmp_path / "leaked"}, tmp_path / "out", NullProgress())


def imported(tmp_path: Path, purpose: str = "training", count: int = 30) -> Path:
    parameters = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
    tool = {"function": {"name": "get_order", "description": "look up an order", "parameters": parameters}}
    lines = []
    for index in range(count):
        function = {"name": "get_order", "arguments": json.dumps({"order_id": f"A{index}"})}
        messages = [
            {"role": "system", "content": "You help. Call get_order when asked for an order."},
            {"role": "user", "content": f"where is order A{index}"},
            {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "c1", "content": "sent"},
            {"role": "assistant", "content": "It was sent."},
        ]
        lines.append(json.dumps({"id": f"c{index}", "tools": [tool], "messages": messages}))
    (tmp_path / "chats.jsonl").write_text("\n".join(lines))
    config = ImportConfig.model_validate({"name": "chats", "purpose": purpose, "held_out": 0.3})
    import_run(config, {"conversations": tmp_path / "chats.jsonl"}, tmp_path / "imported", NullProgress())
    return tmp_path / "imported"


def test_imported_conversations_become_both_arms_with_the_tools_they_bring(tmp_path: Path) -> None:
    folder = imported(tmp_path)
    run(Config(), {"conversations": folder / "held_in"}, tmp_path / "out", NullProgress())
    found = arms(tmp_path / "out")
    assert {row.item for row in found["hsa"]} <= {row.item for row in found["naive"]}
    names = {row.tools[0]["function"]["name"] for row in found["hsa"]}
    assert "get_order" in names
    assert len(names) > 5
    for row in found["hsa"]:
        called = row.messages[2]["tool_calls"][0]["function"]
        tools = {tool["function"]["name"]: tool["function"] for tool in row.tools}
        assert set(json.loads(called["arguments"])) <= set(tools[called["name"]]["parameters"]["properties"])
        assert called["name"] in row.messages[0]["content"]


def test_imports_for_another_purpose_are_not_trained_on(tmp_path: Path) -> None:
    folder = imported(tmp_path, purpose="evaluation", count=3)
    with pytest.raises(InputError, match="tagged for evaluation"):
        run(Config(), {"conversations": folder / "held_in"}, tmp_path / "out", NullProgress())


def test_the_held_out_half_is_scored_as_it_is_and_with_its_tools_rewritten(tmp_path: Path, micro: Path) -> None:
    folder = imported(tmp_path)
    config = EvaluateConfig.model_validate({"suites": ["calls", "calls-t2"], "draws": 100, "answer_tokens": 8})
    inputs = {"model": micro, "held_out": folder / "held_out"}
    evaluate_run(config, inputs, tmp_path / "out", NullProgress())
    plain, moved = load_evaluation(tmp_path / "out").suites
    assert plain.n == moved.n > 3
    assert set(plain.values("exact")) == set(moved.values("exact"))
    assert {turn.intent for item in plain.items for turn in item.turns} == {"get_order"}
    assert len({turn.intent for item in moved.items for turn in item.turns}) > 2
    with pytest.raises(InputError, match="not the held-out half"):
        evaluate_run(config, {**inputs, "held_out": folder / "held_in"}, tmp_path / "out", NullProgress())
