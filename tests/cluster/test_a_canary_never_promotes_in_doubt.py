"""The canary state machine:

No promotion in doubt, abort from everywhere, clocks that run only while the split is in force.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hat_serving.canary import control
from hat_serving.canary.machine import advance, fold
from hat_serving.canary.spec import RolloutSpec
from hat_serving.canary.state import (
    TERMINAL,
    Measure,
    Measurement,
    Observation,
    Promote,
    State,
    Tally,
    Verdict,
    to_status,
)
from tests.cluster.canary_world import METRIC, START, World, spec


def test_a_rollout_goes_through_its_steps_and_promotes() -> None:
    world = World(spec())
    assert world.until("Paused").pause_reason == "PauseStep"
    assert world.weight == 50
    world.resume = "go"
    assert world.until(*TERMINAL).phase == "Healthy"
    assert [window.weight for window in world.state.windows] == [10, 10, 50]
    assert world.state.windows[1].metrics == {"errors": 0.5}


def test_a_pause_counts_only_time_with_the_split_in_force() -> None:
    world = World(spec())
    while world.state.clock_started is None or world.state.step != 1:
        world.look()
    world.look(50)
    assert world.state.step == 1
    world.weight, world.obeys = 0, False
    world.look(50)
    assert to_status(world.state)["clockStarted"] is None
    world.weight, world.obeys = 10, True
    world.look(5)
    world.look(55)
    assert world.state.step == 1, "the time before the drift must not count"
    world.look(6)
    assert world.state.step == 2


def test_a_split_must_hold_for_the_settling_time() -> None:
    world = World(spec(), settle=6.0)
    for _ in range(3):
        world.look(1)
    matched = world.state.matched_since
    assert matched is not None
    assert to_status(world.state)["clockStarted"] is None
    looks = 0
    while world.state.clock_started is None:
        world.look(1)
        looks += 1
    assert looks == 6
    assert world.state.clock_started - matched >= 6


@pytest.mark.parametrize("verdict", ["inconclusive", "error", "waiting"])
def test_doubt_holds_and_resuming_measures_again(verdict: Verdict) -> None:
    world = World(spec(), verdict=verdict)
    assert world.until("Paused").pause_reason == "Inconclusive"
    weight = world.weight
    world.resume = "again"
    world.look()
    assert world.until("Paused").pause_reason == "Inconclusive"
    assert world.weight == weight
    world.verdict, world.resume = "success", "once more"
    world.look()
    assert world.until("Paused").pause_reason == "PauseStep"


def test_a_resume_from_before_the_pause_does_not_count() -> None:
    world = World(spec())
    world.look()
    world.resume = "too early"
    world.until("Paused")
    for _ in range(5):
        world.look()
    assert world.state.phase == "Paused"


def test_a_failing_metric_aborts_and_gives_the_traffic_back() -> None:
    world = World(spec(), verdict="failure")
    state = world.until(*TERMINAL)
    assert (state.phase, state.reason) == ("Degraded", "AnalysisFailed")
    assert world.weight == 0
    assert world.retired


def test_failures_within_the_limit_do_not_abort() -> None:
    plan = spec(metrics=[{**METRIC, "failureLimit": 1, "count": 3}])
    tally = Tally(name="errors")
    for verdict in ("failure", "success"):
        tally = fold(plan, tally, Measurement("errors", verdict), START)
        assert tally.outcome is None
    assert fold(plan, tally, Measurement("errors", "failure"), START).outcome == "failure"
    assert fold(plan, tally, Measurement("errors", "success"), START).outcome == "success"


def test_the_evidence_says_no_more_than_the_rollout() -> None:
    world = World(spec())
    world.until("Paused")
    assert control.evidence(world.plan, world.state)["verdict"] == "inconclusive"
    world.resume = "go"
    world.until(*TERMINAL)
    kept = json.loads(json.dumps(control.evidence(world.plan, world.state)))
    assert (kept["verdict"], kept["errors"], kept["largest_weight"]) == ("success", 0.5, 50)
    failing = World(spec(), verdict="failure")
    failing.until(*TERMINAL)
    assert control.evidence(failing.plan, failing.state)["verdict"] == "failure"
    aborted = World(spec(), abort=True)
    aborted.until(*TERMINAL)
    assert control.evidence(aborted.plan, aborted.state)["verdict"] == "inconclusive"


def test_what_is_inconclusive_does_not_count_towards_success() -> None:
    plan = spec(metrics=[{**METRIC, "inconclusiveLimit": 5, "count": 2}])
    tally = Tally(name="errors")
    for verdict in ("success", "inconclusive", "inconclusive"):
        tally = fold(plan, tally, Measurement("errors", verdict), START)
    assert tally.outcome is None
    assert fold(plan, tally, Measurement("errors", "success"), START).outcome == "success"


def test_a_metrics_server_that_is_gone_holds_before_the_deadline() -> None:
    world = World(spec(steps=[{"setWeight": 10}, {"analysis": {"deadline": "24h"}}]), verdict="error")
    assert world.until("Paused").pause_reason == "Inconclusive"
    assert world.now - START < 600
    assert world.state.analysis[0].errors == 5


def test_the_first_measurement_waits_for_one_interval() -> None:
    world = World(spec(steps=[{"setWeight": 10}, {"analysis": {}}]))
    while world.state.clock_started is None or world.state.step != 1:
        assert not any(isinstance(command, Measure) for command in world.look(1).commands)
    begun = world.state.clock_started
    while world.state.analysis[0].successes == 0:
        world.look(1)
    assert world.now - begun >= 10


def test_a_background_metric_must_succeed_before_promotion() -> None:
    world = World(spec(steps=[{"setWeight": 20}], analysis={"metrics": ["errors"]}), verdict="waiting")
    for _ in range(40):
        world.look()
    assert world.state.phase == "Progressing"
    assert world.state.reason == "WaitingForAnalysis"
    assert len(world.state.windows) == 0
    world.verdict = "success"
    assert world.until(*TERMINAL).phase == "Healthy"


def test_a_split_that_never_comes_aborts_after_the_deadline() -> None:
    world = World(spec())
    world.look()
    world.obeys = False
    for _ in range(30):
        world.look()
    assert (world.state.phase, world.state.reason) == ("Degraded", "ProgressDeadlineExceeded")
    assert not any(isinstance(command, Promote) for command in world.commands)


def test_a_blocked_rollout_waits_without_touching_anything() -> None:
    result = advance(spec(), State(), Observation(START, 0, True, blocked="no gateway"))
    assert (result.state.phase, result.state.reason, result.commands) == ("Pending", "PreflightFailed", ())


def test_a_promotion_that_takes_long_is_not_aborted_by_the_deadline() -> None:
    world = World(spec(steps=[{"setWeight": 100}]))
    while world.weight != 100:
        world.look(1)
    world.obeys = False
    for _ in range(40):
        world.look(30)
    assert world.state.phase == "Promoting"
    world.obeys = True
    assert world.until(*TERMINAL).phase == "Healthy"


def test_someone_elses_promotion_ends_the_rollout() -> None:
    world = World(spec())
    world.look()
    world.promoted = True
    assert (world.look().state.phase, world.state.reason) == ("Healthy", "PromotedElsewhere")


VERDICTS: tuple[Verdict, ...] = ("success", "failure", "inconclusive", "error", "waiting")
steps = st.lists(
    st.one_of(
        st.integers(0, 100).map(lambda weight: {"setWeight": weight}),
        st.sampled_from([{"pause": {"duration": "20s"}}, {"pause": {}}, {"analysis": {"deadline": "60s"}}]),
    ),
    max_size=6,
)
events = st.lists(
    st.tuples(
        st.sampled_from(["look", "look", "look", "drift", "unready", "deaf", "pause", "resume", "verdict"]),
        st.integers(0, 100),
    ),
    max_size=60,
)


def random_spec(raw: list[dict[str, Any]], background: bool) -> RolloutSpec:
    weights = iter(sorted(step["setWeight"] for step in raw if "setWeight" in step))
    ordered = [{"setWeight": next(weights)} if "setWeight" in step else step for step in raw]
    extra = {"analysis": {"metrics": ["errors"]}} if background else {}
    return spec(steps=[{"setWeight": 0}, *ordered], **extra)


def play(world: World, happenings: list[tuple[str, int]], verdicts: tuple[Verdict, ...] = VERDICTS) -> None:
    for kind, number in happenings:
        if kind == "drift":
            world.weight = number
        elif kind == "unready":
            world.ready = number % 2 == 0
        elif kind == "deaf":
            world.obeys = number % 2 == 0
        elif kind == "pause":
            world.paused = number % 2 == 0
        elif kind == "resume":
            world.resume = str(number)
        elif kind == "verdict":
            world.verdict = verdicts[number % len(verdicts)]
        before = world.state
        world.look(number % 30)
        check_clock(world, before)


def check_clock(world: World, before: State) -> None:
    """Whatever happened:

    A clock runs only while the split seen at this look is the wanted one and the canary is ready.
    """
    state = world.state
    if state.clock_started is not None and state.phase in ("Progressing", "Paused"):
        assert state.clock_started <= world.now
        assert world.in_force == (state.desired_weight, True)
        assert state.matched_since is not None
        assert state.matched_since <= state.clock_started
    if state.step > before.step and before.phase == "Progressing" and state.phase == "Progressing":
        pause = world.plan.steps[before.step].pause
        if pause is not None and pause.duration:
            assert before.clock_started is not None
            assert world.now - before.clock_started >= pause.duration


@given(raw=steps, happenings=events, background=st.booleans())
def test_whatever_happens_the_invariants_hold(
    raw: list[dict[str, Any]], happenings: list[tuple[str, int]], background: bool
) -> None:
    play(World(random_spec(raw, background)), happenings)


@given(raw=steps, happenings=events, background=st.booleans())
def test_without_a_success_nothing_that_is_measured_is_promoted(
    raw: list[dict[str, Any]], happenings: list[tuple[str, int]], background: bool
) -> None:
    plan = random_spec(raw, background)
    measured = background or any(step.analysis for step in plan.steps)
    world = World(plan, verdict="inconclusive")
    play(world, happenings, ("inconclusive", "waiting", "error"))
    for number in range(60):
        world.obeys, world.ready, world.paused, world.resume = True, True, False, f"r{number}"
        world.look()
    if measured:
        assert not any(isinstance(command, Promote) for command in world.commands)
        assert not world.promoted
    else:
        assert world.state.phase in TERMINAL


@given(raw=steps, happenings=events, background=st.booleans())
def test_an_abort_is_possible_from_every_state(
    raw: list[dict[str, Any]], happenings: list[tuple[str, int]], background: bool
) -> None:
    world = World(random_spec(raw, background))
    play(world, happenings)
    if world.state.phase in TERMINAL or world.promoted:
        return
    world.abort, world.obeys = True, True
    for _ in range(4):
        world.look()
    assert world.state.phase == "Degraded"
    assert world.weight == 0
    assert world.retired
    assert not world.promoted


@given(raw=steps, happenings=events)
def test_success_everywhere_ends_in_promotion(raw: list[dict[str, Any]], happenings: list[tuple[str, int]]) -> None:
    world = World(random_spec(raw, background=True))
    kind_ones = [(kind, number) for kind, number in happenings if kind in ("look", "pause", "resume")]
    play(world, kind_ones)
    world.paused = False
    for number in range(80):
        world.resume = f"go{number}"
        world.look(20)
    assert world.state.phase == "Healthy"
    assert world.weight == 100


def test_the_old_version_stays_warm_for_the_soak() -> None:
    world = World(spec(steps=[{"setWeight": 50}], metrics=[], soak="300s"))
    world.until("Promoting")
    begun = world.now
    while not world.promoted:
        world.look()
        assert world.now - begun < 1000
        if world.now - begun < 290:
            assert not world.promoted
    assert world.weight == 100
    assert world.until("Healthy").reason == "Promoted"


def test_what_fails_in_the_soak_is_taken_back_before_it_is_promoted() -> None:
    world = World(spec(steps=[{"setWeight": 50}], soak="300s", analysis={"metrics": ["errors"]}))
    world.until("Promoting")
    world.look()
    world.verdict = "failure"
    state = world.until("Degraded")
    assert state.reason == "AnalysisFailed"
    assert not world.promoted
    assert world.weight == 0


def test_an_abort_in_the_soak_comes_before_the_promotion() -> None:
    world = World(spec(steps=[{"setWeight": 50}], metrics=[], soak="300s"))
    world.until("Promoting")
    world.look()
    world.abort = True
    assert world.until("Degraded").reason == "AbortRequested"
    assert not world.promoted


def test_a_wish_to_promote_skips_pauses_and_no_measurement() -> None:
    world = World(spec())
    world.promote, world.verdict = True, "waiting"
    for _ in range(30):
        world.look()
    assert (world.state.phase, world.state.step) == ("Progressing", 2), "the analysis is still measured"
    world.verdict = "success"
    assert world.until("Healthy").reason == "Promoted"


def test_conditions_change_their_time_with_their_status_only() -> None:
    from hat_serving.canary.conditions import conditions

    world = World(spec())
    world.until("Progressing")
    first = conditions(world.state, (), 1, world.now)
    assert {entry["type"]: entry["status"] for entry in first}["Promoted"] == "Unknown"
    world.look()
    second = conditions(world.state, first, 1, world.now)
    for old, new in zip(first, second, strict=True):
        assert (old["lastTransitionTime"] == new["lastTransitionTime"]) == (old["status"] == new["status"])
    world.abort = True
    last = conditions(world.until("Degraded"), second, 1, world.now)
    assert {entry["type"]: entry["status"] for entry in last}["Promoted"] == "False"
