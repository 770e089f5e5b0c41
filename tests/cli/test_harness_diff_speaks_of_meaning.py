"""A rename is one change, a retyped parameter says its types, and equal harnesses differ in nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hat_harness.diff import diff, words
from hat_harness.spec import Harness, Hook, Prompt, Skill, Tool


def base() -> Harness:
    schema = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
    return Harness(
        name="shop",
        prompts=(Prompt(id="rules", section="rules", text="be kind"),),
        skills=(
            Skill(id="item_qa", name="item_qa", description="facts", body="use facts"),
            Skill(id="greet", name="greet", description="hello", body="say hello"),
        ),
        tools=(Tool(id="get_item", name="get_item", description="read", parameters=schema),),
        hooks=(Hook(id="gate", event="stop", when="reply == ''", action="require", message="say something"),),
    )


def told(old: Harness, new: Harness) -> list[tuple[str, str]]:
    return [(change.kind, change.path) for change in diff(old, new)]


def test_equal_harnesses_have_no_difference() -> None:
    assert diff(base(), base()) == ()


def test_a_rename_is_one_change() -> None:
    old = base()
    renamed = old.skills[0].model_copy(update={"name": "product_flow"})
    assert told(old, old.model_copy(update={"skills": (renamed, old.skills[1])})) == [("renamed", "skill item_qa")]


def test_a_changed_id_is_a_rename_and_neither_a_removal_nor_an_addition() -> None:
    old = base()
    moved = old.skills[0].model_copy(update={"id": "product_qa", "name": "product_qa"})
    assert told(old, old.model_copy(update={"skills": (moved, old.skills[1])})) == [("renamed", "skill item_qa / id")]


def test_a_renamed_and_retyped_parameter_is_told_apart() -> None:
    old = base()
    schema = {"type": "object", "properties": {"sku": {"type": "integer"}}, "required": ["sku"]}
    tool = old.tools[0].model_copy(update={"parameters": schema, "parameter_names": {"item": "sku"}})
    changes = diff(old, old.model_copy(update={"tools": (tool,)}))
    path = "tool get_item / parameter item"
    assert [(c.kind, c.path, c.before, c.after) for c in changes] == [
        ("renamed", path, "item", "sku"),
        ("retyped", path, "string", "integer"),
    ]
    assert str(changes[1]) == "tool get_item / parameter item retyped: string -> integer"


def test_order_and_sections_are_moves() -> None:
    old = base()
    new = old.model_copy(update={"skills": old.skills[::-1], "sections": ("tools", "skills", "rules", "room")})
    assert told(old, new) == [("moved", "skills"), ("moved", "sections")]


def test_added_and_removed_parts_and_changed_texts_are_told() -> None:
    old = base()
    hook = old.hooks[0].model_copy(update={"message": "answer"})
    new = old.model_copy(update={"skills": old.skills[:1], "tools": (), "hooks": (hook,)})
    assert told(old, new) == [
        ("removed", "skill greet"),
        ("removed", "tool get_item"),
        ("changed", "hook gate / message"),
    ]
    assert ("added", "skill greet") in told(new, old)


@given(st.text(max_size=60), st.text(max_size=60))
def test_words_can_be_put_together_again(before: str, after: str) -> None:
    parts = words(before, after)
    assert "".join(text for kind, text in parts if kind != "added") == before
    assert "".join(text for kind, text in parts if kind != "removed") == after
