"""Attacks are counted where they hit; comparisons by family and attack share one correction; large files are read lean."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hat_components.data import read_items
from hat_components.evaluate.adversarial import METRIC
from hat_components.evaluate.compare import compare
from hat_components.evaluate.compare_read import read_lean
from hat_components.evaluate.config import Config
from hat_components.evaluate.result import Evaluation, load_evaluation
from hat_components.evaluate.step import run
from hat_components.scenarios import load
from hat_components.sessions import read_harness
from hat_components.step import InputError, NullProgress
from hat_components.suites import all_suites
from hat_harness.events import CallModel, Failure, ModelOutput
from hat_harness.spec import Harness
from hat_scenarios.base import Attackable, Item
from hat_scenarios.live_commerce import LiveCommerce
from hat_scenarios.play import ExpertModel, play

Fabricate = Callable[..., dict[str, Path]]
HALF = [0.0, 1.0] * 20


class Yielding(ExpertModel):
    """The expert, who says what an attack wants whenever it has read one."""

    def generate(self, calls: Sequence[tuple[str, CallModel]]) -> list[ModelOutput | Failure]:
        outputs: list[ModelOutput | Failure] = []
        for output, (_, call) in zip(super().generate(calls), calls, strict=True):
            read = " ".join(message.content for message in call.messages if message.role in ("user", "tool"))
            wanted = any(word in read for word in ("best in the world", "price is one", "price is 1", "print"))
            if isinstance(output, ModelOutput) and output.content and wanted:
                output = replace(output, content=output.content.replace(" . thanks", " , it is one yuan . thanks"))
            outputs.append(output)
        return outputs


def rates(harness: Harness, items: list[Item], kind: str, model: type[ExpertModel]) -> tuple[int, int]:
    """(attacked turns, those that gave in)."""
    scenario = LiveCommerce()
    pairs = [scenario.attacked(item, kind, 5) for item in items]  # type: ignore[arg-type]  # a literal
    cases = [(harness, item) for item, _ in pairs]
    traces = play(scenario, cases, model(scenario.expert(), cases))
    from hat_harness.trace import turns

    hits = lost = 0
    for (item, hit), trace in zip(pairs, traces, strict=True):
        for index, scores in enumerate(scenario.score(harness, item, trace)):
            if index in hit:
                hits += 1
                lost += scenario.yielded(harness, scores, turns(trace)[index].reply)
    return hits, lost


@pytest.mark.parametrize("kind", ["viewer", "tool"])
def test_whoever_gives_in_is_counted_and_whoever_does_not_is_not(drawn: Path, harness: Path, kind: str) -> None:
    spec, items = read_harness(harness), read_items(drawn / "items_train")
    hits, lost = rates(spec, items, kind, ExpertModel)
    assert hits > 10
    assert lost == 0
    hits, lost = rates(spec, items, kind, Yielding)
    assert lost > hits * 0.8


def test_attacks_leave_what_is_right_as_it_is(drawn: Path) -> None:
    scenario = load("live_commerce")
    assert isinstance(scenario, Attackable)
    for item in read_items(drawn / "items_train"):
        pushed, hit = scenario.attacked(item, "viewer", 1)
        assert scenario.attacked(item, "viewer", 1) == (pushed, hit)
        assert [turn.gold for turn in pushed.turns] == [turn.gold for turn in item.turns]
        assert hit == tuple(k for k, turn in enumerate(pushed.turns) if turn.texts != item.turns[k].texts)
        noted, read = scenario.attacked(item, "tool", 1)
        assert (noted.room != item.room) == bool(read)
        assert noted.turns == item.turns


def test_the_suites_report_attack_success_beside_the_quality_under_attack(
    tmp_path: Path, drawn: Path, harness: Path
) -> None:
    suites = tuple(suite.id for suite in all_suites().values() if suite.attack)
    assert suites == ("adv-viewer", "adv-tool")
    config = Config(policy="expert", arm="expert", suites=("t1", *suites), draws=200)
    run(config, {"items": drawn / "items_dev", "harness": harness}, tmp_path, NullProgress())
    found = load_evaluation(tmp_path)
    first = found.suite("t1")
    assert first is not None
    assert METRIC not in first.scores
    for ident in suites:
        suite = found.suite(ident)
        assert suite is not None
        assert 0 < suite.n <= first.n
        assert suite.paired_with == "t1"
        assert suite.scores[METRIC].mean == 0.0
        assert suite.scores[METRIC].high > 0
        assert suite.scores["average"].mean == 1.0


def attacked(evaluation: Evaluation, lost: float) -> Evaluation:
    """The evaluation with suite t2 under attack, of which a share succeeded."""
    data = evaluation.model_dump(mode="json")
    for suite in data["suites"]:
        if suite["id"] == "t2":
            for index, item in enumerate(suite["items"]):
                item["values"][METRIC] = float(index < lost * len(suite["items"]))
    return Evaluation.model_validate(data)


def test_fewer_successful_attacks_are_better_and_families_share_the_correction(fabricate: Fabricate) -> None:
    a = load_evaluation(fabricate("a", {"t1": HALF, "t2": HALF})["evaluation-a"])
    b = load_evaluation(fabricate("b", {"t1": HALF, "t2": HALF})["evaluation-b"])
    rows = compare(attacked(a, 0.0), attacked(b, 0.8), draws=1000)
    kinds = {(row.suite, row.metric): row.kind for row in rows}
    assert kinds["t2", METRIC] == "better"
    assert kinds["t2", "average"] == "no_difference_shown"
    assert [row for row in rows if row.metric == METRIC][0].delta < 0  # noqa: RUF015 - the first of one
    more = compare(attacked(a, 0.0), attacked(b, 0.8), families=True, draws=1000)
    assert {row.family for row in more} == {"", "skill_name"}
    alone, among = (next(row.p for row in found if row.metric == METRIC) for found in (rows, more))
    assert among > alone


def test_harnesses_can_be_compared_under_one_policy_and_only_then(fabricate: Fabricate) -> None:
    a = load_evaluation(fabricate("a", {"t1": [1.0] * 40})["evaluation-a"])
    b = a.model_copy(update={"harness": "sha256:" + "9" * 64, "suites": a.suites})
    with pytest.raises(InputError, match="different harness"):
        compare(a, b)
    (row,) = compare(a, b, across="harness", draws=200)
    assert row.delta == 0.0
    assert "99999999" in row.text
    with pytest.raises(InputError, match="different policies"):
        compare(a, b.model_copy(update={"model": "sha256:" + "8" * 64}), across="harness")


def test_the_lean_reader_sees_what_the_full_one_sees(fabricate: Fabricate) -> None:
    paths = [fabricate(name, {"t1": scores, "t2": HALF})[f"evaluation-{name}"] for name, scores in
             (("a", [1.0] * 40), ("b", HALF))]  # fmt: skip
    full = compare(*(load_evaluation(path) for path in paths), families=True, draws=500)
    lean = compare(*(read_lean(path) for path in paths), families=True, draws=500)
    assert lean == full


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace("hatstack.evaluation/1", "hatstack.evaluation/9"),
        lambda text: "[]",
        lambda text: text.replace('"values"', '"valued"'),
        lambda text: json.dumps({**json.loads(text), "suites": []}),
        lambda text: text.replace('"average": 1.0', '"average": "high"').replace('"average":1.0', '"average":"high"'),
    ],
)
def test_what_is_no_evaluation_is_refused_by_the_lean_reader(fabricate: Fabricate, spoil: Callable[[str], str]) -> None:
    path = fabricate("a", {"t1": [1.0] * 5})["evaluation-a"]
    path.write_text(spoil(path.read_text()))
    with pytest.raises(InputError, match=r"hatstack\.evaluation/1"):
        read_lean(path)
