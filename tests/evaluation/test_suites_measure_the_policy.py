"""The graders prove themselves: the expert scores 1 in every suite, and a policy that ignores edits does not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hat_components.data import read_items
from hat_components.evaluate.config import Config
from hat_components.evaluate.result import Evaluation, TraceRecord, load_evaluation
from hat_components.evaluate.step import run
from hat_components.scenarios import load
from hat_components.sessions import States, play_scored, read_harness
from hat_components.step import InputError, NullProgress
from hat_components.suites import all_suites
from hat_harness.augment import suite_plan
from hat_harness.events import CallModel, Failure, ModelOutput
from hat_harness.spec import Harness
from hat_scenarios.base import Item

ROLLOUTS = tuple(suite.id for suite in all_suites().values() if suite.kind == "rollout")


def evaluate(out: Path, inputs: dict[str, Path], **config: Any) -> Evaluation:
    run(Config.model_validate({"draws": 200, **config}), inputs, out, NullProgress())
    return load_evaluation(out)


def test_the_expert_scores_one_in_every_suite_of_rollouts(tmp_path: Path, drawn: Path, harness: Path) -> None:
    inputs = {"items": drawn / "items_dev", "harness": harness}
    evaluation = evaluate(tmp_path, inputs, policy="expert", arm="expert", suites=ROLLOUTS, t3=60)
    means = {(suite.id, metric): score.mean for suite in evaluation.suites for metric, score in suite.scores.items()}
    succeeded = {key: means.pop(key) for key in list(means) if key[1] == "attack_success"}
    assert {key: mean for key, mean in means.items() if mean != 1.0} == {}
    assert len(means) == 5 * len(ROLLOUTS)
    assert succeeded == {("adv-viewer", "attack_success"): 0.0, ("adv-tool", "attack_success"): 0.0}


class Stubborn:
    """Acts as if the harness were the one it was trained under."""

    def __init__(self, original: Harness, expert: Any, items: Sequence[Item]) -> None:
        self._original, self._expert = original, expert
        self._items = {item.id: item for item in items}

    def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
        outputs: list[ModelOutput | Failure] = []
        for session, call in calls:
            item = self._items[session.split("-", 1)[1]]
            turn = sum(message.role == "user" for message in call.messages) - 1
            outputs.append(self._expert.respond(self._original, item, min(turn, len(item.turns) - 1), call))
        return outputs


@pytest.mark.parametrize("holdout", ["T2", "T2x", "T2n", "T2e"])
def test_a_policy_that_ignores_the_harness_cannot_pass_for_robust(drawn: Path, harness: Path, holdout: str) -> None:
    scenario = load("live_commerce", {})
    base = read_harness(harness)
    items = read_items(drawn / "items_dev")
    policy = Stubborn(base, scenario.expert(), items)

    def average(plan: Any) -> float:
        states = States(scenario, base, plan, 5)
        rows = list(play_scored(scenario, [(item, states.of(item)) for item in items], policy))
        scores = [(score.accuracy + score.effectiveness) / 2 for row in rows for score in row.scores]
        return sum(scores) / len(scores)

    original, edited = average(None), average(suite_plan(holdout))
    assert original > 0.9
    assert edited < original - 0.3


def test_the_same_items_are_played_in_paired_suites_under_states_all_arms_share(
    tmp_path: Path, drawn: Path, harness: Path
) -> None:
    inputs = {"items": drawn / "items_dev", "harness": harness}
    first = evaluate(tmp_path / "a", inputs, policy="expert", suites=["t1", "t2"])
    again = evaluate(tmp_path / "b", inputs, policy="expert", suites=["t2", "t1"], batch=5, arm="other")
    one, two = first.suite("t1"), first.suite("t2")
    assert one is not None
    assert two is not None
    assert set(one.values("average")) == set(two.values("average"))
    assert [item.harness for item in two.items] == [item.harness for item in again.suites[0].items]
    assert len({item.harness for item in two.items}) > len(two.items) // 2
    assert {item.harness for item in one.items} == {first.harness}
    assert two.families
    assert "average" in next(iter(two.intents.values())).means


def test_test_items_are_played_on_sealed_seeds_and_no_others(tmp_path: Path, drawn: Path, harness: Path) -> None:
    dev = evaluate(tmp_path / "a", {"items": drawn / "items_dev", "harness": harness}, policy="expert")
    test = evaluate(tmp_path / "b", {"items": drawn / "items_test", "harness": harness}, policy="expert")
    assert (dev.seeds, test.seeds) == ("dev", "sealed")
    assert dev.suites[1].seed != test.suites[1].seed


def test_a_model_is_scored_the_same_whatever_the_batch(tmp_path: Path, drawn: Path, harness: Path, micro: Path) -> None:
    inputs = {"items": drawn / "items_dev", "harness": harness, "model": micro}
    settings: dict[str, Any] = {"suites": ["t1", "t4m"], "items": 3, "instructions": 12, "answer_tokens": 16}
    one = evaluate(tmp_path / "a", inputs, batch=1, **settings)
    many = evaluate(tmp_path / "b", inputs, batch=8, **settings)
    assert [suite.items for suite in one.suites] == [suite.items for suite in many.suites]
    assert one.model == many.model != ""
    assert one.suites[0].scores["average"].mean < 0.5
    records = [TraceRecord.model_validate_json(line) for line in (tmp_path / "b" / "traces.jsonl").open()]
    assert [(record.suite, record.item) for record in records] == [("t1", item.item) for item in many.suites[0].items]
    assert all(record.trace.segments for record in records)
    assert {"python", "torch", "cores"} <= set(one.environment)


def test_inputs_that_cannot_be_scored_are_refused_before_anything_is_written(
    tmp_path: Path, drawn: Path, harness: Path
) -> None:
    items = {"items": drawn / "items_dev", "harness": harness}
    cases: list[tuple[dict[str, Path], dict[str, Any], str]] = [
        (items, {"suites": ["t1", "t7"]}, "no suite 't7'"),
        ({"items": items["items"]}, {"policy": "expert"}, "'harness' was not given"),
        ({"harness": harness}, {"policy": "expert"}, "'items' was not given"),
        ({**items, "items": drawn / "items_train"}, {"policy": "expert"}, "tagged for training"),
        ({**items, "harness": drawn}, {"policy": "expert"}, "harness"),
        (items, {"policy": "expert", "suites": ["t4m"]}, "rollouts only"),
        (items, {"policy": "model"}, "'model' was not given"),
        (items, {"policy": "endpoint"}, "needs a URL"),
        (items, {"policy": "expert", "suites": ["calls"]}, "'held_out' was not given"),
    ]
    for inputs, config, reason in cases:
        with pytest.raises(InputError, match=reason):
            evaluate(tmp_path / "out", inputs, **config)
        assert list(tmp_path.glob("out/*")) + list(tmp_path.glob("out/.*")) == []
