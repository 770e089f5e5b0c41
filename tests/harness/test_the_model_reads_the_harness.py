"""What the model reads of a harness, in every layout."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hat_harness.render import (
    activation_line,
    activation_quote,
    parts_cost,
    render_result,
    render_skill,
    render_system,
    skill_line,
    skill_quote,
    tool_definitions,
    tool_line,
    tool_quote,
)
from hat_harness.spec import Harness, Layout, Prompt
from hat_harness.templates import TemplateError, compile_template, fill_core, render_template
from tests.harness.kit import small
from tests.harness.strategies import harnesses


def test_the_system_prompt_has_the_sections_in_order() -> None:
    assert render_system(
        small(), {"list": ["red mug", "lamp"], "stage": {"item": "mug", "live": True}, "empty": []}
    ) == (
        "# skills\n"
        "*answer about a product:item_qa\n"
        "*talk:chat\n"
        "# tools\n"
        "*load a skill first:use_skill(skill)\n"
        "*look up one product:get_item(item)\n"
        "*order it:order(item)\n"
        "# rules\n"
        "end every reply with = bye\n"
        "# room\n"
        'list : "red mug" "lamp"\n'
        'stage : item "mug" live "yes"'
    )


def test_layouts_change_the_form_and_quotes_stay_inside_the_line() -> None:
    layout = Layout(
        section='{{"{title}": [{body}]}}',
        skill='{{"{description}": "{name}"}}',
        tool="/{description}={name}[{parameters}]!",
        join=", ",
        result="<{result}>",
    )
    harness = small(layout=layout, sections=("tools", "skills"), prompts=())
    skill, tool = harness.skills[0], harness.tools[0]
    assert skill_line(harness, skill) == '{"answer about a product": "item_qa"}'
    assert skill_quote(harness, skill) == 'answer about a product": "item_qa'
    assert tool_line(harness, tool) == "/look up one product=get_item[item]!"
    assert tool_quote(harness, tool) == "look up one product=get_item[item"
    assert activation_quote(harness) == "load a skill first=use_skill[skill"
    assert render_system(harness).startswith('{"tools": [/load a skill first=use_skill[skill]!, /look up')
    assert render_result(harness, "x") == "<x>"
    assert render_skill(harness, skill.model_copy(update={"resources": ("a.md", "b.md")})).endswith(
        'files : "a.md" "b.md"'
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(harnesses())
def test_every_quote_stands_in_its_line_and_every_line_in_the_prompt(harness: Harness) -> None:
    prompt = render_system(harness)
    lines = [(skill_line(harness, s), skill_quote(harness, s)) for s in harness.skills]
    if harness.layout.tools != "schema":
        lines += [(tool_line(harness, t), tool_quote(harness, t)) for t in harness.tools]
        if harness.skills:
            lines.append((activation_line(harness), activation_quote(harness)))
    for line, quote in lines:
        assert quote in line
        assert line in prompt
    assert (tool_definitions(harness) == ()) is (
        harness.layout.tools == "inline" or not (harness.tools or harness.skills)
    )


def test_tools_go_beside_the_prompt_when_the_layout_says_so() -> None:
    harness = small(layout=Layout(tools="schema"))
    assert "get_item" not in render_system(harness)
    names = [item["function"]["name"] for item in tool_definitions(harness)]
    assert names == ["use_skill", "get_item", "order"]
    assert tool_definitions(harness)[0]["function"]["parameters"]["properties"]["skill"]["enum"] == ["item_qa", "chat"]
    assert "get_item" in render_system(small(layout=Layout(tools="both")))
    assert "use_skill" not in render_system(small(skills=()))


def test_prompts_of_a_section_stand_in_order_and_name_it() -> None:
    prompts = (
        Prompt(id="b", section="rules", text="second", order=1),
        Prompt(id="a", section="rules", text="third", order=1, title="ignored"),
        Prompt(id="z", section="rules", text="first", title="House rules"),
        Prompt(id="intro", section="skills", text="pick one"),
    )
    prompt = render_system(small(prompts=prompts, layout=Layout(section="{TITLE}\n{body}")))
    assert "HOUSE RULES\nfirst\nthird\nsecond" in prompt
    assert prompt.startswith("SKILLS\npick one\n*answer")


def test_the_cost_of_parts_names_every_part() -> None:
    costs = parts_cost(small(), {"list": ["a"]}, lambda text: len(text.split()))
    assert [path for path, _ in costs] == [
        "section/skills", "skills/item_qa", "skills/chat", "section/tools", "activation", "tools/get_item", "tools/order",
        "section/rules", "prompts/rules.md", "section/room", "room",
    ]  # fmt: skip
    assert sum(cost for _, cost in costs) == len(render_system(small(), {"list": ["a"]}).split())
    schema = parts_cost(small(layout=Layout(tools="schema")), None, len)
    assert [path for path, _ in schema][-3:] == ["definitions/use_skill", "definitions/get_item", "definitions/order"]


@pytest.mark.parametrize(
    "template", ["{0}", "{}", "{name.x}", "{name[0]}", "{name!r}", "{name:>9}", "{other}", "{", "}", "{name"]
)
def test_templates_are_names_in_braces_and_nothing_else(template: str) -> None:
    with pytest.raises(TemplateError):
        compile_template(template, ("name",))


@given(st.text(), st.text(), st.text())
def test_values_are_never_read_as_templates(before: str, value: str, after: str) -> None:
    template = (
        "".join(c * 2 if c in "{}" else c for c in before)
        + "{name}"
        + "".join(c * 2 if c in "{}" else c for c in after)
    )
    assert render_template(template, ("name",), {"name": value}) == before + value + after
    assert fill_core(compile_template(template, ("name",)), {"name": value}) == value
    assert fill_core(compile_template("text", ("name",)), {"name": value}) == ""
