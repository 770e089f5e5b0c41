"""A rename is one change, a retyped parameter says its types, and equal harnesses differ in nothing."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hat_harness.diff import diff, words
from hat_harness.diff_page import diff_page
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


class Seen(HTMLParser):
    """Tags, attributes and texts of a page, as a browser reads them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


EVIL = '<script>alert(1)</script> <img src=x onerror="a()"> & " \' </pre></style>'


def test_the_page_needs_nothing_else_and_runs_nothing() -> None:
    old = base()
    evil = old.skills[0].model_copy(update={"body": EVIL * 3, "description": EVIL})
    tool = old.tools[0].model_copy(
        update={"description": EVIL, "parameters": {"type": "object", "properties": {EVIL: {}}}}
    )
    new = old.model_copy(update={"skills": (evil,), "tools": (tool,), "description": EVIL})
    changes = diff(old, new)
    page = diff_page(old, new, changes)
    seen = Seen(page)
    assert seen.open == []
    known = {"html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "code", "section", "ul", "li"}
    assert {tag for tag, _ in seen.tags} <= {*known, "span", "pre", "ins", "del"}
    assert all(not name.startswith("on") and name not in ("src", "href") for _, found in seen.tags for name in found)
    text = "".join(seen.texts)
    assert EVIL in text
    assert "http://" not in page
    assert "https://" not in page
    for change in changes:
        assert change.path.split(" / ")[0] in text


def test_every_change_is_on_the_page_with_what_was_and_what_is() -> None:
    old = base()
    prompt = old.prompts[0].model_copy(
        update={"text": "be kind and brief , always , in every reply that viewers read ."}
    )
    skill = old.skills[0].model_copy(update={"name": "product_flow"})
    new = old.model_copy(update={"prompts": (prompt,), "skills": (skill,)})
    page = diff_page(old, new, diff(old, new))
    assert "item_qa</code>" in page
    assert "product_flow</code>" in page
    assert "<ins>" in page
    assert "renamed" in page
    assert "no difference" in diff_page(old, old, ())


def test_the_command_writes_the_page(hat: Any, tmp_path: Path) -> None:
    target = tmp_path / "new" / "diff.html"
    done = hat("harness", "diff", "live-commerce", "live-commerce-zh", "--html", target, "--output", "json")
    assert (done.code, done.json()["equal"]) == (0, False)
    seen = Seen(target.read_text(encoding="utf-8"))
    assert "live-commerce → live-commerce-zh" in "".join(seen.texts)
    assert [path.name for path in target.parent.iterdir()] == ["diff.html"]
    refused = hat("harness", "diff", "live-commerce", "react-baseline", "--html", tmp_path)
    assert (refused.code, "cannot be written" in refused.err) == (3, True)
