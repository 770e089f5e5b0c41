"""`load(save(h)) == h` with the same digest, and saving replaces a folder whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from hat_harness.digest import harness_digest, part_digests
from hat_harness.errors import LoadError
from hat_harness.load import load_bindings, load_harness, parse_files, save_harness
from hat_harness.save import harness_files
from hat_harness.spec import Adapter, Harness, Tool
from hat_harness.validate import validate
from tests.harness.kit import GATE, small
from tests.harness.strategies import harnesses


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(harnesses())
def test_files_of_any_valid_harness_read_back_as_the_harness(harness: Harness) -> None:
    assert validate(harness) == []
    files = harness_files(harness)
    again = parse_files(files)
    assert again == harness
    assert harness_digest(again) == harness_digest(harness)
    assert harness_files(again) == files
    assert set(part_digests(harness)) == set(files)


def _rich() -> Harness:
    tool = Tool(
        id="count",
        name="how_many",
        description="count them",
        parameters={"type": "object", "properties": {"n": {"type": "string", "pattern": "^(0|-?[1-9][0-9]*)$"}}},
        parameter_names={"number": "n"},
        adapters=(Adapter(kind="integer_as_string", parameters=("number",)),),
    )
    return small(tools=(*small().tools, tool), hooks=(GATE,))


def test_a_folder_reads_back(tmp_path: Path) -> None:
    save_harness(_rich(), tmp_path / "h")
    assert load_harness(tmp_path / "h") == _rich()
    assert [p.name for p in tmp_path.iterdir()] == ["h"]


def test_line_ends_and_byte_order_marks_do_not_change_the_digest() -> None:
    files = {
        path: (b"\xef\xbb\xbf" if path.endswith("yaml") else b"") + data.replace(b"\n", b"\r\n")
        for path, data in harness_files(_rich()).items()
    }
    assert harness_digest(parse_files(files)) == harness_digest(_rich())


def test_saving_replaces_what_stood_there_and_keeps_what_is_beside_it(tmp_path: Path) -> None:
    place = tmp_path / "h"
    save_harness(_rich(), place)
    (place / "bindings.yaml").write_text("tools: {count: {url: http://localhost}}\n")
    (place / "README.md").write_text("mine")
    digest = harness_digest(load_harness(place))
    assert digest == harness_digest(_rich())
    save_harness(small(), place)
    assert load_harness(place) == small()
    assert not (place / "tools" / "count.json").exists()
    assert load_bindings(place) == {"tools": {"count": {"url": "http://localhost"}}}
    assert (place / "README.md").read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["h"]


def test_an_invalid_harness_or_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("years of work")
    with pytest.raises(LoadError, match="no harness stands here"):
        save_harness(small(), tmp_path / "other")
    assert (tmp_path / "other" / "thesis.txt").exists()
    broken = small(hooks=(GATE.model_copy(update={"when": "nope"}),))
    with pytest.raises(LoadError, match="undeclared"):
        save_harness(broken, tmp_path / "broken")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other"]


def test_bindings_are_optional_and_bounded(tmp_path: Path) -> None:
    assert load_bindings(tmp_path) == {}
    (tmp_path / "bindings.yaml").write_text("")
    assert load_bindings(tmp_path) == {}
    (tmp_path / "bindings.yaml").write_text("- a\n")
    with pytest.raises(LoadError, match=r"bindings.yaml:1: not a mapping"):
        load_bindings(tmp_path)
    (tmp_path / "bindings.yaml").write_text("a: &x 1\nb: *x\n")
    with pytest.raises(LoadError, match=r"bindings.yaml:1: anchors"):
        load_bindings(tmp_path)


SHIPPED = sorted(
    path.parent for path in (Path(__file__).parents[2] / "harness-registry" / "harnesses").glob("*/harness.yaml")
)


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_harness_is_valid_and_survives(folder: Path, tmp_path: Path) -> None:
    harness = load_harness(folder)
    assert harness.name == folder.name
    save_harness(harness, tmp_path / "copy")
    again = load_harness(tmp_path / "copy")
    assert again == harness
    assert harness_digest(again) == harness_digest(harness)


def test_there_are_shipped_harnesses() -> None:
    assert SHIPPED
