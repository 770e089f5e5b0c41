"""What the model writes and what a tool is: the two forms are inverse, and arguments are judged as JSON Schema judges them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hat_harness.arguments import check_arguments
from hat_harness.canonical import (
    CallError,
    CanonicalCall,
    canonical_arguments,
    canonical_call,
    surface_arguments,
    surface_call,
    with_adapter,
)
from hat_harness.spec import Adapter, Tool
from hat_harness.validate import validate
from tests.harness.kit import small

PARAMETERS = {
    "type": "object",
    "properties": {
        "item": {"type": "string", "enum": ["mug", "lamp"], "default": "mug"},
        "count": {"type": "integer", "description": "how many"},
        "gift": {"type": "boolean"},
        "code": {"type": "string", "pattern": "^(0|[1-9][0-9]*)$"},
        "answer": {"type": "string", "enum": ["sure", "no"]},
    },
    "required": ["item", "count"],
}
TOOL = Tool(id="order", name="order", description="order it", parameters=PARAMETERS)
ADAPTERS = [
    Adapter(kind="integer_as_string", parameters=("count",)),
    Adapter(kind="string_as_integer", parameters=("code",)),
    Adapter(kind="boolean_as_words", parameters=("gift",), values={"true": "yes", "false": "no"}),
    Adapter(kind="words_as_boolean", parameters=("answer",), values={"true": "sure", "false": "no"}),
    Adapter(kind="values", parameters=("item",), values={"mug": "cup", "lamp": "light"}),
    Adapter(kind="array_of_one", parameters=("count",)),
    Adapter(kind="array_of_one", parameters=("item",)),
]
CANONICAL = st.fixed_dictionaries(
    {"item": st.sampled_from(["mug", "lamp"]), "count": st.integers(-(10**20), 10**20)},
    optional={"gift": st.booleans(), "code": st.integers(0, 99).map(str), "answer": st.sampled_from(["sure", "no"])},
)


@st.composite
def retyped(draw: st.DrawFn) -> Tool:
    """The tool with some parameters renamed, some retyped, some nested."""
    names = draw(st.sampled_from([{}, {"item": "what", "count": "number"}, {"gift": "item", "item": "gift"}]))
    schema = {**PARAMETERS, "properties": {names.get(k, k): v for k, v in PARAMETERS["properties"].items()}}
    schema["required"] = [names.get(k, k) for k in PARAMETERS["required"]]
    tool = TOOL.model_copy(update={"parameters": schema, "parameter_names": names})
    for number in draw(st.lists(st.integers(0, len(ADAPTERS) - 1), unique=True, max_size=5)):
        try:
            tool = with_adapter(tool, ADAPTERS[number])
        except ValueError:
            # A parameter that is in a list by now is no integer any more.
            assert ADAPTERS[number].kind == "integer_as_string"
    if draw(st.booleans()):
        group = tuple(
            draw(st.lists(st.sampled_from(sorted(PARAMETERS["properties"])), min_size=1, max_size=3, unique=True))
        )
        tool = with_adapter(
            tool, Adapter(kind="nested", parameters=group, into=draw(st.sampled_from(["options", "box"])))
        )
    return tool


@given(retyped(), CANONICAL)
def test_a_canonical_call_survives_the_way_to_the_model_and_back(tool: Tool, arguments: dict[str, Any]) -> None:
    harness = small(tools=(tool,), skills=())
    assert validate(harness) == []
    name, written = surface_call(harness, "order", arguments)
    assert check_arguments(tool, written) == ""
    assert Draft202012Validator(tool.parameters).is_valid(written)
    assert canonical_call(harness, name, written) == CanonicalCall("order", arguments)
    assert surface_arguments(tool, canonical_arguments(tool, written)) == written


@given(retyped(), CANONICAL, st.data())
def test_a_broken_value_is_told_and_never_raises(tool: Tool, arguments: dict[str, Any], data: st.DataObject) -> None:
    harness = small(tools=(tool,), skills=())
    _, written = surface_call(harness, "order", arguments)
    key = data.draw(st.sampled_from(sorted(written)))
    written[key] = data.draw(st.sampled_from([None, [], {}, "x y", -0.5, [1, 2], {"a": 1}, True]))
    found = canonical_call(harness, "order", written)
    assert isinstance(found, CanonicalCall | CallError)
    if not Draft202012Validator(tool.parameters).is_valid(written):
        assert isinstance(found, CallError)
        assert found.text.startswith("error : ")


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.floats(-9, 9), st.just(3.0), st.text("abc", max_size=3)
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.sampled_from("ab"), SCALARS, max_size=2))


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    one = st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "boolean"])},
        optional={
            "enum": st.lists(SCALARS, min_size=1, max_size=3, unique_by=repr),
            "const": SCALARS,
            "minLength": st.integers(0, 3),
            "maxLength": st.integers(0, 3),
            "minimum": st.integers(-9, 9),
            "maximum": st.floats(-9, 9),
            "pattern": st.sampled_from(["^a", "b$", "[ac]"]),
            "description": st.just("text"),
            "exclusiveMinimum": st.integers(-9, 9),
        },
    )
    properties = draw(st.dictionaries(st.sampled_from(["a", "b", "c"]), one, max_size=3))
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema["required"] = draw(st.lists(st.sampled_from(["a", "b"]), unique=True))
    closing = draw(st.sampled_from([None, True, False, {"type": "string"}]))
    return schema if closing is None else {**schema, "additionalProperties": closing}


@settings(max_examples=300)
@given(schemas(), st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), VALUES, max_size=3))
def test_arguments_are_judged_as_json_schema_judges_them(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    tool = TOOL.model_copy(update={"parameters": schema})
    closed = schema if "additionalProperties" in schema else {**schema, "additionalProperties": False}
    assert (check_arguments(tool, arguments) == "") is Draft202012Validator(closed).is_valid(arguments)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "boolean", "enum": [1]}, True),
        ({"type": "boolean", "const": True}, True),
        ({"type": "integer", "enum": [True, 2]}, 1),
        ({"type": "number", "enum": [1]}, 1.0),
        ({"type": "integer"}, 3.0),
        ({"type": "integer"}, True),
        ({"type": "number"}, False),
        ({"type": "string", "minLength": 2}, "\U0001f600"),
        ({"enum": ["a"]}, "a"),
        ({"type": ["string", "null"]}, None),
        ({"type": "string", "format": "date"}, "nonsense"),
    ],
)
def test_the_corners_of_json_schema_hold(schema: dict[str, Any], value: object) -> None:
    whole = {"type": "object", "properties": {"a": schema}}
    tool = TOOL.model_copy(update={"parameters": whole})
    assert (check_arguments(tool, {"a": value}) == "") is Draft202012Validator(whole).is_valid({"a": value})


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, 'missing parameter "item"'),
        ({"item": "mug"}, 'missing parameter "count"'),
        ({"item": "cup", "count": 1}, 'parameter "item" must be one of "mug" "lamp"'),
        ({"item": "mug", "count": "1"}, 'parameter "count" must be a whole number'),
        ({"item": "mug", "count": 1, "gitf": True}, 'unknown parameter "gitf" , parameters are "gift"'),
        ({"item": "mug", "count": 1, "code": "01"}, 'parameter "code" must be of the form ^(0|[1-9][0-9]*)$'),
    ],
)
def test_the_model_is_told_what_to_change(arguments: dict[str, Any], text: str) -> None:
    assert canonical_call(small(tools=(TOOL,)), "order", arguments) == CallError(f"error : {text}", "order")


def test_an_unknown_tool_is_told_with_those_that_there_are() -> None:
    found = canonical_call(small(), "look", {})
    assert found == CallError('error : no tool "look" , tools are "use_skill" "get_item" "order"')
    chinese = canonical_call(small(language="zh"), "look", {})
    assert isinstance(chinese, CallError)
    assert chinese.text.startswith("错误：")
    with pytest.raises(KeyError):
        surface_call(small(), "nope", {})


def test_references_outside_a_schema_are_never_fetched() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "https://example.invalid/schema.json"}}}
    broken = TOOL.model_copy(update={"parameters": schema})
    with pytest.raises(Exception, match=r"example\.invalid"):
        check_arguments(broken, {"a": 1})
    assert canonical_call(small(tools=(broken,)), "order", {"a": 1}) == CallError(
        'error : "order" cannot be called', "order"
    )


def test_an_adapter_needs_its_parameters_at_the_top() -> None:
    with pytest.raises(ValueError, match="no top-level parameter size"):
        with_adapter(TOOL, Adapter(kind="array_of_one", parameters=("size",)))
    with pytest.raises(ValueError, match="already has a parameter item"):
        with_adapter(TOOL, Adapter(kind="nested", parameters=("count",), into="item"))
    nested = with_adapter(TOOL, Adapter(kind="nested", parameters=("count", "gift"), into="options"))
    assert nested.parameters["required"] == ["item", "options"]
    assert list(nested.parameters["properties"]) == ["item", "options", "code", "answer"]


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=3))
def test_a_tool_without_changes_passes_arguments_as_they_are(arguments: dict[str, Any]) -> None:
    assume(all(isinstance(key, str) for key in arguments))
    assert canonical_arguments(TOOL, arguments) == surface_arguments(TOOL, arguments) == arguments
