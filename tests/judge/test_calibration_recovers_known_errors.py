"""An oracle with a known confusion matrix: its agreement, its corrected scores, its drift."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hat_components.judge.calibration import JudgeCalibration, calibrate, corrected
from hat_components.judge.history import agreement_by_revision, rate_shift, read_history, shift
from hat_components.judge.labels import Label, labels_of, read_labels
from hat_components.judge.panel import Judgement, open_panel
from hat_components.judge.rubric import parse_rubric
from hat_components.judge.spec import Judge
from hat_components.judge.subject import Subject
from hat_components.step import InputError
from tests.judge.conftest import RUBRIC, toy_judge


def oracle(q1: float, q0: float, *, name: str = "o", missing: float = 0.0, seed: int = 1) -> dict[str, Any]:
    """Errs on accuracy with sensitivity q1 and specificity q0."""
    rows = {"right": {"right": q1, "wrong": 1 - q1}, "wrong": {"wrong": q0, "right": 1 - q0}}
    return {"type": "oracle", "name": name, "confusion": {"accuracy": rows}, "missing": missing, "seed": seed}


def many(subjects: list[Subject], count: int, share: float, seed: int) -> list[Subject]:
    """Copies with a known share of right ones; `id` and `item` are new."""
    rng = np.random.default_rng(seed)
    found = []
    for k in range(count):
        truth = {"accuracy": "right" if rng.random() < share else "wrong", "effectiveness": "met"}
        update = {"id": f"s{seed}-{k}", "item": f"i{seed}-{k}", "truth": truth}
        found.append(subjects[k % len(subjects)].model_copy(update=update))
    return found


def judged(judge: Judge, found: list[Subject]) -> list[Judgement]:
    with open_panel(judge) as panel:
        return list(panel.judge_all(found))


def made(judge: Judge, found: list[Subject]) -> JudgeCalibration:
    return calibrate(judge, judged(judge, found), labels_of(found))


def test_rates_kappa_and_confusion_are_those_of_the_oracle(subjects: list[Subject]) -> None:
    judge = toy_judge([oracle(0.9, 0.8)])
    found = made(judge, many(subjects, 600, 0.7, 1))
    accuracy = found.criteria["accuracy"]
    right = accuracy.classes["right"]
    assert right.sensitivity.low < 0.9 < right.sensitivity.high
    assert right.specificity.low < 0.8 < right.specificity.high
    assert sum(map(sum, accuracy.confusion)) == 600
    assert accuracy.counts["tp"] == accuracy.confusion[1][1]
    chance = 0.7 * (0.7 * 0.9 + 0.3 * 0.2) + 0.3 * (0.7 * 0.1 + 0.3 * 0.8)
    agree = 0.7 * 0.9 + 0.3 * 0.8
    assert accuracy.kappa.low < (agree - chance) / (1 - chance) < accuracy.kappa.high
    effectiveness = found.criteria["effectiveness"]
    assert (effectiveness.kappa.state, effectiveness.kappa.value) == ("one_class", None)
    assert effectiveness.agreement == 1.0
    assert found.judge == judge.digest


def test_corrected_scores_cover_the_truth_where_raw_ones_are_off(subjects: list[Subject]) -> None:
    """60 pairs of calibration and test sets; the oracle's draws differ by its seed."""
    covered = raw_off = 0
    for k in range(60):
        judge = toy_judge([oracle(0.88, 0.75, seed=k)])
        found = made(judge, many(subjects, 300, 0.6, 2 * k))
        test = many(subjects, 400, 0.85, 2 * k + 1)
        true = sum(one.truth["accuracy"] == "right" for one in test) / 400
        estimate = corrected(found, "accuracy", judged(judge, test))
        covered += estimate.low <= 0.85 <= estimate.high
        assert estimate.raw is not None
        raw_off += abs(estimate.raw - true) > 0.04
    assert covered >= 52  # 57 expected; fewer than 52 once in 200 runs at exactly 95 %
    assert raw_off >= 50


def test_unjudged_items_are_counted_and_widen(subjects: list[Subject]) -> None:
    whole, holed = toy_judge([oracle(0.9, 0.8)]), toy_judge([oracle(0.9, 0.8, missing=0.2)])
    test = many(subjects, 400, 0.8, 4)
    base = many(subjects, 400, 0.7, 5)
    full, partial = made(whole, base), made(holed, base)
    lost = partial.criteria["accuracy"].missing
    assert set(lost) == {"no_answer"}
    assert 50 < lost["no_answer"] < 110
    assert sum(partial.criteria["accuracy"].counts.values()) == 400 - lost["no_answer"]
    narrow, wide = corrected(full, "accuracy", judged(whole, test)), corrected(partial, "accuracy", judged(holed, test))
    assert wide.high - wide.low > narrow.high - narrow.low + 0.1
    assert wide.missing > 0


def test_a_coin_corrects_nothing(subjects: list[Subject]) -> None:
    coin = toy_judge([oracle(0.5, 0.5)])
    estimate = corrected(made(coin, many(subjects, 200, 0.6, 6)), "accuracy", judged(coin, many(subjects, 50, 0.6, 7)))
    assert (estimate.state, estimate.value, estimate.low, estimate.high) == ("uninformative", None, 0.0, 1.0)
    with pytest.raises(InputError, match="not calibrated"):
        made(coin, many(subjects, 20, 0.6, 8)).counts("speed")


def test_a_panel_of_three_agrees_better_than_one(subjects: list[Subject]) -> None:
    base = many(subjects, 1500, 0.6, 9)
    one = made(toy_judge([oracle(0.8, 0.8)]), base).criteria["accuracy"]
    three = made(toy_judge([oracle(0.8, 0.8, name=f"o{k}") for k in range(3)]), base).criteria["accuracy"]
    assert one.panel_alpha is None
    assert three.panel_alpha is not None
    assert three.panel_alpha.value == pytest.approx(0.36, abs=0.12)  # (2·0.8 − 1)² at even classes
    assert three.agreement > one.agreement + 0.05  # type: ignore[operator]


def test_several_people_settle_the_truth_by_majority(subjects: list[Subject]) -> None:
    found = many(subjects, 3, 1.0, 10)
    votes = {0: ["right", "right", "wrong"], 1: ["wrong", "right"], 2: ["wrong", "wrong", "wrong"]}
    labels = [
        Label(subject=found[k].id, criterion="accuracy", label=said, rater=f"r{n}")
        for k, row in votes.items()
        for n, said in enumerate(row)
    ]
    judge = toy_judge([oracle(1.0, 1.0)])
    made_ = calibrate(judge, judged(judge, found), labels)
    assert made_.truth == {found[0].id: {"accuracy": "right"}, found[2].id: {"accuracy": "wrong"}}
    accuracy = made_.criteria["accuracy"]
    assert accuracy.disputed == 1
    assert accuracy.people_alpha is not None
    assert (accuracy.agreement, made_.n) == (0.5, 2)
    assert list(made_.criteria) == ["accuracy"]
    with pytest.raises(InputError, match="no labelled subject"):
        calibrate(judge, judged(judge, found[:1]), labels[-1:])


def test_a_labels_file_is_checked_line_by_line(tmp_path: Path) -> None:
    rubric, path = parse_rubric(RUBRIC), tmp_path / "labels.jsonl"
    path.write_text('{"subject": "s", "criterion": "accuracy", "label": "正确", "rater": "p1"}\n\n')
    assert [one.label for one in read_labels(path, rubric)] == ["right"]
    for line, fault in (
        ('{"subject": "s"}', "labels.jsonl:1"),
        ('{"subject": "s", "criterion": "speed", "label": "x"}', "no criterion"),
        ('{"subject": "s", "criterion": "accuracy", "label": "maybe"}', "no label of accuracy"),
    ):
        path.write_text(line + "\n")
        with pytest.raises(InputError, match=fault):
            read_labels(path, rubric)


def test_a_changed_judge_raises_the_alarm_and_the_same_one_does_not(subjects: list[Subject]) -> None:
    base = many(subjects, 482, 0.7, 11)
    old, same, strict = (made(toy_judge([oracle(*rates)]), base) for rates in ((0.9, 0.8), (0.9, 0.8), (0.6, 0.95)))
    quiet = shift(old, same, "accuracy")
    assert (quiet.changed, quiet.alarm, quiet.p) == (0, False, 1.0)
    loud = shift(old, strict, "accuracy")
    assert loud.alarm
    assert loud.changed > 50
    assert loud.agreement_after < loud.agreement_before  # type: ignore[operator]
    assert "the new judge is worse than the old one" in loud.text_en.lower()
    assert "新评审差于旧评审" in loud.text_zh


def test_a_judge_that_stops_answering_raises_the_alarm(subjects: list[Subject]) -> None:
    base = many(subjects, 482, 0.7, 12)
    old, gone = made(toy_judge([oracle(0.9, 0.8)]), base), made(toy_judge([oracle(0.9, 0.8, missing=0.1)]), base)
    assert shift(old, gone, "accuracy").alarm


def test_new_draws_of_the_same_judge_alarm_at_their_rate(subjects: list[Subject]) -> None:
    base = many(subjects, 150, 0.7, 13)
    first = made(toy_judge([oracle(0.85, 0.85, seed=0)]), base)
    alarms = sum(
        shift(first, made(toy_judge([oracle(0.85, 0.85, seed=k)]), base), "accuracy", alpha=0.05).alarm
        for k in range(1, 41)
    )
    assert alarms <= 7  # of 40 at 5 %: more than 7 once in 600


def test_other_items_are_compared_by_error_rates(subjects: list[Subject]) -> None:
    one, two = made(toy_judge([oracle(0.9, 0.8)]), many(subjects, 300, 0.7, 14)), None
    with pytest.raises(InputError, match="no shared item"):
        shift(one, made(toy_judge([oracle(0.9, 0.8)]), many(subjects, 300, 0.7, 15)), "accuracy")
    two = made(toy_judge([oracle(0.9, 0.8, seed=5)]), many(subjects, 300, 0.4, 16))
    assert not rate_shift(one, two, "accuracy").alarm  # another mix of right and wrong is no change of the judge
    three = made(toy_judge([oracle(0.6, 0.8)]), many(subjects, 300, 0.7, 17))
    moved = rate_shift(one, three, "accuracy")
    assert moved.alarm
    assert moved.specificity_p > 0.01


def test_the_history_tells_agreement_by_revision(subjects: list[Subject], tmp_path: Path) -> None:
    base = many(subjects, 200, 0.7, 18)
    revisions = [
        made(toy_judge([oracle(q, q)], revision=k, note=note), base)
        for k, (q, note) in enumerate([(0.7, "rubric"), (0.8, "evidence tools"), (0.95, "voting")], 1)
    ]
    path = tmp_path / "history.jsonl"
    path.write_text("".join(one.model_dump_json() + "\n" for one in revisions))
    rows = [row for row in agreement_by_revision(read_history(path)) if row["criterion"] == "accuracy"]
    assert [(row["revision"], row["note"]) for row in rows] == [(1, "rubric"), (2, "evidence tools"), (3, "voting")]
    agreement = [row["agreement"] for row in rows]
    assert agreement == sorted(agreement)  # type: ignore[type-var]
    path.write_text("{}\n")
    with pytest.raises(InputError, match=r"history.jsonl:1"):
        read_history(path)
