"""Every bad folder is refused with the file, the line and a cure, all problems at once, and within bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hat_harness.errors import LoadError
from hat_harness.load import MAX_FILES, load_harness, parse_files, save_harness
from hat_harness.reading import MAX_FILE, ReadError, read_json, read_yaml
from hat_harness.save import harness_files
from tests.harness.kit import GATE, small

SKILL = b"---\nname: new\ndescription: d\n"
FILES = harness_files(small(hooks=(GATE,)))


def problems(changes: dict[str, bytes | None], strict: bool = True) -> list[str]:
    files = {path: data for path, data in {**FILES, **changes}.items() if data is not None}
    try:
        parse_files(files, strict=strict)
    except LoadError as error:
        return [str(problem) for problem in error.problems]
    return []


def edited(path: str, old: str, new: str) -> dict[str, bytes | None]:
    text = FILES[path].decode()
    assert old in text
    return {path: text.replace(old, new, 1).encode()}


def test_all_problems_come_at_once_with_file_line_and_cure() -> None:
    found = problems(
        {
            **edited("harness.yaml", "sections:", "secitons:"),
            **edited("hooks/gate.yaml", "  message:", "  mesage:"),
            **edited("prompts/rules.md", "section: rules", "section: 3"),
            **edited("skills/chat/SKILL.md", "name: chat\n", "name: chit\n"),
            **edited("tools/order.json", '"description"', '"descriptoin"'),
        }
    )
    assert found == [
        "harness.yaml:5: unknown key secitons (did you mean sections?)",
        "hooks/gate.yaml:5: unknown key mesage (did you mean message?)",
        "prompts/rules.md:2: section: Input should be a valid string",
        "skills/chat/SKILL.md:2: name: must be the folder's name, chat",
        "tools/order.json:1: description: Input should be a valid string",
        "tools/order.json:3: unknown key descriptoin (did you mean description?)",
    ]


@pytest.mark.parametrize(
    ("path", "data", "expected"),
    [
        ("harness.yaml", None, "harness.yaml: missing"),
        ("harness.yaml", b"- a\n", "harness.yaml:1: not a mapping"),
        ("harness.yaml", b"name: [\n", "harness.yaml:2: not YAML"),
        ("harness.yaml", b"name: a\nname: b\n", "harness.yaml:2: the key 'name' stands twice"),
        ("harness.yaml", b"a: &a [x, x]\nb: [*a, *a]\n", "harness.yaml:1: anchors and aliases"),
        ("harness.yaml", b"name: a\nx: {<<: {y: 1}}\n", "harness.yaml:2: merge keys"),
        ("harness.yaml", b"name: !!python/object/apply:os.system ['true']\n", "harness.yaml:1: the tag"),
        ("harness.yaml", b"name: a\n---\nname: b\n", "harness.yaml:2: a second document"),
        ("harness.yaml", b"name: " + b"[" * 5000, "nest"),
        ("harness.yaml", b"name: \xff\n", "harness.yaml:1: not UTF-8"),
        ("harness.yaml", b"#" * (MAX_FILE + 1), "harness.yaml: larger than 1024 KiB"),
        ("harness.yaml", b"name: a\nformat: hatstack.harness/2\n", "harness.yaml:2: format"),
        ("harness.yaml", b"name: a\norder: {tools: [nope]}\n", "harness.yaml:2: order.tools: no nope"),
        ("harness.yaml", b"name: a\norder: {tools: [order, order]}\n", "harness.yaml:2: order.tools: order stands twice"),
        ("harness.yaml", b"name: a\norder: {tols: []}\n", "harness.yaml:2: unknown key tols (did you mean tools?)"),
        ("prompts/new.md", b"no front matter", "prompts/new.md:1: no front matter"),
        ("prompts/new.md", b"---\nsection: rules\n", "prompts/new.md:1: the front matter does not end"),
        ("prompts/new.md", b"---\n- a\n---\n", "prompts/new.md:2: the front matter is not a mapping"),
        ("tools/new.json", b"{", "tools/new.json:1: not JSON"),
        ("tools/new.json", b"[]", "tools/new.json:1: not an object"),
        ("tools/new.json", b'{"name": 1, "name": 2}', "tools/new.json:1: not JSON: the key 'name' stands twice"),
        ("tools/new.json", b'{"x": NaN}', "tools/new.json:1: not JSON: NaN"),
        ("tools/new.json", b"[" * 100_000 + b"]" * 100_000, "tools/new.json:1: not JSON: nested too deep"),
        ("tools/new.json", b'{"x": ' + b"[" * 50 + b"1" + b"]" * 50 + b"}", "tools/new.json:1: nested deeper"),
        ("hooks/new.yaml", b"id: x\n", "hooks/new.yaml:1: not a list of hooks"),
        ("hooks/new.yaml", b"- x\n", "hooks/new.yaml:1: a hook is a mapping"),
        ("hooks/new.yaml", b"- {id: gate, event: stop, when: 'true', action: annotate}\n", "hooks: gate stands twice"),
        ("few_shots/new.jsonl", b'{"role": "user"}\n{\n', "few_shots/new.jsonl:2: not JSON"),
        ("few_shots/new.jsonl", b"[]\n", "few_shots/new.jsonl:1: a message is an object"),
        ("skills/Chat2/SKILL.md", b"---\nname: Chat2\ndescription: d\n---\n", "Chat2 is no Agent Skills name"),
        ("skills/new/notes.md", b"x", "skills/new/notes.md: no skill lists this file"),
        ("skills/new/SKILL.md", b"---\nname: new\n---\n", "skills/new/SKILL.md:2: description"),
        ("skills/new/SKILL.md", SKILL + b"metadata: {version: 1.0}\n---\n", "SKILL.md:4: metadata.version"),
        ("skills/new/SKILL.md", SKILL + b"allowed-tools: nope\n---\n", "SKILL.md:4: allowed-tools: no tool nope"),
        ("junk.txt", b"x", "junk.txt: nothing reads this file"),
        ("../evil.md", b"x", "../evil.md: the path leaves"),
        ("/etc/passwd", b"x", "/etc/passwd: the path leaves"),
        ("prompts\\evil.md", b"x", "the path leaves"),
        ("prompts/Rules.md", b"x", "by case or Unicode form only"),
        ("prompts/ru\u0308.md", b"---\nsection: rules\n---\n", "id: String should match"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_where_it_stands(path: str, data: bytes | None, expected: str) -> None:
    found = problems({path: data})
    assert found
    assert any(expected in problem for problem in found), found


def test_names_that_differ_by_unicode_form_only_are_refused() -> None:
    found = problems({"skills/chat/\u00e9.md": b"x", "skills/chat/e\u0301.md": b"y"})
    assert any("by case or Unicode form only" in problem for problem in found)


def test_without_strict_unknown_keys_and_files_are_passed_over() -> None:
    changes = {**edited("prompts/rules.md", "order: 0", "order: 0\nunknown: 1"), "junk.txt": b"x"}
    assert len(problems(changes)) == 2
    assert problems(changes, strict=False) == []


def test_a_tool_file_from_any_mcp_server_reads_and_may_have_effects() -> None:
    hints = b'"annotations": {"title": "X", "openWorldHint": true}, "icons": []'
    tool = b'{"name": "x", "description": "d", "inputSchema": {"type": "object"}, ' + hints + b"}"
    harness = parse_files({**FILES, "tools/x.json": tool})
    found = harness.tool("x")
    assert found is not None
    assert (found.read_only, found.idempotent) == (False, False)


def test_links_are_refused_and_not_followed(tmp_path: Path) -> None:
    save_harness(small(), tmp_path / "h")
    secret = tmp_path / "secret.md"
    secret.write_text("---\nsection: rules\n---\nsecret\n")
    (tmp_path / "h" / "prompts" / "link.md").symlink_to(secret)
    (tmp_path / "h" / "folder").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "h" / "pipe")
    with pytest.raises(LoadError) as caught:
        load_harness(tmp_path / "h")
    assert sorted(str(p).split(" (")[0] for p in caught.value.problems) == [
        "folder: a symbolic link",
        "pipe: not a regular file",
        "prompts/link.md: a symbolic link",
    ]


def test_a_folder_with_too_many_files_is_refused(tmp_path: Path) -> None:
    save_harness(small(), tmp_path / "h")
    for number in range(MAX_FILES):
        (tmp_path / "h" / f"{number}.txt").touch()
    with pytest.raises(LoadError, match="more than 2000 files"):
        load_harness(tmp_path / "h")


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no such folder"):
        load_harness(tmp_path / "nowhere")


def test_names_with_a_dot_in_front_are_not_read(tmp_path: Path) -> None:
    save_harness(small(), tmp_path / "h")
    (tmp_path / "h" / ".git").mkdir()
    (tmp_path / "h" / ".DS_Store").write_bytes(b"\xff")
    assert load_harness(tmp_path / "h") == small()


def test_the_worst_texts_end() -> None:
    for text in (
        "a: " + "{" * 900_000,
        "- " * 400_000,
        "? " * 400_000,
        "[" * 900_000,
        "'" * 900_001,
        "a: >\n" + " x\n" * 200_000,
    ):
        with pytest.raises(ReadError):
            read_yaml(text + "\n\x00")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_lines_of_json_values_are_their_lines(value: object) -> None:
    import json

    text = json.dumps(value, indent=1)
    document = read_json(text)
    assert document.value == value
    lines = text.split("\n")
    for path, line in document.lines.items():
        if path and isinstance(path[-1], str):
            assert json.dumps(path[-1]) in lines[line - 1]
