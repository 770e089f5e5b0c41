"""A dataset folder is complete or absent, and a reader refuses content that its manifest does not name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hat_components.data import (
    DatasetWriter,
    Trajectory,
    load_manifest,
    read_lines,
    read_records,
    refuse_overlap,
    require,
    text_size,
)
from hat_components.step import InputError
from hat_scenarios.base import Gold, Item, Turn


def trajectory(index: int) -> Trajectory:
    messages = ({"role": "user", "content": f"hi {index}"}, {"role": "assistant", "content": "hello"})
    return Trajectory(
        id=f"t{index}", arm="naive", item=f"i{index}", source="expert", harness="sha256:0", messages=messages, size=9
    )


def write(folder: Path, count: int = 3) -> None:
    with DatasetWriter(folder, kind="trajectories", splits=["train"]) as writer:
        for index in range(count):
            writer.write("train", trajectory(index))
        writer.finish(name="toy", purpose="training", seed=1)


def item(ident: str, price: float = 10.5, split: str = "test") -> Item:
    turn = Turn(intent="product_qa", texts=("how much",), gold=Gold())
    return Item(id=ident, scenario="toy", split=split, seed=1, room={"price": price}, turns=(turn,))  # type: ignore[arg-type]


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    write(tmp_path / "set")
    assert [record.id for record in read_records(tmp_path / "set", Trajectory)] == ["t0", "t1", "t2"]
    assert load_manifest(tmp_path / "set").splits["train"].count == 3


def test_the_same_records_have_the_same_digest_under_any_name(tmp_path: Path) -> None:
    write(tmp_path / "one")
    write(tmp_path / "two")
    assert load_manifest(tmp_path / "one").digest == load_manifest(tmp_path / "two").digest
    write(tmp_path / "two", 2)
    assert load_manifest(tmp_path / "one").digest != load_manifest(tmp_path / "two").digest


def test_a_changed_line_is_refused_with_its_file(tmp_path: Path) -> None:
    write(tmp_path / "set")
    path = tmp_path / "set" / "train.jsonl"
    path.write_text(path.read_text().replace("hi 1", "hi 9"))
    with pytest.raises(InputError, match=r"train\.jsonl.*digest"):
        list(read_records(tmp_path / "set", Trajectory))


def test_a_cut_off_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "set")
    path = tmp_path / "set" / "train.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="digest"):
        list(read_lines(tmp_path / "set"))


@pytest.mark.parametrize("change", [{"purpose": "evaluation"}, {"kind": "items"}])
def test_a_manifest_edited_for_another_purpose_is_refused(tmp_path: Path, change: dict[str, str]) -> None:
    write(tmp_path / "set")
    path = tmp_path / "set" / "dataset.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(InputError, match="edited"):
        load_manifest(tmp_path / "set")


def test_leaving_without_finish_leaves_nothing(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "set", kind="items", splits=["a"]) as writer:
        writer.write("a", b"{}")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_rewrite_keeps_the_earlier_dataset(tmp_path: Path) -> None:
    write(tmp_path / "set")
    with pytest.raises(RuntimeError), DatasetWriter(tmp_path / "set", kind="trajectories", splits=["train"]):
        raise RuntimeError
    assert len(list(read_records(tmp_path / "set", Trajectory))) == 3


def test_a_step_takes_only_the_kind_and_purpose_it_asks_for(tmp_path: Path) -> None:
    write(tmp_path / "set")
    inputs = {"data": tmp_path / "set"}
    require(inputs, "data", kind="trajectories", purposes=["training"])
    with pytest.raises(InputError, match="tagged for training"):
        require(inputs, "data", kind="trajectories", purposes=["evaluation"])
    with pytest.raises(InputError, match="not items"):
        require(inputs, "data", kind="items")
    with pytest.raises(InputError, match="not given"):
        require(inputs, "other", kind="items")
    with pytest.raises(InputError, match="does not exist"):
        require({"data": tmp_path / "gone"}, "data", kind="items")


def test_an_untagged_or_empty_dataset_is_refused(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "set", kind="items", splits=["train"]) as writer:
        writer.finish(name="toy", purpose=None)
    with pytest.raises(InputError, match="tagged for nothing"):
        require({"data": tmp_path / "set"}, "data", kind="items", purposes=["training"])
    with pytest.raises(InputError, match="empty"):
        require({"data": tmp_path / "set"}, "data", kind="items")


def test_sets_that_share_an_item_by_content_are_refused() -> None:
    refuse_overlap({"test": [item("a", 1.5)], "train": [item("b", 2.5)]})
    with pytest.raises(InputError, match="share an item"):
        refuse_overlap({"test": [item("a")], "train": [item("b", split="train")]})


def test_size_counts_what_the_model_writes_and_reads() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert text_size([{"role": "user", "content": "x" * 40}]) == 14
    assert text_size([{"role": "assistant", "content": "", "tool_calls": [call]}]) > 4
