"""Development, held-out and calibration items are disjoint by content; bad candidates are refused before a session."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hat_components.data import DatasetWriter, read_items
from hat_components.evolve.config import Config, ExpertPolicy, ModelPolicy
from hat_components.evolve.faults import read_faults
from hat_components.evolve.result import Evolution
from hat_components.evolve.step import run
from hat_components.step import InputError, NullProgress
from tests.evolution.conftest import HARNESSES, HEEDING

Evolve = Callable[..., Evolution]
CONFIG = Config(policies=(HEEDING,), items=2, held_out_items=2, draws=100, traces=False)


def refused(inputs: dict[str, Path], out: Path, told: str, config: Config = CONFIG) -> None:
    with pytest.raises(InputError, match=told):
        run(config, inputs, out, NullProgress())
    assert not (out / "evolution.json").exists()


def copied(source: Path, target: Path, purpose: str) -> Path:
    """The same items under another tag and other ids."""
    items = [item.model_copy(update={"id": f"other-{item.id}"}) for item in read_items(source)]
    with DatasetWriter(target, kind="items", splits=["x"]) as writer:
        for item in items:
            writer.write("x", item)
        writer.finish(name="copy", purpose=purpose, facts={"scenario": "live_commerce"})  # type: ignore[arg-type]
    return target


def test_a_run_that_mixes_sets_is_refused(inputs: dict[str, Path], data: Path, tmp_path: Path) -> None:
    same = copied(data / "items_evolve", tmp_path / "same", "evaluation")
    refused({**inputs, "held_out": same}, tmp_path / "o", "share an item")
    judges = copied(data / "items_test", tmp_path / "judges", "calibration")
    refused({**inputs, "calibration": judges}, tmp_path / "o", "share an item")
    refused({**inputs, "items": data / "items_test"}, tmp_path / "o", "tagged for evaluation")
    refused({**inputs, "held_out": data / "items_evolve"}, tmp_path / "o", "tagged for evolution")
    refused({**inputs, "calibration": data / "items_test"}, tmp_path / "o", "tagged for evaluation")
    run(CONFIG, {**inputs, "calibration": data / "items_calibration"}, tmp_path / "good", NullProgress())


def test_candidates_that_are_broken_equal_or_unknown_are_refused(inputs: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(HARNESSES / "evolution-1", broken)
    (broken / "hooks" / "refusal.yaml").write_text("- {id: x, event: stop, when: 'nonsense(', action: require}\n")
    refused({**inputs, "candidate-broken": broken}, tmp_path / "o", "hook x|nonsense|problem")
    twin = tmp_path / "twin"
    shutil.copytree(HARNESSES / "live-commerce", twin)
    text = (twin / "harness.yaml").read_text().replace("name: live-commerce", "name: twin")
    (twin / "harness.yaml").write_text(text)
    alone = {name: path for name, path in inputs.items() if not name.startswith("candidate")}
    refused({**alone, "candidate-twin": twin}, tmp_path / "o", "same harness as 'base'")
    refused(alone, tmp_path / "o", "no edit to try")
    config = CONFIG.model_copy(update={"candidates": ("evolution-9",)})
    refused(inputs, tmp_path / "o", "no candidate 'evolution-9'", config)


def test_what_was_measured_is_the_copy(inputs: dict[str, Path], tmp_path: Path, evolve: Evolve) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(HARNESSES / "evolution-2", mine)
    alone = {name: path for name, path in inputs.items() if not name.startswith("candidate")}
    found = evolve({**alone, "candidate-mine": mine}, working_copies=("mine",), items=4, held_out_items=4)
    stage = found.stage("mine")
    assert stage.kind == "working_copy"
    assert any("tool decline added" in change for change in stage.changes)
    shutil.rmtree(mine)
    kept = tmp_path / "out0" / stage.folder
    assert (kept / "tools" / "decline.json").is_file()


def test_candidates_can_lie_together_in_one_folder(inputs: dict[str, Path], tmp_path: Path, evolve: Evolve) -> None:
    for name in ("evolution-1", "evolution-2"):
        shutil.copytree(HARNESSES / name, tmp_path / "both" / name)
    alone = {name: path for name, path in inputs.items() if not name.startswith("candidate")}
    found = evolve({**alone, "candidates": tmp_path / "both"}, items=4, held_out_items=2)
    assert [stage.name for stage in found.stages] == ["base", "evolution-1", "evolution-2"]


def test_policies_are_checked_before_anything_is_played(inputs: dict[str, Path], tmp_path: Path) -> None:
    refused(inputs, tmp_path / "o", "'model-policy' was not given", Config(policies=(ModelPolicy(),)))
    with pytest.raises(ValueError, match="two policies are called heeding"):
        Config(policies=(HEEDING, HEEDING))
    with pytest.raises(ValueError, match="need a proposer"):
        Config(policies=(ExpertPolicy(),), proposals=1)
    with pytest.raises(InputError, match="heeding, ignoring"):
        read_faults("nobody")
    bad = tmp_path / "faults.yaml"
    bad.write_text("- {name: x, kind: sleeps, rate: 2}\n")
    with pytest.raises(InputError, match="not a list of faults"):
        read_faults(bad)
