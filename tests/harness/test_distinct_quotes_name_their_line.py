"""The short quote of a catalogue line stands in the line, ends with the name, and begins with a word of this line alone."""

from __future__ import annotations

import pytest

from hat_harness.load import load_harness
from hat_harness.render import distinct_quote, render_system, skill_quote, tool_quote
from hat_harness.spec import Harness, Layout, Skill, Tool

SCHEMA = {"type": "object", "properties": {"item": {"type": "string"}}}


def make(*descriptions: str, layout: Layout | None = None) -> Harness:
    skills = tuple(Skill(id=f"s{n}", name=f"s{n}", description=text, body="x") for n, text in enumerate(descriptions))
    tools = (Tool(id="get", name="get", description="read one product record", parameters=SCHEMA),)
    return Harness(name="x", skills=skills, tools=tools, layout=layout or Layout())


def quotes(harness: Harness) -> list[str]:
    return [distinct_quote(harness, part) for part in (*harness.skills, *harness.tools, harness.activation)]


def test_words_that_lines_share_are_skipped() -> None:
    harness = make("steps for coupon , total", "steps to compare two products", "read what the buyer owns")
    assert quotes(harness) == [
        " for coupon , total:s0",
        " to compare two products:s1",
        " what the buyer owns:s2",
        " one product record:get(item",
        "load a skill first:use_skill(skill",
    ]


def test_a_line_without_a_word_of_its_own_is_quoted_whole() -> None:
    assert quotes(make("one product", "friendly talk"))[0] == "one product:s0"


def test_case_makes_no_word_distinct() -> None:
    assert quotes(make("Read coupons", "talk"))[0] == " coupons:s0"


def test_chinese_lines_begin_at_a_character_of_their_own() -> None:
    assert quotes(make("读取商品", "读取优惠"))[:2] == ["商品:s0", "优惠:s1"]


def test_a_line_that_begins_with_its_name_is_quoted_whole() -> None:
    layout = Layout(skill="{name} - {description}")
    harness = make("steps for coupon", "steps to compare", layout=layout)
    assert (
        distinct_quote(harness, harness.skills[0]) == skill_quote(harness, harness.skills[0]) == "s0 - steps for coupon"
    )


@pytest.mark.parametrize("name", ["live-commerce", "live-commerce-zh"])
def test_in_the_shipped_harnesses_every_quote_is_the_end_of_its_line_and_stands_once(repository, name: str) -> None:
    harness = load_harness(repository / "harness-registry" / "harnesses" / name)
    prompt = render_system(harness, {})
    for part in (*harness.skills, *harness.tools):
        quote = distinct_quote(harness, part)
        whole = skill_quote(harness, part) if isinstance(part, Skill) else tool_quote(harness, part)
        assert whole.endswith(quote)
        assert prompt.count(quote) == 1
        assert part.name in quote
