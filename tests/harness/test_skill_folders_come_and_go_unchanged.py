"""Any Agent Skills folder can be taken in and given back byte for byte; what is wrong is told, or noted when lenient."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hat_harness.errors import LoadError
from hat_harness.load import load_harness, read_folder, save_harness
from hat_harness.skills_folder import (
    SOURCE,
    add_skills,
    export_skill,
    import_skill,
    import_skills,
    parse_skill,
    skill_files,
)
from hat_harness.validate import validate
from tests.harness.kit import small

PLAIN = b"---\nname: pdf\ndescription: read PDF files\n---\n\n# PDF\n\nUse `scripts/read.py`.\n"
WILD: dict[str, bytes] = {
    "comments and order": b"---\n# ours\ndescription: 'read'\nname: pdf\nlicense: MIT\n---\nBody.\n",
    "crlf": b"---\r\nname: pdf\r\ndescription: read\r\n---\r\nOne.\r\nTwo.\r\n",
    "byte order mark": b"\xef\xbb\xbf---\nname: pdf\ndescription: read\n---\nOne.\n",
    "unknown keys": b"---\nname: pdf\ndescription: read\nversion: 1.2\nmodel: large\n---\nOne.\n",
    "a colon without quotes": b"---\nname: pdf\ndescription: Use when: the user has a PDF\n---\nOne.\n",
    "metadata that is no text": b"---\nname: pdf\ndescription: r\nmetadata:\n  version: 1.0\n  tags: [a, b]\n---\nOne.\n",
    "tools of another host": b"---\nname: pdf\ndescription: r\nallowed-tools: Read, Bash(git add:*), get_item\n---\nOne.",
    "no front matter": b"# Reads PDF\n\nIt reads.\n",
    "no description": b"---\nname: pdf\n---\n\n\n## Reads PDF files\nmore\n",
    "another name": b"---\nname: pdf_reader\ndescription: r\n---\nx\n",
    "a long description": b"---\nname: pdf\ndescription: " + b"long " * 400 + b"\n---\nx\n",
    "no body": b"---\nname: pdf\ndescription: r\n---\n",
    "no end of line": b"---\nname: pdf\ndescription: r\n---",
    "control characters": b"---\nname: pdf\ndescription: r\n---\na\x1b[31mb\x7f\n",
    "our own words": b"---\nname: pdf\ndescription: r\nmetadata:\n  kind: odd\n  name: 9 x\n---\nx\n",
}


def folder(root: Path, name: str, skill: bytes, **files: bytes) -> Path:
    made = root / name
    (made / "scripts").mkdir(parents=True)
    (made / "SKILL.md").write_bytes(skill)
    for path, content in files.items():
        (made / path.replace("__", "/")).write_bytes(content)
    return made


def test_a_folder_comes_back_through_a_saved_harness(tmp_path: Path) -> None:
    """Scripts and binaries too, which are listed and never run."""
    given_ = folder(tmp_path, "pdf", PLAIN, scripts__read=b"#!/bin/sh\ntouch ran\n", data=b"\0\1\xff")
    one = import_skill(given_)
    assert one.skill.resources == ("data", "scripts/read")
    assert (one.notes, dict(one.aliases)) == ((), {})
    save_harness(add_skills(small(), [one]), tmp_path / "harness")
    export_skill(load_harness(tmp_path / "harness"), "pdf", tmp_path / "out")
    assert read_folder(tmp_path / "out") == read_folder(given_)
    assert not list(tmp_path.rglob("ran"))


@pytest.mark.parametrize("case", WILD)
def test_what_is_found_in_the_wild_is_taken_and_given_back(case: str, tmp_path: Path) -> None:
    one = parse_skill({"SKILL.md": WILD[case]}, "pdf", lenient=True, tools=["get_item", "order"])
    harness = add_skills(small(), [one])
    assert validate(harness) == []
    save_harness(harness, tmp_path / "harness")
    again = load_harness(tmp_path / "harness")
    assert again == harness
    assert skill_files(again, one.skill.id) == {"SKILL.md": WILD[case]}


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("unknown keys", "SKILL.md:4: unknown key version"),
        ("a colon without quotes", "SKILL.md:3: not YAML"),
        ("metadata that is no text", "metadata.version: not a text"),
        ("tools of another host", "allowed-tools: no tool Read,"),
        ("no front matter", "SKILL.md:1: no front matter"),
        ("no description", "description: missing"),
        ("another name", "SKILL.md:2: name: 'pdf_reader' is not the folder's name, pdf"),
        ("a long description", "description: longer than 1024 characters"),
    ],
)
def test_strict_says_what_the_format_forbids(case: str, expected: str) -> None:
    with pytest.raises(LoadError) as caught:
        parse_skill({"SKILL.md": WILD[case]}, "pdf", tools=["get_item"])
    assert expected in str(caught.value)
    assert parse_skill({"SKILL.md": WILD[case]}, "pdf", lenient=True, tools=["get_item"]).notes


def test_ids_that_the_format_forbids_have_an_alias(tmp_path: Path) -> None:
    one = parse_skill({"SKILL.md": b"---\nname: item_faq\ndescription: d\n---\nx\n"}, "item_faq", lenient=True)
    assert (one.folder, one.skill.id, one.skill.name, dict(one.aliases)) == (
        "item-faq",
        "item_faq",
        "item_faq",
        {"item-faq": "item_faq"},
    )
    save_harness(add_skills(small(), [one]), tmp_path / "h")
    assert load_harness(tmp_path / "h").skill("item_faq") is not None
    digit = parse_skill({"SKILL.md": b"---\nname: 3d-print\ndescription: d\n---\nx\n"}, "3d-print")
    assert (digit.skill.id, digit.skill.name) == ("3d-print", "_3d-print")


def test_an_edited_skill_is_written_anew_and_keeps_the_front_matter_while_it_is_true() -> None:
    data = b"---\n# kept\nname: pdf\ndescription: read\n---\nOld.\n"
    harness = add_skills(small(skills=()), [parse_skill({"SKILL.md": data}, "pdf")])
    body = harness.model_copy(update={"skills": (harness.skills[0].model_copy(update={"body": "New."}),)})
    assert skill_files(body, "pdf") == {"SKILL.md": data.replace(b"Old.", b"New.")}
    told = harness.model_copy(update={"skills": (harness.skills[0].model_copy(update={"description": "write"}),)})
    assert skill_files(told, "pdf") == {"SKILL.md": b"---\nname: pdf\ndescription: write\n---\nOld.\n"}


def test_plain_skills_carry_nothing_of_ours() -> None:
    one = parse_skill({"SKILL.md": b"---\nname: pdf\ndescription: read\n---\nOld.\n"}, "pdf")
    assert SOURCE not in one.skill.metadata


def test_a_folder_of_skills_and_names_that_are_taken(tmp_path: Path) -> None:
    for name in ("a", "b"):
        folder(tmp_path, name, PLAIN.replace(b"name: pdf", b"name: " + name.encode()))
    found = import_skills(tmp_path)
    assert [one.skill.id for one in found] == ["a", "b"]
    harness = add_skills(small(), found)
    with pytest.raises(LoadError, match="the skill a is there already"):
        add_skills(harness, found)
    with pytest.raises(LoadError, match=r"no folder with a SKILL\.md"):
        import_skills(tmp_path / "a")


FIELDS = st.sampled_from(
    [
        "name: pdf",
        "name: x y",
        "description: d",
        "description: a: b",
        "version: 1.0",
        "metadata: {a: 1}",
        "- x",
        "a: &b c",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(FIELDS, max_size=5), st.text(max_size=30), st.booleans())
def test_any_text_is_taken_back_or_refused_with_a_place(fields: list[str], body: str, fenced: bool) -> None:
    text = "\n".join([*(["---"] if fenced else []), *fields, *(["---"] if fenced else []), body])
    data = text.encode(errors="replace")
    try:
        one = parse_skill({"SKILL.md": data}, "pdf", lenient=True)
    except LoadError:
        return
    assert skill_files(add_skills(small(), [one]), one.skill.id) == {"SKILL.md": data}


def test_a_skill_of_100_mb_is_refused_unread(tmp_path: Path) -> None:
    given_ = folder(tmp_path, "pdf", PLAIN)
    with (given_ / "scripts" / "model.bin").open("wb") as file:
        file.truncate(100 << 20)
    began = time.process_time()
    with pytest.raises(LoadError, match="more than 2000 files or 32 MiB"):
        import_skill(given_, lenient=True)
    # Reading 100 MB costs more than this bound on any machine that takes part; it is generous for the refusal.
    assert time.process_time() - began < 5
    with pytest.raises(LoadError, match="larger than 1024 KiB"):
        parse_skill({"SKILL.md": PLAIN + b"x" * (1 << 20)}, "pdf", lenient=True)


@pytest.mark.parametrize("names", [("a.md", "A.md"), ("caf\u00e9.md", "cafe\u0301.md"), ("s/x", "S/y")])
def test_names_that_differ_by_case_or_unicode_form_only_are_refused(names: tuple[str, str]) -> None:
    files = {"SKILL.md": PLAIN, **dict.fromkeys(names, b"x")}
    with pytest.raises(LoadError, match="by case or Unicode form only"):
        parse_skill(files, "pdf", lenient=True)


def test_links_and_a_second_spelling_of_the_file(tmp_path: Path) -> None:
    given_ = folder(tmp_path, "pdf", PLAIN)
    (given_ / "SKILL.md").rename(given_ / "skill.md")
    with pytest.raises(LoadError, match=r"SKILL\.md: missing"):
        import_skill(given_)
    one = import_skill(given_, lenient=True)
    assert skill_files(add_skills(small(), [one]), "pdf") == {"skill.md": PLAIN}
    (given_ / "key").symlink_to("/etc/hostname")
    with pytest.raises(LoadError, match="a symbolic link"):
        import_skill(given_, lenient=True)
