"""Renaming an object's properties changes nothing about which instances are valid."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hat_harness.augment.schema import (
    completed,
    fixed_names,
    name_fits,
    property_names,
    refers_in_place,
    rename_keys,
    rename_properties,
    reorder_properties,
)
from hat_harness.errors import AugmentError

KEYS = ["a", "b", "c", "d", "é", "商"]
FRESH = ["n1", "n2", "n3", "新"]


def leaf(rng: Random) -> Any:
    return rng.choice(
        [
            {"type": "integer"},
            {"type": "string"},
            {"enum": ["a", "b", 1]},
            {"$ref": "#/$defs/leaf"},
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/leaf"}},
                "required": ["a"],
            },
            {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            True,
        ]
    )


def keyword(rng: Random, depth: int) -> dict[str, Any]:
    keys = rng.sample(KEYS, 3)
    made = [
        {"required": keys[:1]},
        {"dependentRequired": {keys[0]: keys[1:2]}},
        {"dependencies": {keys[0]: keys[1:2], keys[1]: {"required": keys[2:]}}},
        {"propertyNames": {"enum": rng.sample(KEYS, 5)}},
        {"maxProperties": 3},
        {"enum": [{keys[0]: 1}, {keys[1]: "x", keys[2]: "a"}, {}]},
        {"additionalProperties": rng.choice([False, {"type": "integer"}])},
        {"unevaluatedProperties": False},
        {"$ref": "#/$defs/shape"},
        {"properties": {keys[0]: leaf(rng)}},
    ]
    if depth:
        inner = schema(rng, depth - 1)
        made += [
            {"allOf": [inner]},
            {"anyOf": [inner, {"required": keys[:1]}]},
            {"oneOf": [inner, {"required": keys[1:]}]},
            {"not": {"required": keys[:2]}},
            {"if": {"required": keys[:1]}, "then": inner, "else": {"required": keys[1:2]}},
            {"dependentSchemas": {keys[0]: inner}},
        ]
    return rng.choice(made)


def schema(rng: Random, depth: int = 2) -> dict[str, Any]:
    made: dict[str, Any] = {"properties": {key: leaf(rng) for key in rng.sample(KEYS, rng.randint(1, 3))}}
    for _ in range(rng.randint(0, 3)):
        made |= keyword(rng, depth)
    return made


def root(rng: Random) -> dict[str, Any]:
    shape = {"properties": {"b": {"type": "integer"}, "c": leaf(rng)}, "required": rng.sample(["b", "c"], 1)}
    if rng.random() < 0.3:
        shape["anyOf"] = [{"required": ["a"]}, {"properties": {"d": {"$ref": "#/$defs/shape"}}}]
    return {"type": "object", "$defs": {"leaf": {"enum": ["x", 1]}, "shape": shape}, **schema(rng)}


def instance(rng: Random) -> dict[str, Any]:
    values = [1, "x", "a", {"a": 1}, {"a": "x", "b": 1}, [{"a": "s"}], {"b": 1}]
    return {key: rng.choice(values) for key in rng.sample([*KEYS, *FRESH], rng.randint(0, 4))}


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_valid_stays_valid_and_invalid_stays_invalid(rng):
    before = root(rng)
    names = rng.sample(KEYS, rng.randint(1, 4))
    mapping = dict(zip(names, rng.sample(FRESH, len(names)), strict=True))
    if rng.random() < 0.3:
        mapping = dict(zip(names, names[1:] + names[:1], strict=True))
    after, whole = rename_properties(before, mapping), completed(mapping)
    Draft202012Validator.check_schema(after)
    for _ in range(5):
        value = instance(rng)
        renamed = rename_keys(value, whole)
        assert Draft202012Validator(after).is_valid(renamed) == Draft202012Validator(before).is_valid(value)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_renaming_is_undone_by_its_inverse(rng):
    made: dict[str, Any] = {"type": "object", "properties": {key: leaf(rng) for key in KEYS[:4]}, "required": ["a"]}
    made |= {key: value for key, value in keyword(rng, 1).items() if key != "$ref"} if rng.random() < 0.5 else {}
    made["$defs"] = {"leaf": {"enum": [1]}, "shape": {}}
    mapping = {"a": "n1", "b": "a", "c": "n2"}
    back = rename_properties(rename_properties(made, mapping), {new: old for old, new in mapping.items()})
    if refers_in_place(made):  # a definition was copied, so only the meaning is the same
        value = instance(rng)
        assert Draft202012Validator(back).is_valid(value) == Draft202012Validator(made).is_valid(value)
    else:
        assert back == made


def test_nested_objects_keep_their_names_and_pointers_follow_renamed_paths():
    before = {
        "type": "object",
        "properties": {
            "item": {"type": "object", "properties": {"item": {"type": "string"}}},
            "other": {"$ref": "#/properties/item"},
            "deep": {"$ref": "#/properties/item/properties/item"},
        },
        "allOf": [{"properties": {"item": {"minProperties": 1}}}],
    }
    after = rename_properties(before, {"item": "sku"})
    assert after["properties"]["sku"]["properties"] == {"item": {"type": "string"}}
    assert after["properties"]["other"] == {"$ref": "#/properties/sku"}
    assert after["properties"]["deep"] == {"$ref": "#/properties/sku/properties/item"}
    assert after["allOf"] == [{"properties": {"sku": {"minProperties": 1}}}]
    assert "item" in before["properties"]


def test_a_definition_that_others_use_is_copied_not_changed():
    before = {
        "$defs": {"shape": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}},
        "allOf": [{"$ref": "#/$defs/shape"}],
        "properties": {"inner": {"$ref": "#/$defs/shape"}},
    }
    after = rename_properties(before, {"a": "n"})
    assert after["$defs"]["shape"] == before["$defs"]["shape"]
    assert Draft202012Validator(after).is_valid({"n": 1, "inner": {"a": 1}})
    assert not Draft202012Validator(after).is_valid({"a": 1, "inner": {"n": 1}})


def test_names_that_a_pattern_constrains_are_fixed():
    before = {
        "properties": {"x_a": {"type": "integer"}, "b": {"type": "string"}},
        "patternProperties": {"^x_": {"minimum": 3}},
    }
    assert fixed_names(before) == {"x_a"}
    assert not name_fits(before, "x_new")
    assert name_fits(before, "new")
    assert fixed_names({"properties": {"a": {}}, "propertyNames": {"pattern": "^a"}}) == {"a"}
    assert fixed_names({"properties": {"a": {}}, "$ref": "https://example.com/s"}) == {"a"}
    assert fixed_names({"properties": {"a": {}}, "required": ["a"]}) == frozenset()


def test_two_things_never_get_one_name():
    with pytest.raises(AugmentError, match="two names to one thing"):
        rename_properties({"properties": {"a": {}, "b": {}}}, {"a": "n", "b": "n"})


def test_order_of_properties_is_all_that_reordering_changes():
    before = {"type": "object", "properties": {"a": 1, "b": 2, "c": 3}, "required": ["b", "a"]}
    after = reorder_properties(before, ["c", "a"])
    assert list(after["properties"]) == ["c", "a", "b"]
    assert after == before
    assert property_names(after) == ["c", "a", "b"]
