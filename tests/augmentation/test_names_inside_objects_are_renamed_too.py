"""Properties below a tool's parameters get new names at any depth, and every call means what it meant."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hat_harness.augment import apply, original
from hat_harness.augment.conversation import (
    augment_conversation,
    canonical_conversation_call,
    restore_conversation,
)
from hat_harness.augment.inner import below_names, inner_names, rename_inner
from hat_harness.augment.operators import ParameterName, ParameterOrder, ParameterType, ToolName
from hat_harness.augment.schema import completed
from hat_harness.canonical import CanonicalCall, canonical_arguments, canonical_call, renamed_inside, surface_arguments
from hat_harness.diff import diff
from hat_harness.errors import AugmentError
from hat_harness.spec import Harness, Skill, Tool
from hat_harness.validate import validate
from tests.augmentation.strategies import HELD_OUT, TRAINED

KEYS = ["sku", "price", "lines", "note", "商品", "kind"]
FRESH = ["n1", "n2", "n3", "新"]
MODES = ("trained", "held_out", "random", "combination", "swap", "misleading", "char_noise")


def closed(rng: Random, depth: int) -> dict[str, Any]:
    """A subschema whose keys are all known."""
    if not depth or rng.random() < 0.25:
        return rng.choice(
            [
                {"type": "integer"},
                {"type": ["string", "null"]},
                {"enum": ["sku", 1, {"sku": 1, "price": {"note": 2}}]},
                {"const": {"price": 3}},
                {"$ref": "#/$defs/money"},
            ]
        )
    if rng.random() < 0.2:
        return {"$ref": rng.choice(["#/$defs/money", "#/$defs/tree"])}
    if rng.random() < 0.25:
        return {"type": "array", "items": closed(rng, depth - 1), "maxItems": 3}
    if rng.random() < 0.2:
        return {"oneOf": [shape(rng, depth - 1), shape(rng, depth - 1), {"type": "null"}]}
    return shape(rng, depth)


def shape(rng: Random, depth: int) -> dict[str, Any]:
    """An object."""
    names = rng.sample(KEYS, rng.randint(1, 3))
    made: dict[str, Any] = {"type": "object", "properties": {name: closed(rng, depth - 1) for name in names}}
    if rng.random() < 0.5:
        made["required"] = names[:1]
    if rng.random() < 0.4:
        made["additionalProperties"] = False
    if len(names) > 1 and rng.random() < 0.3:
        made["dependentRequired"] = {names[0]: [names[1]]}
    if rng.random() < 0.2:
        made["propertyNames"] = {"enum": [*names, "zz"]}
    if rng.random() < 0.2:
        made["anyOf"] = [{"required": names[:1]}, {"properties": {names[-1]: {"type": "string"}}}]
    if rng.random() < 0.2:
        made["default"] = {names[0]: {"sku": 1}}
    return made


DEFS = {
    "money": {
        "type": "object",
        "properties": {"price": {"type": "integer"}, "kind": {"enum": ["a", "b"]}},
        "required": ["price"],
    },
    "tree": {
        "type": "object",
        "properties": {"sku": {"type": "string"}, "lines": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    },
}


def root(rng: Random) -> dict[str, Any]:
    names = rng.sample(["order", "filter", "sku", "top"], rng.randint(1, 3))
    made = {"type": "object", "$defs": json.loads(json.dumps(DEFS)), "properties": {}}
    for name in names:
        made["properties"][name] = closed(rng, 3)
    if rng.random() < 0.3:
        made["examples"] = [{names[0]: {"sku": 1}}]
    if rng.random() < 0.3:
        made["anyOf"] = [{"required": names[:1]}, {"properties": {names[0]: {"type": "object"}}}]
    return made


def value(rng: Random, depth: int) -> Any:
    kind = rng.randrange(5) if depth else rng.randrange(2)
    if kind == 2:
        return [value(rng, depth - 1) for _ in range(rng.randrange(3))]
    if kind > 2:
        names = rng.sample([*KEYS, *FRESH], rng.randint(0, 3))
        return {name: value(rng, depth - 1) for name in names}
    return rng.choice([1, "a", "sku", None])


def fitting(rng: Random, schema: Any, whole: dict[str, Any], depth: int = 6) -> Any:
    """A value that has a good chance to fit."""
    if "$ref" in schema:
        return fitting(rng, whole["$defs"][schema["$ref"].split("/")[-1]], whole, depth - 1)
    if "enum" in schema or "const" in schema:
        return rng.choice(schema.get("enum") or [schema["const"]])
    if "oneOf" in schema:
        return fitting(rng, rng.choice(schema["oneOf"]), whole, depth)
    kind = schema.get("type")
    if kind == "object":
        names = [n for n in schema.get("properties", {}) if n in schema.get("required", ()) or rng.random() < 0.7]
        return {name: fitting(rng, schema["properties"][name], whole, depth - 1) for name in names}
    if kind == "array":
        return [fitting(rng, schema["items"], whole, depth - 1) for _ in range(rng.randrange(3) if depth > 0 else 0)]
    return 3 if kind == "integer" else None if kind == "null" else "a"


def arguments(rng: Random, schema: dict[str, Any]) -> dict[str, Any]:
    made = {name: fitting(rng, inner, schema) for name, inner in schema["properties"].items()}
    if rng.random() < 0.4:
        made[rng.choice(list(made))] = value(rng, 3)
    return made


def drawn(rng: Random, schema: dict[str, Any]) -> dict[str, str]:
    """A renaming of some of the names that may be renamed, at times among themselves."""
    names = sorted({name for found in inner_names(schema).values() for name in found})
    old = rng.sample(names, min(len(names), rng.randint(1, 3)))
    if rng.random() < 0.4:
        return dict(zip(old, old[1:] + old[:1], strict=True))
    return dict(zip(old, rng.sample(FRESH, len(old)), strict=True))


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_valid_stays_valid_and_invalid_stays_invalid(rng: Random) -> None:
    before = root(rng)
    mapping = drawn(rng, before)
    after, whole = rename_inner(before, mapping), completed(mapping)
    Draft202012Validator.check_schema(after)
    chosen = [name for name, found in inner_names(before).items() if set(found) & set(mapping)]
    for _ in range(4):
        given_ = arguments(rng, before)
        renamed = {name: renamed_inside(one, whole) if name in chosen else one for name, one in given_.items()}
        assert Draft202012Validator(after).is_valid(renamed) == Draft202012Validator(before).is_valid(given_)


@settings(max_examples=80, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_inverse_gives_the_same_text(rng: Random) -> None:
    before = root(rng)
    mapping = drawn(rng, before)
    back = {new: old for old, new in mapping.items()}
    assert json.dumps(rename_inner(rename_inner(before, mapping), back)) == json.dumps(before)


def harness(rng: Random) -> Harness:
    tools = tuple(
        Tool(id=f"tool_{n}", name=f"tool_{n}", description="see `price`", parameters=root(rng)) for n in range(3)
    )
    skill = Skill(id="s", name="s", description="d", body="Give `tool_0.sku`.", tools=("tool_0",))
    return Harness(name="deep", tools=tools, skills=(skill,))


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(MODES), st.integers(0, 10**6))
def test_calls_keep_their_meaning_and_states_lead_back(rng: Random, mode: Any, seed: int) -> None:
    base = harness(rng)
    operators = [ParameterName(modes={mode: 1.0}), ParameterType(), ParameterOrder(), ToolName()]
    state = apply(base, operators[: rng.randint(1, 4)], seed, TRAINED, held_out=HELD_OUT)
    # A harness refuses recursive schemas, conversations may bring them; all else must stay valid.
    assert not [problem for problem in validate(state.harness) if "leads back to itself" not in problem.message]
    for old, new in zip(
        base.tools, (next(t for t in state.harness.tools if t.id == o.id) for o in base.tools), strict=True
    ):
        for _ in range(3):
            given_ = arguments(rng, old.parameters)
            written = surface_arguments(new, given_)
            if not Draft202012Validator(old.parameters).is_valid(given_):
                continue
            assert Draft202012Validator(new.parameters).is_valid(written)
            assert canonical_call(state.harness, new.name, written) == CanonicalCall(old.id, given_)
            assert surface_arguments(new, canonical_arguments(new, written)) == written
    again = type(state).model_validate_json(state.model_dump_json())
    assert original(again) == base


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(MODES), st.integers(0, 10**6))
def test_conversations_come_back(rng: Random, mode: Any, seed: int) -> None:
    tools = [
        {"type": "function", "function": {"name": f"tool_{n}", "description": "", "parameters": root(rng)}}
        for n in range(2)
    ]
    calls = []
    for number, tool in enumerate(tools):
        written = json.dumps(arguments(rng, tool["function"]["parameters"]), ensure_ascii=False)
        function = {"name": tool["function"]["name"], "arguments": written}
        calls.append({"id": f"c{number}", "type": "function", "function": function})
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "", "tool_calls": calls}]
    conversation = {"messages": messages, "tools": tools}
    made = augment_conversation(conversation, [ParameterName(modes={mode: 1.0}), ToolName()], seed, TRAINED)
    assert restore_conversation(made) == conversation
    for old, new in zip(calls, made["messages"][1]["tool_calls"], strict=True):
        schema = next(t["function"]["parameters"] for t in tools if t["function"]["name"] == old["function"]["name"])
        given_ = json.loads(old["function"]["arguments"])
        if Draft202012Validator(schema).is_valid(given_) and set(given_) <= set(schema["properties"]):
            found = canonical_conversation_call(made, new["function"]["name"], json.loads(new["function"]["arguments"]))
            assert found == CanonicalCall(old["function"]["name"], given_)


def order_tool() -> Tool:
    line = {
        "type": "object",
        "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}},
        "required": ["sku"],
    }
    schema = {
        "type": "object",
        "properties": {
            "order": {
                "type": "object",
                "properties": {
                    "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
                    "pay": {"oneOf": [{"$ref": "#/$defs/card"}, {"type": "null"}]},
                },
                "required": ["lines"],
            },
            "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "$defs": {
            "line": line,
            "card": {"type": "object", "properties": {"number": {"type": "string"}, "sku": {"const": "none"}}},
        },
    }
    return Tool(id="order", name="order", description="each line has a `sku`", parameters=schema)


def test_every_depth_is_renamed_and_free_keys_are_left_alone() -> None:
    tool = order_tool()
    assert inner_names(tool.parameters) == {"order": ("lines", "sku", "count", "pay", "number")}
    text = "```json\n" + json.dumps({"name": "order", "arguments": {"order": {"lines": [{"sku": "A1"}]}}}) + "\n```"
    base = Harness(
        name="shop",
        tools=(tool,),
        skills=(Skill(id="s", name="s", description="d", body=f"Fill `sku`.\n{text}", tools=("order",)),),
    )
    state = apply(base, [ParameterName(modes={"random": 1.0})], 3, TRAINED)
    (new,) = state.harness.tools
    names = next(adapter.values for adapter in new.adapters if adapter.kind == "inner_names")
    assert set(names) == {"lines", "pay", "sku", "count", "number"}
    given_ = {"order": {"lines": [{"sku": "A1", "count": 2}], "pay": None}, "tags": {"sku": "red"}}
    written = surface_arguments(new, given_)
    outer = {old: new.parameter_names.get(old, old) for old in given_}
    assert written == {
        outer["order"]: {names["lines"]: [{names["sku"]: "A1", names["count"]: 2}], names["pay"]: None},
        outer["tags"]: {"sku": "red"},
    }
    assert canonical_call(state.harness, new.name, written) == CanonicalCall("order", given_)
    assert f"`{names['sku']}`" in new.description
    body = state.harness.skills[0].body
    assert f"Fill `{names['sku']}`" in body
    call = json.loads(body.split("\n")[2])
    assert call["arguments"] == {outer["order"]: {names["lines"]: [{names["sku"]: "A1"}]}}
    assert not below_names(new.parameters) & {"lines", "pay", "sku", "count", "number"}
    renamed = {(change.path, change.after) for change in diff(base, state.harness) if change.kind == "renamed"}
    assert ("tool order / parameter order.lines.sku", names["sku"]) in renamed


@pytest.mark.parametrize(
    "inner",
    [
        {"type": "object"},
        {},
        True,
        {"type": "array"},
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
        {"type": "object", "properties": {"a": {"type": "string"}}, "patternProperties": {"^x": {}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "propertyNames": {"pattern": "^a"}},
        {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": {"type": "string"}}}},
        {"$ref": "#"},
        {"$ref": "#/properties/other/properties/a"},
        {"$ref": "https://example.com/x"},
        {"type": "object", "properties": {"a": {"$dynamicRef": "#x"}}},
    ],
)
def test_where_keys_may_be_data_names_stay(inner: Any) -> None:
    schema = {"type": "object", "properties": {"p": inner, "other": {"type": "string"}}}
    assert inner_names(schema) == {}


def test_what_shares_a_definition_with_data_stays_too() -> None:
    schema = {
        "type": "object",
        "$defs": {"d": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "properties": {
            "p": {"$ref": "#/$defs/d"},
            "q": {"type": "object", "properties": {"d": {"$ref": "#/$defs/d"}, "map": {"type": "object"}}},
            "r": {"type": "object", "properties": {"b": {"type": "string"}}},
        },
    }
    assert inner_names(schema) == {"r": ("b",)}
    in_place = {**schema, "allOf": [{"$ref": "#/$defs/d"}], "properties": {"p": {"$ref": "#/$defs/d"}}}
    assert inner_names(in_place) == {}


def test_two_things_never_get_one_name() -> None:
    schema = {"type": "object", "properties": {"p": {"type": "object", "properties": {"a": {"type": "string"}}}}}
    with pytest.raises(AugmentError):
        rename_inner(schema, {"a": "n", "b": "n"})
