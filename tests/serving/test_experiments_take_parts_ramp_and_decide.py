"""Parts of experiments never overlap, ramps wait for their clock, and a decision in words follows from what units did."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hat_serving.errors import SteeringError
from hat_serving.experiment import lifecycle
from hat_serving.experiment.analysis import analyse, harmed
from hat_serving.experiment.assignment import Arm, Split, Trial, place
from hat_serving.experiment.model import ArmPlan, Experiment, ExperimentSpec, Stage
from hat_serving.experiment.observed import Unit
from hat_serving.experiment.steering import Steering


def resolved(reference: str) -> tuple[str, str]:
    return f"{reference}@d", f"digest-of-{reference}"


STABLE = ArmPlan(name="stable", harness="shop@d", digest="digest-of-shop")


def spec(name: str = "e", **more: Any) -> ExperimentSpec:
    arms = [{"name": f"{name}-a", "harness": "candidate"}]
    return ExperimentSpec.model_validate(
        {"name": name, "deployment": "shop", "arms": arms, "control_name": f"{name}-control", **more}
    )


def started(now: Steering, name: str, at: float = 0.0) -> Steering:
    taken = [lifecycle.part(one) for one in now.running]
    return lifecycle.start(now, name, resolved, STABLE, taken, at)


def test_parts_of_a_group_never_overlap_and_run_out() -> None:
    now = Steering(name="shop")
    for name, share in (("a", 40), ("b", 40), ("c", 30)):
        now = lifecycle.create(now, spec(name, share=share), 0.0)
    now = started(started(now, "a"), "b")
    with pytest.raises(SteeringError, match="20 % are left"):
        started(now, "c")
    now = lifecycle.stop(now, "a", "", 1.0)
    now = started(now, "c")
    parts = [lifecycle.part(one) for one in now.running]
    assert sorted(parts) == [(0, 30), (40, 80)]
    trials = [
        Trial(
            one.name,
            "shop",
            round(one.low * 100),
            round((one.low + one.spec.share) * 100),
            Split("s", (Arm("x", 100),)),
        )
        for one in now.running
    ]
    seen = [place({"viewer": f"v{n}"}, Split("all", (Arm("stable", 100),)), trials).trial for n in range(4000)]
    shares = {name: sum(one is not None and one.name == name for one in seen) / 4000 for name in ("b", "c")}
    assert abs(shares["b"] - 0.4) < 0.03
    assert abs(shares["c"] - 0.3) < 0.03


def test_a_ramp_waits_goes_up_and_is_recorded() -> None:
    ramp = [{"percent": 10, "hold_s": 60}, {"percent": 100, "hold_s": 0}]
    now = started(lifecycle.create(Steering(name="shop"), spec(ramp=ramp), 0.0), "e")
    assert now.running[0].weights == (95, 5)
    assert lifecycle.advance(now, "e", 30.0) is now
    now = lifecycle.advance(now, "e", 61.0)
    assert now.running[0].weights == (50, 50)
    assert lifecycle.advance(now, "e", 999.0) is now
    assert [stage.began for stage in now.running[0].stages] == [0.0, 61.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"arms": []},
        {"arms": [{"name": "a", "weight": 99.5}]},
        {"arms": [{"name": "e-control"}]},
        {"ramp": [{"percent": 50, "hold_s": 1}, {"percent": 10, "hold_s": 1}]},
        {"overrides": {"v": "nobody"}},
        {"metric": "cost_per_reply"},
        {"share": 0},
        {"name": "No Name"},
    ],
)
def test_plans_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        spec(**wrong)


# ---- what comes out: pure -------------------------------------------------------------------------------------------------


def experiment(**more: Any) -> Experiment:
    plan = spec(**more)
    arms = tuple(ArmPlan(name=name, harness="h", digest=name) for name in ("e-control", "e-a"))
    return Experiment(spec=plan, state="running", created=0.0, arms=arms, stages=(Stage(began=0.0, percent=100.0),))


def crowd(arm: str, count: int, share: float, **each: Any) -> list[Unit]:
    """`count` units, evenly spread, of which `share` have bought."""
    made = []
    for number in range(count):
        bought = {"o"} if int((number + 1) * share) > int(number * share) else set()
        made.append(Unit(arm, float(number), turns=2, orders=set(bought), **each))
    return made


def test_a_better_arm_is_kept_a_worse_one_dropped_and_doubt_goes_on() -> None:
    for share, kind in ((0.6, "keep"), (0.1, "drop"), (0.31, "go_on")):
        result = analyse(experiment(), [*crowd("e-control", 1000, 0.3), *crowd("e-a", 1000, share)])
        assert result["decision"]["kind"] == kind
        assert result["decision"]["text_en"]
        assert result["decision"]["text_zh"]


def test_a_broken_sample_ratio_is_never_read() -> None:
    result = analyse(experiment(), [*crowd("e-control", 1300, 0.3), *crowd("e-a", 1000, 0.9)])
    assert result["decision"]["kind"] == "do_not_read"
    assert harmed(result)


def test_a_guardrail_stops_and_an_open_one_holds_back() -> None:
    guard = [{"metric": "seconds_per_reply", "margin": 0.5}]
    control, slow = crowd("e-control", 1000, 0.3, seconds=2.0), crowd("e-a", 1000, 0.6, seconds=6.0)
    for number, unit in enumerate([*control, *slow]):
        unit.seconds += 0.01 * (number % 7)
    result = analyse(experiment(guardrails=guard), [*control, *slow])
    assert result["decision"]["kind"] == "stop"
    few = analyse(experiment(guardrails=[{"metric": "tool_failures", "margin": 0.01}]), [*control, *slow])
    assert few["decision"]["kind"] == "go_on"
    assert "guardrails" in few["decision"]["text_en"]


def test_early_looks_say_that_it_is_too_early_and_p_never_rises() -> None:
    result = analyse(experiment(), [*crowd("e-control", 20, 0.3), *crowd("e-a", 20, 0.9)])
    assert result["decision"]["kind"] == "go_on"
    assert result["contrasts"][0]["primary"]["low"] is None
    later = analyse(experiment(), [*crowd("e-control", 500, 0.3), *crowd("e-a", 500, 0.3)], {"e-a": 0.02})
    assert later["contrasts"][0]["primary"]["p"] == 0.02


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 300), st.integers(0, 300), st.floats(0, 1), st.floats(0, 1))
def test_every_count_has_an_answer(left: int, right: int, one: float, two: float) -> None:
    result = analyse(experiment(), [*crowd("e-control", left, one), *crowd("e-a", right, two)])
    assert result["decision"]["kind"] in {"do_not_read", "stop", "keep", "drop", "no_matter", "go_on"}
