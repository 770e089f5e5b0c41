"""Rows of the ablation: made of finished evaluations, paired, added once, read back by the tables of the report."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hat_components.ablation.policies import ABOVE, PAIRS, POLICIES
from hat_components.ablation.rows import append_rows, read_rows, rows_of
from hat_components.evaluate.result import Evaluation, load_evaluation
from hat_components.paper.catalogue import render
from hat_components.paper.items_training import trailing
from hat_components.paper.sources import Sources
from hat_components.step import InputError
from hat_pipelines import profile
from hat_pipelines.dags import build
from hatstack import paths

Fabricate = Callable[..., dict[str, Path]]


@pytest.fixture
def evaluations(fabricate: Fabricate) -> dict[str, Evaluation]:
    found = {}
    for place, name in enumerate(POLICIES):
        rng = random.Random(place)
        scores = {suite: [float(rng.random() < 0.3 + 0.04 * place) for _ in range(60)] for suite in ("t1", "t2")}
        found[name] = load_evaluation(fabricate(name, scores)[f"evaluation-{name}"])
    return found


def test_the_pipeline_trains_every_policy_that_a_table_names() -> None:
    dag = build("ablate", ()).expand()
    trained = {step.name for step in dag.steps}
    assert set(POLICIES) <= trained
    assert {step.item for step in dag.steps if step.base == "evaluate"} == set(POLICIES)
    assert {name for pair in PAIRS for name in (pair.candidate, pair.reference)} <= set(POLICIES)
    starts = {step.name: step.needs.get("start", step.needs.get("base", "")).split(".")[0] for step in dag.steps}
    assert {name: starts[name] for name in ABOVE} == ABOVE


def test_a_contrast_is_the_mean_of_paired_differences(evaluations: dict[str, Evaluation]) -> None:
    rows = rows_of(evaluations, 1, "sha256:" + "0" * 64)
    for row in rows:
        if row.kind != "contrast":
            continue
        ours, theirs = (evaluations[name].suite("t2") for name in (row.policy, row.reference))
        assert ours is not None
        assert theirs is not None
        left, right = ours.values("average"), theirs.values("average")
        assert row.scores["T2"] == pytest.approx(np.mean([left[item] - right[item] for item in left]), abs=1e-12)
        assert row.low["T2"] <= row.scores["T2"] <= row.high["T2"]
        assert row.models == (evaluations[row.policy].model, evaluations[row.reference].model)
    assert sum(row.kind == "contrast" for row in rows) == len(PAIRS)


def test_a_part_of_the_policies_gives_their_rows_and_contrasts_alone(evaluations: dict[str, Evaluation]) -> None:
    some = {name: evaluations[name] for name in ("base", "sft-hsa")}
    assert [(row.policy, row.reference) for row in rows_of(some, 1, "x")] == [
        ("base", ""),
        ("sft-hsa", ""),
        ("sft-hsa", "base"),
    ]


def test_rows_are_added_once_and_a_newer_measurement_replaces(
    tmp_path: Path, evaluations: dict[str, Evaluation]
) -> None:
    file = tmp_path / "results" / "ablation.jsonl"
    rows = rows_of(evaluations, 1, "x")
    assert append_rows(file, rows[:3]) == 3
    assert append_rows(file, rows) == len(rows) - 3
    assert append_rows(file, rows) == 0
    changed = rows[0].model_copy(update={"scores": {"T1": 0.5}})
    assert append_rows(file, [changed]) == 1
    back = {row.key: row for row in read_rows(file)}
    assert back[changed.key] == changed
    assert len(back) == len(rows)
    assert list(file.parent.iterdir()) == [file]


def test_measurements_on_other_items_are_not_contrasted(evaluations: dict[str, Evaluation]) -> None:
    other = evaluations["base"].model_copy(update={"dataset": "sha256:" + "1" * 64})
    with pytest.raises(InputError, match="other items"):
        rows_of({**evaluations, "base": other}, 1, "x")


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ablation.jsonl"
    file.write_text('{"format": "hatstack.ablation/1"}\n', encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_rows(file)
    assert caught.value.place == f"{file}:1"


def test_tables_are_made_of_the_rows_and_say_what_they_lack(tmp_path: Path, evaluations: dict[str, Evaluation]) -> None:
    root = tmp_path / "runs"
    nothing = render("t4", Sources.scan([root]))
    assert nothing.state == "missing"
    assert "hat ablate" in nothing.missing[0].how
    append_rows(root / "ablation.jsonl", rows_of(evaluations, 1, "x"))
    one = render("t4", Sources.scan([root]))
    assert one.rows[0]["Policy"] == "Base"
    assert "[" in one.rows[0]["T1"]
    assert [need.how for need in one.missing] == ["hat ablate --seed 2"]
    for seed in (2, 3):
        append_rows(root / "ablation.jsonl", rows_of(evaluations, seed, "x"))
    three = {ident: render(ident, Sources.scan([root])) for ident in ("t4", "t5", "t6")}
    assert all(made.state == "made" and not made.missing for made in three.values())
    append_rows(root / "ablation.jsonl", rows_of({"base": evaluations["hat"]}, 1, "another profile"))
    assert render("t4", Sources.scan([root])).rows == three["t4"].rows, "profiles do not mix"
    mean = evaluations["base"].suite("t1")
    assert mean is not None
    assert three["t4"].rows[0]["T1"].startswith(f"{100 * mean.scores['average'].mean:.1f}")
    assert {row["Contrast"] for row in three["t5"].rows if "Contrast" in row} >= {"Δ(RL − OPD), original"}


def test_curves_of_training_become_figures(tmp_path: Path) -> None:
    step = tmp_path / "run-1" / "steps" / "cell-aug-aug"
    step.mkdir(parents=True)
    lines = []
    for at in range(1, 41):
        if at % 10 == 1:
            for name in ("accuracy", "effectiveness", "skill_selection", "tool_rationality"):
                lines.append({"kind": "metric", "name": f"rl.score.{name}", "value": at / 100, "step": at})
        lines.append({"kind": "metric", "name": "rl.reasoning.tool", "value": 100.0 + at, "step": at})
        lines.append({"kind": "metric", "name": "mtp.loss.1", "value": 1.0 / at, "step": at})
    (step / "progress.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    found = {ident: render(ident, Sources.scan([tmp_path])) for ident in ("f5", "f6", "f8")}
    assert all(one.state == "made" for one in found.values())
    assert found["f5"].rows[0] == {
        "Policy": "cell-aug-aug", "Score": "accuracy", "first": "1.0", "best": "31.0", "at step": "31", "last": "31.0",
    }  # fmt: skip
    assert len(found["f5"].section.plots) == 4
    assert found["f6"].rows[0]["last"] == "128.0"
    assert found["f6"].rows[0]["q(L)"] == "0.28"
    assert found["f8"].rows[0]["Head"] == "cell-aug-aug, token 1"


def test_a_trailing_mean_is_over_the_last_points_at_most() -> None:
    points = [(float(at), float(at)) for at in range(1, 6)]
    assert trailing(points, 3) == [(1.0, 1.0), (2.0, 1.5), (3.0, 2.0), (4.0, 3.0), (5.0, 4.0)]


@pytest.mark.parametrize("name", ["ablate", "h20"])
def test_what_makes_a_policy_is_fixed_whatever_the_profile(name: str) -> None:
    loaded = profile.load(paths.profile(name), ["pipeline=ablate"])
    configs = {step.name: loaded.config(step).model_dump() for step in loaded.dag().steps}
    assert {arm: configs[f"sft-{arm}"]["arm"] for arm in ("naive", "hsa")} == {"naive": "naive", "hsa": "hsa"}
    played = {step: found["states"] for step, found in configs.items() if "states" in found}
    assert {step for step, states in played.items() if states == "augmented"} == {"hat", "cell-std-aug", "cell-aug-aug"}
    assert [configs[f"distil-{end}"]["play"]["states"] for end in ("orig", "aug")] == ["original", "augmented"]
    again = profile.loads(profile.dump(loaded.resolved(loaded.dag())), paths.profile(name))
    assert {step.name: again.config(step).model_dump() for step in again.dag().steps} == configs
