"""The composed advantage is GDPO's, equal to TRL's where they coincide, and keeps its promises on any rewards."""

from __future__ import annotations

import ast
import inspect
import math
import statistics
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hat_components.rl.reward import EPSILON, Term, check_terms, compose, length_penalty, whiten

VALUE = st.floats(-3, 3, allow_nan=False, width=32) | st.just(float("nan")) | st.sampled_from([0.0, 1.0])


def batches(terms=3):
    shape = st.tuples(st.integers(1, 4), st.integers(2, 6))
    return shape.flatmap(
        lambda s: st.tuples(st.just(s[1]), hnp.arrays(np.float64, (s[0] * s[1], terms), elements=VALUE))
    )


def trl_advantages(rewards, group, weights, aggregation, scale="group"):
    """Run the very lines of TRL that turn rewards into advantages."""
    from trl import GRPOTrainer
    from trl.trainer.utils import nanstd

    source = textwrap.dedent(inspect.getsource(GRPOTrainer._generate_and_score_completions))
    lines = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.If) and "multi_objective_aggregation == 'sum_then" in ast.unparse(node.test)
    ]
    assert len(lines) == 1, "TRL has changed: look at how it aggregates now"
    per_func = torch.tensor(rewards, dtype=torch.float64)
    space = {
        "torch": torch,
        "nanstd": nanstd,
        "self": SimpleNamespace(
            multi_objective_aggregation=aggregation,
            scale_rewards=scale,
            reward_weights=torch.tensor(weights, dtype=torch.float64),
            reward_funcs=[None] * per_func.shape[1],
        ),
        "device": "cpu",
        "num_generations": group,
        "rewards_per_func": per_func,
        "unscorable_mask": torch.isnan(per_func).all(dim=1),
    }
    exec(compile(ast.Module(lines, []), "trl", "exec"), space)
    return torch.nan_to_num(space["advantages"], nan=0.0).numpy()


def plainly(columns, group, weights):
    """GDPO written out with Python's own numbers."""
    count = len(columns[0])
    total = [0.0] * count
    for column, weight in zip(columns, weights, strict=True):
        for start in range(0, count, group):
            known = [x for x in column[start : start + group] if not math.isnan(x)]
            deviation = statistics.stdev(known) if len(known) > 1 else 0.0
            for i in range(start, start + group):
                if not math.isnan(column[i]):
                    total[i] += weight * (column[i] - math.fsum(known) / len(known)) / (deviation + EPSILON)
    scored = [i for i in range(count) if not all(math.isnan(column[i]) for column in columns)]
    deviation = statistics.stdev([total[i] for i in scored]) if len(scored) > 1 else 0.0
    mean = statistics.fmean([total[i] for i in scored]) if scored else 0.0
    return [(total[i] - mean) / (deviation + EPSILON) if i in scored else 0.0 for i in range(count)]


def named(values):
    return {f"r{k}": values[:, k] for k in range(values.shape[1])}


@settings(max_examples=80, deadline=None)
@given(drawn=batches())
def test_it_is_gdpo_written_out(drawn):
    group, values = drawn
    weights = [1.0, 0.5, 2.0]
    terms = {f"r{k}": Term(weight=weight) for k, weight in enumerate(weights)}
    found = compose(named(values), terms, group).advantage
    assert found == pytest.approx(plainly(values.T.tolist(), group, weights), abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(drawn=batches())
def test_it_is_trls_normalize_then_sum_where_every_group_has_two_values_of_every_term(drawn):
    group, values = drawn
    rows = values.reshape(-1, group, values.shape[1])
    rows[:, :2] = np.where(np.isnan(rows[:, :2]), 0.25, rows[:, :2])  # one value alone has a deviation of NaN in TRL
    values = rows.reshape(values.shape)
    weights = [1.0, 0.25, 3.0]
    terms = {f"r{k}": Term(weight=weight) for k, weight in enumerate(weights)}
    assert compose(named(values), terms, group).advantage == pytest.approx(
        trl_advantages(values, group, weights, "normalize_then_sum"), abs=1e-6
    )


@settings(max_examples=60, deadline=None)
@given(drawn=batches())
def test_one_composite_under_trls_batch_scaling_gives_the_same_advantage(drawn):
    group, values = drawn
    terms = {"r0": Term(), "r1": Term(weight=0.1, raw=True), "r2": Term(floor=0.2, gate="r0", gate_at=0.5)}
    composed = compose(named(values), terms, group)
    one = trl_advantages(composed.composite[:, None], group, [1.0], "sum_then_normalize", "batch")
    if np.isfinite(composed.composite).sum() > 1:
        assert composed.advantage == pytest.approx(one, abs=1e-6)
    assert whiten(composed.composite, group) == pytest.approx(composed.advantage, abs=1e-12)


@settings(max_examples=80, deadline=None)
@given(
    drawn=batches(), floor=st.sampled_from([0.0, 0.3]), raw=st.booleans(), closed=st.sampled_from(["zero", "exclude"])
)
def test_groups_sum_to_zero_and_nothing_is_ever_infinite(drawn, floor, raw, closed):
    group, values = drawn
    terms = {"r0": Term(floor=floor), "r1": Term(raw=raw, weight=-2), "r2": Term(gate="r0", closed=closed)}
    found = compose(named(values), terms, group)
    assert np.isfinite(found.advantage).all()
    assert np.nan_to_num(found.composite).reshape(-1, group).sum(axis=1) == pytest.approx(0, abs=1e-6)
    nothing = np.isnan(values).all(axis=1)
    assert not found.advantage[nothing].any()


@settings(max_examples=40, deadline=None)
@given(drawn=batches(), shift=st.floats(-5, 5), order=st.randoms(use_true_random=False))
def test_a_shift_of_a_term_and_the_order_within_a_group_change_nothing(drawn, shift, order):
    group, values = drawn
    terms = {"r0": Term(), "r1": Term(raw=True), "r2": Term(floor=0.1)}
    before = compose(named(values), terms, group).advantage
    assert compose(named(values + shift), terms, group).advantage == pytest.approx(before, abs=1e-4)
    places = np.arange(len(values)).reshape(-1, group)
    for row in places:
        order.shuffle(row)
    moved = places.ravel()
    assert compose(named(values[moved]), terms, group).advantage == pytest.approx(before[moved], abs=1e-8)


def test_different_mixtures_of_rewards_stay_apart_where_their_sum_is_the_same():
    rewards = {"easy": [1, 0, 1, 0], "hard": [0, 1, 0, 0]}
    found = compose(rewards, {"easy": Term(), "hard": Term()}, 4).advantage
    assert found[1] > found[0] + 0.2, "the rarer reward counts for more, though both rollouts sum to 1"


def test_a_tiny_deviation_is_blown_up_without_a_floor_and_not_with_one():
    rewards = {"r": [0.500, 0.502, 0.498, 0.500], "real": [1.0, 0.0, 1.0, 0.0]}
    loose = compose(rewards, {"r": Term(), "real": Term()}, 4).composite
    firm = compose(rewards, {"r": Term(floor=0.1), "real": Term()}, 4).composite
    only = compose(rewards, {"real": Term()}, 4).composite
    assert abs(loose - only).max() > 1.0
    assert abs(firm - only).max() == pytest.approx(0.002 / (0.1 + EPSILON), rel=1e-6)


def test_a_raw_term_keeps_its_scale():
    rewards = {"length": length_penalty([50, 150, 250, 100])}
    found = compose(rewards, {"length": Term(weight=-0.1, raw=True)}, 4)
    assert found.composite == pytest.approx(-0.1 * (np.array([0, 0.5, 1, 0]) - 0.375))


def test_behind_a_closed_gate_a_term_earns_nothing_or_takes_no_part():
    rewards = {"right": [1, 1, 0, None], "nice": [1.0, 0.0, 1.0, 1.0]}
    zero = {"right": Term(weight=0), "nice": Term(gate="right", raw=True)}
    assert compose(rewards, zero, 4).composite == pytest.approx([0.75, -0.25, -0.25, -0.25])
    out = {"right": Term(weight=0), "nice": Term(gate="right", raw=True, closed="exclude")}
    found = compose(rewards, out, 4)
    assert found.composite[:3] == pytest.approx([0.5, -0.5, 0.0])
    assert np.isnan(found.composite[3]), "neither term has a value: the rollout is left out"
    assert found.advantage[3] == 0


def test_dead_groups_are_counted_by_group_and_by_term():
    rewards = {"a": [1, 1, 0, 1, 0.5, 0.5], "b": [2, 2, 1, 1, None, 3]}
    found = compose(rewards, {"a": Term(), "b": Term()}, 2)
    assert (found.dead, found.dead_terms) == (2, {"a": 2, "b": 3})
    assert found.means == pytest.approx({"a": 4 / 6, "b": 9 / 5})
    assert found.advantage[:2] == pytest.approx([0, 0])


def test_the_length_term_is_the_papers():
    assert length_penalty([0, 100, 101, 150, 200, 10_000]) == pytest.approx([0, 0, 0.01, 0.5, 1, 1])
    with pytest.raises(ValueError, match="full > free"):
        length_penalty([1], 5, 5)


@pytest.mark.parametrize(
    ("rewards", "terms", "group", "told"),
    [
        ({"a": [1, 2, 3]}, {"a": Term()}, 2, "not whole groups"),
        ({"a": [1, 2]}, {"b": Term()}, 2, "terms without rewards: b"),
        ({"a": [1, 2], "b": [1]}, {"a": Term(), "b": Term()}, 2, "the same number"),
        ({"a": [1, float("inf")]}, {"a": Term()}, 2, "infinite"),
        ({"a": [1, 2]}, {"a": Term(gate="c")}, 2, "is no term"),
        ({"a": []}, {"a": Term()}, 2, "not whole groups"),
    ],
)
def test_what_does_not_fit_together_is_refused(rewards, terms, group, told):
    with pytest.raises(ValueError, match=told):
        compose(rewards, terms, group)


def test_gates_must_lead_somewhere_and_not_in_a_circle():
    check_terms({"a": Term(), "b": Term(gate="a"), "c": Term(gate="b")})
    with pytest.raises(ValueError, match="circle"):
        check_terms({"a": Term(gate="b"), "b": Term(gate="a")})
    with pytest.raises(ValueError, match="no term"):
        check_terms({"a": Term(gate="x")})
