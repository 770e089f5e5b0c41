"""A DAG that is built can be run: names are unique, needs resolve, nothing waits for itself; order is fixed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hat_pipelines import dags
from hat_pipelines.cluster import conditions
from hat_pipelines.dag import Dag, Step, When, parents
from hat_pipelines.errors import DagError


def step(name: str, *needs: str, **more: Any) -> Step:
    found = {f"i{index}": need for index, need in enumerate(needs)}
    return Step(name=name, component="sft", needs=found, artifacts=("out",), **more)


def dag(*steps: Step, **more: Any) -> Dag:
    return Dag(name="d", inputs=("harness",), steps=steps, **more)


@pytest.mark.parametrize(
    ("steps", "message", "cure"),
    [
        ((step("a", "b.out"), step("b", "a.out")), "circle: a -> b -> a", ""),
        ((step("a", "a.out"),), "circle: a -> a", ""),
        ((step("a"), step("a")), "two steps are called 'a'", ""),
        ((step("first"), step("b", "frist.out")), "no step 'frist'", "did you mean 'first'?"),
        ((step("a"), step("b", "a.uot")), "makes no 'uot'", "did you mean 'out'?"),
        ((step("a", "input.harnes"),), "brings no 'harnes'", "did you mean 'harness'?"),
        ((step("A b"),), "'A b' is no step name", "lower case"),
        ((step("dag"),), "'dag' is no step name", "lower case"),
        ((step("a", when=When(step="z", metric="m", value=1)),), "no step 'z'", "one of: a"),
        ((step("a", foreach=("x", "x")),), "item twice", ""),
    ],
)
def test_what_cannot_run_is_refused_and_named(steps: tuple[Step, ...], message: str, cure: str) -> None:
    with pytest.raises(DagError) as caught:
        dag(*steps)
    assert message in caught.value.message
    assert cure in caught.value.cure


def test_on_exit_cannot_need_a_step() -> None:
    with pytest.raises(DagError, match="only what the run brings"):
        dag(step("a"), on_exit=step("last", "a.out"))


def test_foreach_is_item_by_item_and_gathered_by_a_step_without_it() -> None:
    flat = dag(
        step("a"), step("b", "a.out", foreach=("x", "y")), step("c", "b.out", foreach=("x", "y")), step("d", "c.out")
    )
    grown = flat.expand()
    assert [one.name for one in grown.steps] == ["a", "b-x", "b-y", "c-x", "c-y", "d"]
    assert grown.step("c-y").needs == {"i0": "b-y.out"}
    assert grown.step("d").needs == {"i0-x": "c-x.out", "i0-y": "c-y.out"}
    assert grown.step("c-y").base == "c"


def test_the_item_can_choose_the_artifact() -> None:
    source = Step(name="a", component="augment", artifacts=("rows_x", "rows_y"))
    grown = dag(source, step("b", "a.rows_{item}", foreach=("x", "y"))).expand()
    assert grown.step("b-y").needs == {"i0": "a.rows_y"}
    with pytest.raises(DagError, match="makes no 'rows_z'"):
        dag(source, step("b", "a.rows_{item}", foreach=("x", "z")))


def test_a_step_inherits_the_conditions_of_what_it_needs() -> None:
    when = When(step="a", metric="m", value=1)
    grown = dag(step("a"), step("b", "a.out", when=when), step("c", "b.out"), step("d", "a.out")).expand()
    assert conditions(grown) == {"a": (), "b": (when,), "c": (when,), "d": ()}


@given(st.integers(2, 9), st.data())
def test_every_step_stands_after_what_it_needs(count: int, data: st.DataObject) -> None:
    names = [f"s{index}" for index in range(count)]
    steps = []
    for index, name in enumerate(names):
        chosen = data.draw(st.lists(st.sampled_from(names[:index]), unique=True)) if index else []
        steps.append(step(name, *(f"{one}.out" for one in chosen)))
    shuffled = data.draw(st.permutations(steps))
    order = dag(*shuffled).order()
    assert sorted(order) == names
    for one in steps:
        assert all(order.index(parent) < order.index(one.name) for parent in parents(one))
    assert dag(*shuffled).order() == order


@pytest.mark.parametrize("name", dags.names())
@pytest.mark.parametrize("imported", [False, True])
def test_shipped_pipelines_expand(name: str, imported: bool) -> None:
    grown = dags.build(name, ("naive", "hsa"), imported=imported).expand()
    assert [one.name for one in grown.steps] == list(grown.order())


def test_an_unknown_pipeline_is_told_with_the_nearest() -> None:
    with pytest.raises(DagError) as caught:
        dags.build("trian", ("naive",))
    assert "did you mean 'train'?" in caught.value.cure


def test_branches_and_seeds_grow_a_pipeline_and_unknown_ones_are_refused() -> None:
    plain = dags.build("train", ("naive", "hsa")).expand()
    grown = dags.build("train", ("naive", "hsa"), branches=("mtp", "opd")).expand()
    assert {step.name for step in grown.steps} - {step.name for step in plain.steps} == {
        "opd-naive", "opd-hsa", "mtp-naive", "mtp-hsa",
    }  # fmt: skip
    assert grown.step("opd-hsa").needs["start"] == "sft-hsa.model"
    assert grown.step("mtp-hsa").needs["start"] == "opd-hsa.model"
    assert grown.step("register").needs["model-hsa"] == "mtp-hsa.model"
    taught = dags.build("train", ("naive", "hsa"), branches=("collect", "release")).expand()
    assert taught.step("sft-hsa").needs["trajectories"] == "collect-hsa.trajectories"
    assert taught.step("propose").needs["evaluation-hsa"] == "test-hsa.evaluation"
    nightly = dags.build("nightly", ("naive",), seeds=(3, 4)).expand()
    assert [step.name for step in nightly.steps if step.component == "gate"] == ["watch-3", "watch-4"]
    with pytest.raises(DagError, match="no branch 'rlx'") as caught:
        dags.build("train", ("naive",), branches=("rlx",))
    assert caught.value.cure == "did you mean 'rl'?"
    with pytest.raises(DagError, match="has no seeds"):
        dags.build("release", ("naive",), seeds=(1,))
