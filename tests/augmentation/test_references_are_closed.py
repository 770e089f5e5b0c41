"""Nothing dangles after a rewrite, and the canonical call is the one it was."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from hypothesis import given, settings

from hat_harness.augment import apply, canonicalise_call, rewrite_trajectory
from hat_harness.augment.operators import ActivationName, ParameterName, ParameterType, SkillName, ToolName
from hat_harness.canonical import CanonicalCall, canonical_call
from hat_harness.render import render_system
from hat_harness.spec import NAME_PATTERN, FewShot, Harness, Hook, Prompt, Skill, Tool
from hat_harness.validate import validate
from tests.augmentation.strategies import HELD_OUT, ROOM, TRAINED, harnesses, operators, seeds, sessions


@settings(max_examples=100, deadline=None)
@given(harnesses(), operators(), seeds)
def test_a_valid_harness_stays_valid(harness, chosen, seed):
    assert validate(harness) == []
    state = apply(harness, chosen, seed, TRAINED, held_out=HELD_OUT)
    assert Harness.model_validate_json(state.harness.model_dump_json()) == state.harness
    assert validate(state.harness) == []


@settings(max_examples=100, deadline=None)
@given(harnesses(), operators(), seeds)
def test_names_are_valid_and_unique(harness, chosen, seed):
    made = apply(harness, chosen, seed, TRAINED, held_out=HELD_OUT).harness
    tools = [made.activation.tool, *(tool.name for tool in made.tools)]
    skills = [skill.name for skill in made.skills]
    assert len(set(tools)) == len(tools)
    assert len(set(skills)) == len(skills)
    assert all(re.match(NAME_PATTERN, name) for name in [*tools, *skills, made.activation.parameter])


@settings(max_examples=100, deadline=None)
@given(sessions(), operators(), seeds)
def test_canonical_calls_and_their_errors_stay(session, chosen, seed):
    harness, messages = session
    state = apply(harness, chosen, seed, TRAINED, held_out=HELD_OUT)
    there = rewrite_trajectory(state, messages, lambda made: render_system(made, ROOM))
    for (old_name, old), (name, new) in zip(calls(messages), calls(there), strict=True):
        if old_name == harness.activation.tool:
            wanted, found = skill_id(harness, old), skill_id(state.harness, new)
            assert name == state.harness.activation.tool
            assert found == wanted
            continue
        before, after = canonical_call(harness, old_name, old), canonicalise_call(state, name, new)
        if isinstance(before, CanonicalCall):
            assert after == before
        else:
            assert not isinstance(after, CanonicalCall)
            assert after.tool == before.tool


def calls(messages: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return [(c["function"]["name"], c["function"]["arguments"]) for m in messages for c in m.get("tool_calls", ())]


def skill_id(harness: Harness, arguments: dict[str, Any]) -> str:
    skill = harness.skill(arguments[harness.activation.parameter])
    assert skill is not None
    return skill.id


@settings(max_examples=100, deadline=None)
@given(sessions(), operators(), seeds)
def test_no_old_name_is_left_in_code_or_calls(session, chosen, seed):
    harness, messages = session
    chosen = [op for op in chosen if "misleading" not in getattr(op, "modes", {})]
    state = apply(harness, chosen, seed, TRAINED, held_out=HELD_OUT)
    renamed = {name for rewrite in state.rewrites for names in rewrite.names.values() for name in names}
    made = state.harness
    still = {made.activation.tool, made.activation.parameter, *(part.name for part in (*made.tools, *made.skills))}
    still |= {name for tool in made.tools for name in all_properties(tool.parameters)}
    gone = renamed - still
    there = rewrite_trajectory(state, messages, lambda harness: render_system(harness, ROOM))
    texts = [skill.body for skill in made.skills] + [prompt.text for prompt in made.prompts]
    texts += [message["content"] for message in there if message["role"] in ("system", "assistant")]
    words = {
        word
        for text in texts
        for code in re.findall("`[^`]+`", re.sub("```.*?```", "", text, flags=re.S))
        for word in re.findall(r"[\w-]+", code)
    }
    assert not gone & words
    assert not gone & {name for name, _ in calls(there)}


def all_properties(schema: Any) -> set[str]:
    if not isinstance(schema, dict):
        return set()
    found = set(schema.get("properties", {}))
    for inner in schema.get("properties", {}).values():
        found |= all_properties(inner)
    return found


def test_every_form_of_reference_is_followed():
    tool = Tool(
        id="find",
        name="find_item",
        description="see `item`",
        parameters={"type": "object", "properties": {"item": {"type": "string", "description": "the `item` itself"}}},
    )
    body = (
        '`find_item` `find_item.item` `find_item(item="x")` `item=red` `use_skill(skill=\'help\')` `skill="help"` '
        "`help` find_item item `find_item --item`\n"
        '```json\n{"name": "find_item", "arguments": {"item": "find_item"}}\n```'
    )
    harness = Harness(
        name="forms",
        skills=(Skill(id="help", name="help", description="d", body=body, tools=("find",)),),
        tools=(tool,),
        prompts=(Prompt(id="p", section="rules", text="use `find_item`"),),
        hooks=(Hook(id="h", event="stop", when='"find" in calls', action="require", message="call `find_item`"),),
        few_shots=(
            FewShot(
                id="f",
                messages=(
                    {"role": "user", "content": "hi"},
                    {
                        "role": "assistant",
                        "content": "",
                        "reasoning_content": "see `item`:find_item(item",
                        "tool_calls": [
                            {
                                "id": "1",
                                "type": "function",
                                "function": {"name": "find_item", "arguments": {"item": "x"}},
                            }
                        ],
                    },
                ),
            ),
        ),
    )
    chosen = [ToolName(), ParameterName(), ActivationName(), SkillName()]
    state = apply(harness, chosen, 3, TRAINED, held_out=HELD_OUT)
    made, names = state.harness, {}
    for rewrite in state.rewrites:
        for mapping in rewrite.names.values():
            names.update(mapping)
    f, i, u, s, h = (names[name] for name in ("find_item", "item", "use_skill", "skill", "help"))
    assert made.skills[0].body == (
        f'`{f}` `{f}.{i}` `{f}({i}="x")` `{i}=red` `{u}({s}=\'{h}\')` `{s}="{h}"` `{h}` find_item item `find_item --item`\n'
        f'```json\n{{"name": "{f}", "arguments": {{"{i}": "find_item"}}}}\n```'
    )
    assert made.tools[0].description == f"see `{i}`"
    assert made.tools[0].parameters["properties"][i]["description"] == f"the `{i}` itself"
    assert made.prompts[0].text == f"use `{f}`"
    assert made.hooks[0].message == f"call `{f}`"
    assert made.hooks[0].when == '"find" in calls'
    shot = made.few_shots[0].messages[1]
    assert shot["reasoning_content"] == f"see `{i}`:{f}({i}"
    assert shot["tool_calls"][0]["function"] == {"name": f, "arguments": {i: "x"}}


def test_a_parameter_is_followed_to_the_tool_that_the_text_speaks_of():
    def tool(name: str) -> Tool:
        return Tool(
            id=name,
            name=name,
            description="d",
            parameters={"type": "object", "properties": {"item": {"type": "string"}}},
        )

    harness = Harness(
        name="two",
        tools=(tool("first_one"), tool("second_one")),
        prompts=(Prompt(id="p", section="rules", text="give `second_one` the `item` , then `first_one` its `item`"),),
    )
    for seed in range(20):
        made = apply(harness, [ParameterName(modes={"random": 1.0})], seed, TRAINED).harness
        one, two = (next(iter(tool.parameters["properties"])) for tool in made.tools)
        assert made.prompts[0].text == f"give `second_one` the `{two}` , then `first_one` its `{one}`"


def test_retyped_calls_in_fenced_blocks_take_the_new_types():
    tool = Tool(
        id="n", name="n", description="d", parameters={"type": "object", "properties": {"count": {"type": "integer"}}}
    )
    text = 'like this:\n```json\n{"name": "n", "arguments": {"count": 3}}\n```'
    harness = Harness(name="fence", tools=(tool,), prompts=(Prompt(id="p", section="rules", text=text),))
    made = apply(harness, [ParameterType(kinds=("integer_string",), share=1.0)], 1, TRAINED).harness
    assert made.prompts[0].text == text.replace("3", '"3"')


def test_text_comparisons_cannot_pass_by_accident():
    rng = Random(4)
    from tests.augmentation.strategies import make_harness

    harness = make_harness(rng)
    made = apply(harness, [ToolName(), SkillName()], 5, TRAINED).harness
    assert {tool.name for tool in made.tools}.isdisjoint(tool.name for tool in harness.tools)
    assert {skill.name for skill in made.skills}.isdisjoint(skill.name for skill in harness.skills)
