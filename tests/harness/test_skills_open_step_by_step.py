"""Progressive disclosure: the catalogue names a skill, activating it gives its body, `skill/path` gives a file of it."""

from __future__ import annotations

from typing import Any

import pytest

from hat_harness import events as ev
from hat_harness.augment import rewrite_trajectory
from hat_harness.augment.engine import apply
from hat_harness.augment.operators import SkillName
from hat_harness.augment.words import Words
from hat_harness.drive import run_batch
from hat_harness.render import activation_schema, render_system
from hat_harness.resources import MOST, room_for
from hat_harness.spec import File, Harness, Layout, Limits
from hat_harness.tape import dump, replay
from hat_harness.trace import turns
from tests.harness.kit import Scripted, Shop, ask, output, session, small, texts

RULES, LONG = "refund within 7 days", "word " * 10_000


def with_files(**changes: Any) -> Harness:
    base = small(**changes)
    skill = base.skills[0].model_copy(update={"resources": ("long.md", "photo.png", "rules.md")})
    files = (
        File(path="skills/item-qa/long.md", content=LONG),
        File(path="skills/item-qa/photo.png", content="AAEC", encoding="base64"),
        File(path="skills/item-qa/rules.md", content=RULES),
    )
    return base.model_copy(update={"skills": (skill, base.skills[1]), "files": files})


def played(harness: Harness, *names: str) -> Any:
    """A session in which the model passes each name to the activation tool in turn."""
    one = session(harness)
    steps = [lambda c, name=name: output(c, "", ask("use_skill", skill=name)) for name in names]
    run_batch([(one, [ev.ViewerMessage(("x",))])], Scripted(*steps, lambda c: output(c, "ok")), Shop())
    return one


def test_catalogue_then_body_then_file() -> None:
    harness = with_files()
    assert RULES not in render_system(harness)
    one = played(harness, "item_qa", "item_qa/rules.md")
    body, file = texts(one.context, "tool")
    assert body == 'open with "hi" .\nfiles : "long.md" "photo.png" "rules.md"'
    assert file == RULES
    assert turns(one.trace)[0].skills == ("item_qa",)
    note = next(entry for entry in one.trace.entries if entry.type == "resource")
    assert note.data["path"] == "rules.md"
    assert dump(replay(one.trace, session(harness))) == dump(one.trace)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("item_qa/rules.md",), 'error : load "item_qa" before its files'),
        (("item_qa", "item_qa/rule.md"), 'error : no file "rule.md" in "item_qa" , files are "rules.md"'),
        (("item_qa", "item_qa/../../harness.yaml"), 'error : no file "../../harness.yaml" in "item_qa"'),
        (("item_qa", "item_qa//etc/hostname"), 'error : no file "/etc/hostname" in "item_qa"'),
        (("item_qa", "item_qa/photo.png"), '"photo.png" is no text , 3 bytes'),
        (("nope/rules.md",), 'error : no skill "nope/rules.md" , skills are "item_qa" "chat"'),
    ],
)
def test_what_cannot_be_read_is_told(names: tuple[str, ...], text: str) -> None:
    assert texts(played(with_files(), *names).context, "tool")[-1].startswith(text)


def test_files_are_bounded_in_length_and_number() -> None:
    harness = with_files(limits=Limits(segment_tokens=4000, tool_calls=2, model_calls=20))
    read = texts(played(harness, "item_qa", *["item_qa/long.md"] * 3).context, "tool")
    assert room_for(harness) == 4000 < MOST
    assert read[1] == LONG[:4000] + "\n( cut , 50000 characters in all )"
    assert read[-1] == "error : no more tool calls in this turn"


def test_the_schema_allows_files_only_where_there_are_some() -> None:
    assert "enum" in activation_schema(small(layout=Layout(tools="schema")))["properties"]["skill"]
    assert "enum" not in activation_schema(with_files())["properties"]["skill"]


def test_a_renamed_skill_takes_its_files_along() -> None:
    harness = with_files()
    state = apply(harness, [SkillName(modes={"random": 1.0})], 3, Words(names={"": ("amber", "birch", "cedar")}))
    new = next(skill.name for skill in state.harness.skills if skill.id == "item_qa")
    assert new != "item_qa"
    context = played(harness, "item_qa", "item_qa/rules.md").context
    made = rewrite_trajectory(state, list(context), system=lambda h: render_system(h))
    asked = [call.arguments["skill"] for message in made for call in message.tool_calls]
    assert asked == [new, f"{new}/rules.md"]
    assert texts(played(state.harness, *asked).context, "tool")[-1] == RULES
