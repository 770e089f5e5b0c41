"""Conversations with tools of their own: rewritten without a harness, restored exactly, canonical calls the same."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings

from hat_components.bfcl import Half, data_folder, fits, half_of, json_schema, line, load_sample, sample
from hat_harness.augment import trained_plan
from hat_harness.augment.conversation import (
    KEY,
    augment_conversation,
    canonical_conversation_call,
    restore_conversation,
)
from hat_harness.augment.operators import (
    AnyOperator,
    DistractorTool,
    ParameterName,
    ParameterOrder,
    ParameterType,
    ToolDescription,
    ToolName,
    ToolOrder,
)
from hat_harness.canonical import CallError, CanonicalCall, canonical_call
from hat_harness.errors import AugmentError
from hat_harness.spec import NAME_PATTERN
from tests.augmentation.strategies import HELD_OUT, NAME_MODES, TRAINED, operators, seeds, sessions

FAMILIES = ("tool_name", "parameter_name", "parameter_type", "tool_order", "parameter_order", "distractor_tool")


def everything(seed: int) -> list[AnyOperator]:
    rng = Random(seed)
    return [
        ToolName(modes={rng.choice(NAME_MODES): 1.0}),
        ParameterName(modes={rng.choice(NAME_MODES): 1.0}),
        ParameterType(share=0.7),
        ToolOrder(),
        ParameterOrder(),
        ToolDescription(),
        DistractorTool(counts=(0, 1, 2)),
    ]


def parsed(conversation: dict[str, Any]) -> dict[str, Any]:
    """The conversation with calls as objects, in messages and in fenced blocks: groups do not keep the order of keys."""
    made = json.loads(json.dumps(conversation))
    for message in made["messages"]:
        if isinstance(message["content"], str):
            message["content"] = re.sub(r"\{\"name\".*\}", lambda m: sorted_json(m[0]), message["content"])
        for call in message.get("tool_calls") or ():
            if isinstance(call["function"]["arguments"], str):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return made


def sorted_json(text: str) -> str:
    return json.dumps(json.loads(text), sort_keys=True)


@pytest.mark.parametrize("half", ["held_in", "held_out"])
def test_the_bfcl_sample_keeps_every_law(half: Half) -> None:
    rows = load_sample(half)
    assert len(rows) == {"held_in": 120, "held_out": 60}[half]
    changed = 0
    for seed, row in enumerate(rows):
        assert row["metadata"]["half"] == half == half_of(row["id"])
        assert fits(row)
        made = augment_conversation(row, everything(seed), seed)
        assert fits(made)
        assert parsed(restore_conversation(made)) == parsed(row)
        old_calls, new_calls = row["messages"][-1].get("tool_calls", ()), made["messages"][-1].get("tool_calls", ())
        for old, new in zip(old_calls, new_calls, strict=True):
            found = canonical_conversation_call(made, new["function"]["name"], json.loads(new["function"]["arguments"]))
            assert found == CanonicalCall(old["function"]["name"], json.loads(old["function"]["arguments"]))
        changed += made["tools"] != row["tools"]
    assert changed > 0.9 * len(rows)


def test_the_shipped_samples_are_what_the_package_gives() -> None:
    assert data_folder().is_dir()
    halves: tuple[Half, Half] = ("held_in", "held_out")
    for half in halves:
        rows = load_sample(half)
        assert sample(half, len(rows), 3000) == rows
        assert all(len(line(row)) <= 3000 for row in rows)
    assert not {row["id"] for row in load_sample("held_in")} & {row["id"] for row in load_sample("held_out")}


@settings(max_examples=60, deadline=None)
@given(sessions(text=True), operators(FAMILIES), seeds)
def test_any_conversation_comes_back(session, chosen, seed):
    harness, messages = session
    tools = [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": t.parameters, "strict": True},
        }
        for t in harness.tools
    ]
    conversation = {"id": "x", "messages": messages, "tools": tools}
    made = augment_conversation(conversation, chosen, seed, TRAINED, held_out=HELD_OUT)
    assert parsed(restore_conversation(made)) == parsed(conversation)
    assert restore_conversation(made).keys() == conversation.keys()
    pairs = zip(calls(messages), calls(made["messages"]), strict=True)
    for (old_name, old), (name, new) in pairs:
        before = canonical_call(harness, old_name, old) if old_name != harness.activation.tool else CallError("")
        found = canonical_conversation_call(made, name, new)
        assert isinstance(found, CanonicalCall) == isinstance(before, CanonicalCall)
        if isinstance(before, CanonicalCall):
            assert found == CanonicalCall(old_name, before.arguments)


def calls(messages: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    found = [call["function"] for message in messages for call in message.get("tool_calls", ())]
    return [(call["name"], json.loads(call["arguments"])) for call in found]


def weather(**more: Any) -> dict[str, Any]:
    """A conversation whose prose names its tool and a parameter."""
    schema = {
        "type": "object",
        "properties": {
            "city_name": {"type": "string", "description": "used with days; city_name is required"},
            "days": {"type": "integer", "description": "how many days"},
        },
        "required": ["city_name"],
    }
    function = {"name": "get.weather", "description": "get.weather takes city_name", "parameters": schema}
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "get.weather", "arguments": '{"city_name": "Oslo", "days": 2}'},
    }
    return {
        "messages": [
            {"role": "system", "content": "Call `get.weather` for weather. get.weather_v2 is gone."},
            {"role": "user", "content": [{"type": "text", "text": "use get.weather for days in Oslo, city_name"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "name": "get.weather", "content": "get.weather: rain"},
            {"role": "assistant", "content": "Rain, says get.weather."},
        ],
        "tools": [{"type": "function", "function": function}],
        **more,
    }


def test_bare_identifiers_are_followed_and_ordinary_words_are_not() -> None:
    given = weather()
    made = augment_conversation(given, [ToolName(modes={"random": 1.0}), ParameterName(modes={"random": 1.0})], 4)
    function = made["tools"][0]["function"]
    tool, (city, days) = function["name"], list(function["parameters"]["properties"])
    assert made["messages"][0]["content"] == f"Call `{tool}` for weather. get.weather_v2 is gone."
    assert made["messages"][1]["content"][0]["text"] == f"use {tool} for days in Oslo, city_name"
    assert json.loads(made["messages"][2]["tool_calls"][0]["function"]["arguments"]) == {city: "Oslo", days: 2}
    assert made["messages"][3] == {"role": "tool", "tool_call_id": "1", "name": tool, "content": "get.weather: rain"}
    assert made["messages"][4]["content"] == f"Rain, says {tool}."
    assert function["description"] == f"{tool} takes {city}"
    assert function["parameters"]["properties"][city]["description"] == f"used with days; {city} is required"
    assert restore_conversation(made) == given


def test_a_forced_tool_is_forced_under_its_new_name() -> None:
    given = weather(tool_choice={"type": "function", "function": {"name": "get.weather"}})
    made = augment_conversation(given, [ToolName()], 4)
    assert made["tool_choice"]["function"]["name"] == made["tools"][0]["function"]["name"] != "get.weather"
    assert restore_conversation(made) == given
    assert (
        restore_conversation(augment_conversation(weather(tool_choice="auto"), [ToolName()], 4))["tool_choice"]
        == "auto"
    )


def test_names_that_openai_refuses_get_valid_ones() -> None:
    made = augment_conversation(weather(), [ToolName()], 4)
    assert re.match(NAME_PATTERN, made["tools"][0]["function"]["name"])


def test_an_answer_that_a_model_added_comes_back_with_the_rest() -> None:
    made = augment_conversation(weather(), everything(3), 3)
    old_call = weather()["messages"][2]["tool_calls"][0]["function"]
    asked = made["messages"][2]["tool_calls"][0]
    made["messages"].append({"role": "assistant", "content": "", "tool_calls": [asked]})
    back = restore_conversation(made)["messages"][-1]["tool_calls"][0]["function"]
    assert back["name"] == "get.weather"
    assert json.loads(back["arguments"]) == json.loads(old_call["arguments"])


def test_metadata_of_others_is_kept_and_a_second_augmentation_refused() -> None:
    given = weather(metadata={"source": "log"})
    made = augment_conversation(given, trained_plan(), 1)
    assert made["metadata"]["source"] == "log"
    assert restore_conversation(made) == given
    with pytest.raises(AugmentError, match="already"):
        augment_conversation(made, trained_plan(), 1)
    with pytest.raises(AugmentError, match="no record"):
        restore_conversation(given)
    assert KEY not in given["metadata"]


@pytest.mark.parametrize("tools", [[{"type": "function"}], ["x"], [{"function": {"name": 3}}]])
def test_tools_of_another_kind_are_refused_by_place(tools: list[Any]) -> None:
    with pytest.raises(AugmentError, match=r"tools\[0\]"):
        augment_conversation({"messages": [], "tools": tools}, trained_plan(), 1)


def test_two_tools_of_one_name_are_refused() -> None:
    tool = weather()["tools"][0]
    with pytest.raises(AugmentError, match="share a name"):
        augment_conversation({"messages": [], "tools": [tool, tool]}, trained_plan(), 1)


def test_a_conversation_without_tools_only_gets_a_record() -> None:
    given = {"messages": [{"role": "user", "content": "hi"}]}
    made = augment_conversation(given, trained_plan(), 1)
    assert made["messages"] == given["messages"]
    assert restore_conversation(made) == given


def test_no_distractor_is_about_what_the_conversation_is_about() -> None:
    for seed in range(40):
        made = augment_conversation(weather(), [DistractorTool(counts=(2,))], seed)
        assert all("Weather" not in tool["function"]["description"] for tool in made["tools"])


def test_bfcl_types_become_json_schema() -> None:
    given = {
        "type": "dict",
        "required": ["a", "gone"],
        "properties": {
            "a": {"type": "HashMap", "properties": {"b": {"type": "float"}}},
            "c": {"type": "any", "optional": True},
        },
    }
    assert json_schema(given) == {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "object", "properties": {"b": {"type": "number"}}}, "c": {}},
    }


def test_a_text_that_names_a_property_inside_a_grouped_parameter_comes_back() -> None:
    inner = {"type": "object", "properties": {"item": {"type": "string"}, "x": {"type": "boolean"}}}
    properties = {"record": inner, "other": {"type": "string"}, "more": {"type": "boolean"}}
    schema = {"type": "object", "properties": properties, "required": ["record"], "additionalProperties": False}
    function = {"name": "get_item", "description": "reads one record", "parameters": schema}
    conversation = {
        "id": "x",
        "messages": [{"role": "user", "content": "how much is the `item` ? get_item"}],
        "tools": [{"type": "function", "function": function}],
    }
    operators = [ParameterName(p=None), ParameterType(p=None)]
    for seed in range(60):
        made = augment_conversation(conversation, operators, seed, TRAINED, held_out=HELD_OUT)
        assert restore_conversation(made)["messages"] == conversation["messages"], seed
