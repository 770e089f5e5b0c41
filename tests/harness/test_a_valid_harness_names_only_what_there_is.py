"""Validation finds every dangling reference, every unusable schema and every hook that cannot work."""

from __future__ import annotations

from typing import Any

import pytest

from hat_harness.schema_checks import schema_problems
from hat_harness.spec import (
    Activation,
    Adapter,
    FewShot,
    File,
    Harness,
    Hook,
    Layout,
    Limits,
    Prompt,
    Recovery,
    Skill,
    Tool,
)
from hat_harness.validate import validate
from tests.harness.kit import GATE, ITEM, small

SKILL = small().skills[0]
TOOL = small().tools[0]


def tool(**changes: Any) -> Harness:
    return small(tools=(TOOL.model_copy(update=changes), *small().tools[1:]))


def hook(when: str, **changes: Any) -> Harness:
    return small(hooks=(GATE.model_copy(update={"when": when, "message": "m", **changes}),))


def prompt(text: str) -> Harness:
    return small(prompts=(Prompt(id="rules", section="rules", text=text),))


def skill(**changes: Any) -> Harness:
    return small(skills=(SKILL.model_copy(update=changes), *small().skills[1:]))


CASES: list[tuple[Harness, str]] = [
    (skill(tools=("nope",)), "skills/item-qa/SKILL.md: allowed-tools: no tool nope"),
    (skill(name="chat"), "the skill name chat is taken by skills/item-qa/SKILL.md"),
    (skill(id="chat"), "skills: chat stands twice"),
    (skill(id="CHAT"), "skills: chat differs from CHAT by case only"),
    (skill(id="../x"), "skills: '../x' cannot be a file name"),
    (skill(metadata={"kind": "x"}), "metadata: kind is reserved"),
    (skill(compatibility="x" * 501), "compatibility is longer"),
    (skill(body="a\x00b"), "a control character"),
    (skill(body="a\rb"), "a control character"),
    (skill(body="a\ud800b"), "a control character"),
    (skill(resources=("a.md",)), "skills/item-qa/a.md: a skill lists this file"),
    (skill(body="use `get_itm` now"), "`get_itm` names nothing (did you mean get_item?)"),
    (skill(body="use `lookup(item)` now"), "`lookup` names nothing"),
    (skill(body="use `item_qa` now", name="answer"), "`item_qa` is a canonical id (the model knows it as answer)"),
    (prompt("first `use_skil`"), "`use_skil` names nothing (did you mean use_skill?)"),
    (small(files=(File(path="skills/chat/x", content=""),)), "skills/chat/x: no skill lists this file"),
    (tool(name="use_skill"), "the tool name use_skill is taken by harness.yaml"),
    (tool(name="order"), "the tool name order is taken by tools/get_item.json"),
    (small(activation=Activation(tool="order")), "the tool name order is taken by harness.yaml"),
    (tool(parameters={"type": "array"}), "the schema must be of type object"),
    (tool(output={"type": "string"}), "outputSchema: the schema must be of type object"),
    (tool(parameter_names={"item": "thing"}), "parameter_names: thing is no parameter"),
    (tool(parameter_names={"a": "item", "b": "item"}), "two parameters have one name"),
    (tool(adapters=(Adapter(kind="array_of_one", parameters=("x",)),)), "adapter array_of_one: x is no parameter"),
    (tool(adapters=(Adapter(kind="values", parameters=("item",), values={"a": "x", "b": "x"}),)), "two values become one"),
    (tool(adapters=(Adapter(kind="boolean_as_words", parameters=("item",)),)), "needs the values true and false"),
    (tool(adapters=(Adapter(kind="nested", parameters=("item",), into="box"),)), "adapter nested: box is no parameter"),
    (tool(parameters={"type": "object", "properties": {"a": {"default": 2**60}}}), "no digest: an integer beyond 2^53"),
    (tool(parameters={"type": "object", "properties": {"a": {"const": {"$decimal": "1"}}}}), "no digest: the key $decimal"),
    (small(sections=("skills", "tools", "rules", "rooms")), "sections: nothing stands in rooms (did you mean room?)"),
    (small(sections=("skills", "tools", "rules", "rules")), "sections: rules stands twice"),
    (small(sections=("tools", "rules")), "sections: skills is missing"),
    (small(sections=("skills", "rules")), "sections: tools is missing"),
    (small(sections=("skills", "tools")), "section rules is not in sections"),
    (small(layout=Layout(skill="{title}")), "layout.skill: {title} is not one of its fields"),
    (small(layout=Layout(tool="{description}")), "layout.tool: {name} is missing"),
    (small(layout=Layout(result="ok")), "layout.result: {result} is missing"),
    (small(layout=Layout(section="{body")), "layout.section: "),
    (small(limits=Limits(output_tokens=64, segment_tokens=64)), "output_tokens leaves nothing"),
    (small(recovery=Recovery(safe_reply=" ")), "safe_reply is empty"),
    (small(aliases={"x": "nope"}), "aliases: x stands for no skill nope"),
    (small(aliases={"x": "chat", "y": "chat"}), "two folders stand for one skill"),
    (hook("reply == nope"), "hooks/gate.yaml: when: line 1, column 10: undeclared reference to 'nope'"),
    (hook("reply == args.door"), "when: no argument door (did you mean"),
    (hook("true", message="end with {door}"), "message: no argument door"),
    (hook("true", message=""), "message: require needs one"),
    (hook("'itemqa' in skills"), "when: no skill itemqa (did you mean item_qa?)"),
    (hook("tools.exists(t, t.id == 'get_itm')"), "when: no tool get_itm (did you mean get_item?)"),
    (hook("'nope' in calls"), "when: no tool nope"),
    (hook("true", event="session_start"), "require cannot follow session_start"),
    (small(few_shots=(FewShot(id="f", messages=({"role": "host"},)),)), "message 1: no role host"),
    (
        small(few_shots=(FewShot(id="f", messages=({"role": "assistant", "tool_calls": [{"function": {"name": "x"}}]},)),)),
        "message 1: no tool x",
    ),
    (
        small(few_shots=(FewShot(id="f", messages=(
            {"role": "assistant", "tool_calls": [{"function": {"name": "order", "arguments": "{"}}]},)),)),
        "message 1: the arguments are not a JSON object",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("harness", "expected"), CASES, ids=[text[:60] for _, text in CASES])
def test_it_is_found(harness: Harness, expected: str) -> None:
    found = [str(problem) for problem in validate(harness)]
    wanted = expected.replace("(did you mean", "(") if expected.endswith("(did you mean") else expected
    assert any(wanted.rstrip("(").strip() in problem for problem in found), found


def test_names_that_there_are_pass() -> None:
    body = "call `get_item(item)` , then `use_skill` , `true` , `a b` , `item` and `chat`"
    assert validate(skill(body=body)) == []
    assert validate(small(hooks=(GATE,))) == []
    assert validate(hook("'item_qa' in skills && tools.exists(t, t.id == 'order')")) == []
    assert validate(Harness(name="empty")) == []
    fire = Hook(id="q", event="stop", when="reply == ''", action="silence")
    assert validate(small(hooks=(fire,))) == []


OBJECT = {"type": "object"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({**OBJECT, "properties": {"a": {"type": "strng"}}}, "#/properties/a/type"),
        ({**OBJECT, "properties": {"a": {"$ref": "https://example.invalid/x"}}}, "points outside the schema"),
        ({**OBJECT, "properties": {"a": {"$ref": "other.json"}}}, "points outside the schema"),
        ({**OBJECT, "properties": {"a": {"$ref": "#/$defs/x"}}}, "points to nothing"),
        ({**OBJECT, "properties": {"a": {"$ref": "#"}}}, "leads back to itself"),
        (
            {**OBJECT, "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"$ref": "#/$defs/x"}}},
            "leads back to itself",
        ),
        (
            {**OBJECT, "$defs": {"x": {"items": {"$ref": "#/$defs/y"}}, "y": {"items": {"$ref": "#/$defs/x"}}}},
            "leads back to itself",
        ),
        ({**OBJECT, "$id": "https://example.invalid"}, "$id is not allowed"),
        ({**OBJECT, "properties": {"a": {"pattern": "("}}}, "pattern"),
        ({**OBJECT, "properties": {"a": {"pattern": "a" * 513}}}, "longer than 512"),
        ({**OBJECT, "properties": []}, "#/properties"),
        ({"properties": {}}, "of type object"),
        ("nonsense", "of type object"),
    ],
)
def test_a_schema_that_is_not_safe_to_use_is_refused(schema: Any, expected: str) -> None:
    found = schema_problems(schema)
    assert any(expected in problem for problem in found), found


def test_shared_definitions_are_fine() -> None:
    schema = {
        **OBJECT,
        "properties": {
            "a": {"$ref": "#/$defs/a~1b"},
            "b": {"items": {"$ref": "#/$defs/a~1b"}},
            "$ref": {"enum": [{"$ref": "x"}]},
        },
        "$defs": {"a/b": {"$ref": "#/$defs/c"}, "c": {"type": "string", "default": {"$id": "x"}}},
    }
    assert schema_problems(schema) == []
    assert schema_problems(ITEM) == []


def test_a_schema_that_nests_without_end_is_told() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(5000):
        schema = {"type": "object", "properties": {"a": schema}}
    assert schema_problems(schema) == ["the schema nests too deep"]


def test_skills_and_tools_may_share_a_name() -> None:
    assert validate(small(skills=(Skill(id="order", name="order", description="d", body="b"),))) == []
    assert validate(small(tools=(Tool(id="a.b", name="x", description="d", parameters=ITEM),), skills=())) == []
