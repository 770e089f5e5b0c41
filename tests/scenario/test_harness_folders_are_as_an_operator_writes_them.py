"""The shipped harness folders: valid, small enough for the small model, and with the inventory of the live room."""

from __future__ import annotations

import re

import pytest

from hat_harness.load import load_harness
from hat_harness.render import render_skill, render_system
from hat_harness.spec import Harness
from hat_scenarios.live_commerce import LiveCommerce

from .conftest import HARNESSES

PIECE = re.compile(r"_[A-Za-z]+| ?[A-Za-z]+| ?\d+| ?[^\sA-Za-z\d]|\n")
REPLY = [
    "item_qa",
    "chillchat",
    "aftersale",
    "clarification",
    "faq_reply",
    "refusal",
    "thanks",
    "greet",
    "general_discount",
    "change_order",
]
STRATEGY = ["tool_strategy_benefit", "tool_strategy_compare", "tool_strategy_multi", "tool_strategy_switch"]
FOLDERS = sorted(path.name for path in HARNESSES.iterdir() if (path / "harness.yaml").is_file())


@pytest.mark.parametrize("name", FOLDERS)
def test_every_folder_loads_under_its_own_name(name: str) -> None:
    assert load_harness(HARNESSES / name).name == name


def test_the_live_room_has_its_inventory(live: Harness) -> None:
    assert [skill.id for skill in live.skills if skill.kind == "reply"] == REPLY
    assert [skill.id for skill in live.skills if skill.kind == "strategy"] == STRATEGY
    assert {hook.action for hook in live.hooks} == {"silence", "require", "block"}
    assert {hook.event for hook in live.hooks} == {"stop", "after_tool"}


def test_the_baseline_is_one_prompt(baseline: Harness) -> None:
    assert baseline.skills == () == baseline.hooks
    assert len(baseline.prompts) == 1


def test_the_chinese_folder_says_the_same_part_by_part(live: Harness, chinese: Harness) -> None:
    assert chinese.language == "zh"
    assert [(skill.id, skill.name, skill.kind, skill.tools) for skill in chinese.skills] == [
        (skill.id, skill.name, skill.kind, skill.tools) for skill in live.skills
    ]
    assert [(hook.id, hook.event, hook.action, list(hook.arguments)) for hook in chinese.hooks] == [
        (hook.id, hook.event, hook.action, list(hook.arguments)) for hook in live.hooks
    ]
    assert [tool.name for tool in chinese.tools] == [tool.name for tool in live.tools]
    texts = [part.description for part in (*chinese.skills, *chinese.tools)] + [hook.message for hook in chinese.hooks]
    texts += [skill.body for skill in chinese.skills] + [prompt.text for prompt in chinese.prompts]
    assert all(re.search(r"[\u4e00-\u9fff]", text) for text in texts)
    assert all(not re.search(r"[\u4e00-\u9fff]", skill.name) for skill in chinese.skills)


@pytest.mark.parametrize("name", ["live-commerce", "react-baseline"])
def test_the_system_prompt_stays_small(name: str) -> None:
    """A token a piece is what a tokeniser with these words gives."""
    scenario = LiveCommerce()
    harness = load_harness(HARNESSES / name)
    prompt = render_system(harness, scenario.room_view(scenario.item(1, "test", 0)))
    assert len(PIECE.findall(prompt)) <= 400
    assert all(len(PIECE.findall(render_skill(harness, skill))) <= 40 for skill in harness.skills)
    assert prompt == prompt.lower()
