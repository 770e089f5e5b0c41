"""With the policy fixed, each edit is held against its parent on the same items; the best is kept, not the last."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from hat_components.evaluate.result import TraceRecord
from hat_components.evolve.config import Config, ExpertPolicy
from hat_components.evolve.effects import reduction
from hat_components.evolve.measure import Measured, Row
from hat_components.evolve.result import Evolution, Measurement
from hat_components.evolve.step import run
from hat_components.step import NullProgress
from tests.evolution.conftest import HEEDING, IGNORING, SHIPPED

Evolve = Callable[..., Evolution]


def figures(evolution: Evolution, policy: str = "heeding") -> dict[str, Measurement]:
    return {stage.name: stage.measured[policy] for stage in evolution.stages}


def test_the_path_is_not_monotonic_and_the_best_checkpoint_is_selected(evolution: Evolution) -> None:
    made = figures(evolution)
    average = {name: one.scores["average"].mean for name, one in made.items()}
    assert evolution.selected == "evolution-2"
    assert average["evolution-2"] > max(average[name] for name in average if name != "evolution-2")
    assert average["evolution-3"] < average["base"] < average["evolution-4"] < average["evolution-2"]
    assert evolution.stages[0].outcome == "base"
    assert {stage.name for stage in evolution.stages if stage.outcome == "kept"} == {"evolution-1", "evolution-2"}
    assert evolution.stopped == "all_tried"


def test_the_first_edit_over_refuses_and_the_second_cures_it(evolution: Evolution) -> None:
    made = figures(evolution)
    rates = {name: one.over_refusal.value or 0.0 for name, one in made.items()}
    assert rates["base"] == rates["evolution-2"] == 0.0
    assert rates["evolution-1"] > 0.05
    over = made["evolution-1"].over_refusal
    assert over.low < rates["evolution-1"] < over.high
    assert made["base"].causes["forbidden"] > 0
    assert "forbidden" not in made["evolution-1"].causes
    effect = made["evolution-1"].effect
    assert effect is not None
    assert effect.effectiveness.delta < 0.02 < effect.accuracy.delta
    assert effect.intents["chat"].broken > effect.intents["chat"].fixed


def test_what_is_fixed_and_broken_adds_up(evolution: Evolution) -> None:
    names = [stage.name for stage in evolution.stages]
    for policy in evolution.policies:
        made = figures(evolution, policy)
        for before, after in pairwise(names):
            effect = made[after].effect
            assert effect is not None
            assert effect.against == before
            assert made[after].errors == made[before].errors - effect.fixed + effect.broken
            assert effect.still_wrong == made[before].errors - effect.fixed
            for counts in (effect.intents,):
                assert sum(one.fixed for one in counts.values()) == effect.fixed
                assert sum(one.broken for one in counts.values()) == effect.broken
                assert sum(one.n for one in counts.values()) == made[after].turns
            assert sum(one.fixed for one in effect.hooks.values()) >= effect.fixed
            assert len(effect.cases) == min(200, effect.fixed + effect.broken)
            assert all(bool(case.before) != bool(case.after) for case in effect.cases)
            total = made[after].total
            assert total is not None
            assert total.against == "base"


def test_limits_that_are_too_tight_name_the_hooks_that_fired(evolution: Evolution) -> None:
    effect = figures(evolution)["evolution-3"].effect
    assert effect is not None
    broke = {hook for hook, tally in effect.hooks.items() if tally.broken}
    assert "numbers_name_their_product" in broke
    assert "length_limit" in broke
    assert effect.objective.kind == "worse"


def test_the_held_out_check_says_for_whom_the_edit_works(evolution: Evolution) -> None:
    heeding, ignoring = evolution.held_out["heeding"], evolution.held_out["ignoring"]
    assert heeding.errors_before > heeding.errors_after
    assert heeding.reduction is not None
    assert heeding.reduction == pytest.approx(1 - heeding.errors_after / heeding.errors_before)
    assert 0 < heeding.reduction_low < heeding.reduction <= heeding.reduction_high <= 1
    assert (ignoring.reduction or 0.0) < heeding.reduction
    assert ignoring.reduction_low < 0.3
    assert evolution.contrast["ignoring"].delta < 0
    assert (
        evolution.contrast["ignoring"].low < evolution.contrast["ignoring"].delta < evolution.contrast["ignoring"].high
    )
    assert evolution.held_out_dataset != evolution.dataset


def test_every_session_and_every_harness_is_kept(evolved: Path, evolution: Evolution) -> None:
    records = [TraceRecord.model_validate_json(line) for line in (evolved / "traces.jsonl").read_text().splitlines()]
    labels = {record.suite for record in records}
    assert {f"{name}.{policy}" for name in ("base", *SHIPPED) for policy in ("heeding", "ignoring")} <= labels
    assert {"held-out.base.heeding", "held-out.evolution-2.ignoring"} <= labels
    assert len(records) == 5 * 2 * 40 + 2 * 2 * 24
    digests = {stage.name: stage.harness for stage in evolution.stages}
    assert {record.harness for record in records if record.suite == "evolution-2.heeding"} == {digests["evolution-2"]}
    for name in ("base", *SHIPPED):
        assert (evolved / "harnesses" / name / "harness.yaml").is_file()


def test_the_same_evolution_twice_is_the_same_file(inputs: dict[str, Path], evolved: Path, tmp_path: Path) -> None:
    config = Config(policies=(HEEDING, IGNORING), patience=0, draws=500, batch=7)
    run(config, inputs, tmp_path / "again", NullProgress())
    old, new = ((folder / "evolution.json").read_text() for folder in (evolved, tmp_path / "again"))
    assert [line for line in old.splitlines() if '"config"' not in line] == [
        line for line in new.splitlines() if '"config"' not in line
    ]


def test_patience_ends_the_search_and_says_what_was_not_tried(inputs: dict[str, Path], evolve: Evolve) -> None:
    class Heard(NullProgress):
        def __init__(self) -> None:
            self.warnings: list[str] = []

        def warning(self, message: str) -> None:
            self.warnings.append(message)

    heard = Heard()
    found = evolve(inputs, heard, patience=1, objective="effectiveness", held_out_items=6)
    assert found.selected == "base"
    assert found.stopped == "patience"
    assert [stage.outcome for stage in found.stages] == ["base", "not_kept", "not_tried", "not_tried", "not_tried"]
    assert found.stages[2].measured == {}
    assert found.stages[2].changes
    assert found.held_out == {}
    assert "stopped after evolution-1" in heard.warnings[0]


def test_an_edit_that_refuses_too_much_is_not_kept_however_good(inputs: dict[str, Path], evolve: Evolve) -> None:
    two = {name: path for name, path in inputs.items() if name[-1] not in "234"}
    free = evolve(two, objective="accuracy", min_gain=0.0)
    accuracy = {stage.name: stage.measured["heeding"].scores["accuracy"].mean for stage in free.stages}
    assert accuracy["evolution-1"] > accuracy["base"]
    assert free.selected == "evolution-1"
    held = evolve(two, objective="accuracy", over_refusal_rise=0.02)
    assert held.selected == "base"
    demanding = evolve(two, objective="accuracy", min_gain=0.5)
    assert demanding.selected == "base"


def test_a_policy_without_faults_leaves_nothing_to_gain(inputs: dict[str, Path], evolve: Evolve) -> None:
    """The perfect expert also proves the candidates: two of them cost it nothing, tight limits do."""
    found = evolve(inputs, policies=(ExpertPolicy(name="perfect"),), patience=0)
    errors = {stage.name: stage.measured["perfect"].errors for stage in found.stages}
    assert errors["base"] == errors["evolution-1"] == errors["evolution-2"] == 0
    assert errors["evolution-3"] > errors["evolution-4"]
    assert found.selected == "base"


def row(item: int, error: bool) -> Row:
    good = 0.0 if error else 1.0
    return Row(f"i{item}", 1, "chat", "reply", (good,) * 5, ("gate",) if error else (), (), False, "")


def measured(errors: list[bool]) -> Measured:
    rows = tuple(row(index, error) for index, error in enumerate(errors))
    return Measured("p", rows, tuple(one.item for one in rows))


def test_error_reductions_have_intervals_that_never_claim_certainty() -> None:
    before, after = measured([True] * 20 + [False] * 20), measured([True] * 10 + [False] * 30)
    value, low, high = reduction(before, after, draws=2000, seed=1)
    assert value == 0.5
    assert 0.2 < low < 0.5 < high < 0.8
    assert reduction(measured([False] * 9), measured([False] * 9), draws=200, seed=1) == (None, -1.0, 1.0)
    value, low, high = reduction(before, measured([False] * 40), draws=200, seed=1)
    assert (value, high) == (1.0, 1.0)
    assert low < 0.9
    value, low, high = reduction(before, before, draws=200, seed=1)
    assert value == 0.0
    assert low < 0 < high
