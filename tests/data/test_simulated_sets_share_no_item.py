"""Sets that a scenario draws are the same on every run, share no item, and carry the purpose they may be used for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hat_components import suites
from hat_components.data import digest_item, load_manifest, read_items, refuse_overlap
from hat_components.simulate.config import Config
from hat_components.simulate.step import run
from hat_components.step import InputError, NullProgress


def simulate(out: Path, **config: Any) -> dict[str, str]:
    settings = {"train": 40, "dev": 10, "test": 10, **config}
    return run(Config.model_validate(settings), {}, out, NullProgress()).digests


def test_sets_are_disjoint_by_content_and_tagged(tmp_path: Path) -> None:
    simulate(tmp_path, calibration=5, evolve=5)
    names = ["train", "dev", "test", "calibration", "evolve"]
    refuse_overlap({name: read_items(tmp_path / f"items_{name}") for name in names})
    purposes = [load_manifest(tmp_path / f"items_{name}").purpose for name in names]
    assert purposes == ["training", "evaluation", "evaluation", "calibration", "evolution"]
    items = read_items(tmp_path / "items_train")
    assert len({digest_item(item) for item in items}) == len(items) == 40


def test_the_same_config_gives_the_same_digests_and_another_seed_others(tmp_path: Path) -> None:
    first = simulate(tmp_path / "a")
    assert simulate(tmp_path / "b") == first
    assert set(simulate(tmp_path / "c", seed=2).values()).isdisjoint(first.values())


def test_more_training_items_leave_the_test_set_as_it_is(tmp_path: Path) -> None:
    few, many = simulate(tmp_path / "a"), simulate(tmp_path / "b", train=80)
    assert few["items_test"] == many["items_test"]
    assert few["items_dev"] == many["items_dev"]
    assert few["items_train"] != many["items_train"]


def test_unknown_scenarios_and_settings_are_refused_with_their_names(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no scenario 'live_opera'"):
        simulate(tmp_path, scenario="live_opera")
    with pytest.raises(InputError, match="settings of live_commerce"):
        simulate(tmp_path, settings={"difficulty": 9})
    with pytest.raises(InputError, match="no intent called singing"):
        simulate(tmp_path, settings={"mix": {"singing": 1.0}})
    assert not list(tmp_path.glob("items_*"))


def test_the_order_in_which_a_mix_was_written_says_nothing_to_the_items(tmp_path: Path) -> None:
    ways = {"chat": 2.0, "discount": 1.0, "product_qa": 3.0}, {"product_qa": 3.0, "discount": 1.0, "chat": 2.0}
    first, second = (simulate(tmp_path / str(n), settings={"mix": mix}) for n, mix in enumerate(ways))
    assert first == second


def test_a_scenario_too_small_for_the_count_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"only \d+ distinct items"):
        simulate(tmp_path, scenario="tests.data.coin", train=3, dev=1, test=1)
    assert not (tmp_path / "items_train").exists()


def test_every_suite_is_valid_and_no_seed_is_used_twice() -> None:
    known = suites.all_suites()
    seeds = [seed for suite in known.values() for seed in (suite.dev_seed, suite.sealed_seed)]
    assert len(set(seeds)) == len(seeds)
    assert {"t1", "t2", "t2x", "t2n", "t2e", "t4", "t4m", "calls"} <= set(known)
    assert all(suite.paired_with in ("", *known) for suite in known.values())
    assert [suite.id for suite in suites.choose(["t2", "t1"])] == ["t2", "t1"]


@pytest.mark.parametrize("names", [["t1", "t0"], [], ["t1", "t1"]])
def test_unknown_or_repeated_suites_are_refused(names: list[str]) -> None:
    with pytest.raises(InputError, match="suite"):
        suites.choose(names)
