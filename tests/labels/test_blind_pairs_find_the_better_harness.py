"""Pairs of two harnesses under the same policy: blind, rated by simulated raters, won by the better with its causes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hat_components.evaluate.result import load_evaluation
from hat_components.judge.step import read_traces
from hat_components.label.config import Config
from hat_components.label.model import CAUSES
from hat_components.label.preference import Preference
from hat_components.label.raters import Rater
from hat_components.label.step import run
from hat_components.label.tasks import OF_CAUSE, cause_of, pair_project, pair_tasks
from hat_components.step import InputError, NullProgress
from tests.labels.conftest import pairs

RATERS = tuple(Rater(name=f"rater-{k}", sharp=0.95, seed=k) for k in range(3))


def spoilt(folder: Path, target: Path, every: int) -> Path:
    """The evaluation with every n-th turn scored wrong, as a worse policy's would be."""
    data = json.loads((folder / "evaluation.json").read_text())
    number = 0
    for item in data["suites"][0]["items"]:
        for turn in item["turns"]:
            number += 1
            if number % every == 0:
                turn["values"] |= {"average": 0.5, "accuracy": 0.0}
                turn["causes"] = ["missing_call"] if number % 2 else ["wrong_number", "missing_fact"]
    data["arm"] = "spoilt"
    target.mkdir(parents=True)
    (target / "evaluation.json").write_text(json.dumps(data))
    (target / "traces.jsonl").write_bytes((folder / "traces.jsonl").read_bytes())
    return target


def test_the_better_arm_wins_and_its_causes_are_the_losers_faults(evaluated: dict[str, Path], tmp_path: Path) -> None:
    worse = spoilt(evaluated["live-commerce"], tmp_path / "worse", every=3)
    config = Config(count=36, raters=RATERS)
    inputs = {"evaluation": evaluated["live-commerce"], "other": worse}
    result = run(config, inputs, tmp_path / "out", NullProgress())
    found = Preference.model_validate_json((tmp_path / "out" / "preference.json").read_bytes())
    assert found.arms == ("live-commerce", "spoilt")
    assert found.simulated
    assert found.pairs == 36
    assert found.a.count >= 10 > 2 >= found.b.count
    assert found.p < 0.01
    assert found.a.count + found.tie.count + found.b.count + found.missing == 36
    causes = {name: part.count for name, part in found.causes["live-commerce"].items()}
    assert set(causes) == set(CAUSES)
    assert causes["reliability"] + causes["tool_use"] > found.a.count / 2
    assert result.metrics["a"] == found.a.count
    again = run(config, inputs, tmp_path / "again", NullProgress())
    assert again.digests == result.digests


def test_tasks_show_neither_arm_nor_truth(evaluated: dict[str, Path]) -> None:
    sides = [(load_evaluation(folder), list(read_traces(folder / "traces.jsonl"))) for folder in evaluated.values()]
    tasks = pair_tasks(sides[0], sides[1], "t1", count=20, seed=4)
    assert len(tasks) == 20
    for task in tasks:
        told = json.dumps(task.shown)
        assert "live-commerce" not in told
        assert "react" not in told
        assert "sha256" not in told
        assert set(task.shown) == {"before", "event", "a", "a_outcome", "b", "b_outcome"}
    assert tasks == pair_tasks(sides[0], sides[1], "t1", count=20, seed=4)
    assert [task.id for task in tasks] != [one.id for one in pair_tasks(sides[0], sides[1], "t1", count=20, seed=5)]


def test_evaluations_of_other_items_make_no_pairs(evaluated: dict[str, Path]) -> None:
    evaluation = load_evaluation(evaluated["live-commerce"])
    records = list(read_traces(evaluated["live-commerce"] / "traces.jsonl"))
    other = evaluation.model_copy(update={"dataset": "sha256:" + "0" * 64})
    with pytest.raises(InputError, match="different items"):
        pair_tasks((evaluation, records), (other, records), "t1", count=5, seed=1)
    with pytest.raises(InputError, match="no suite 't9'"):
        pair_tasks((evaluation, records), (evaluation, records), "t9", count=5, seed=1)


def test_every_cause_of_a_score_has_a_code_and_unknown_ones_are_reply_quality() -> None:
    assert set(OF_CAUSE.values()) == set(CAUSES)
    assert cause_of(("missing_call", "state", "gate")) == "tool_use"
    assert cause_of(()) == cause_of(("something_new",)) == "reply_quality"


def test_simulated_raters_err_at_their_rate_and_need_the_truth() -> None:
    project, tasks = pairs(300)
    rater = Rater(name="sim", sharp=0.8)
    right = sum(rating.label == task.hidden["winner"] for task in tasks for rating in rater.rate(project, task))
    assert 0.72 < right / 300 < 0.88
    blank = tasks[0].model_copy(update={"hidden": {}})
    with pytest.raises(InputError, match="truth of preference is not known"):
        list(rater.rate(project, blank))
    assert pair_project("p", ("x", "y")).causes == CAUSES
