"""An order is carried out once, whatever happens to the desk; its end says what happened and what to do."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pydantic import ValidationError

from hat_pipelines.desk import look
from hat_pipelines.desk.catalogue import UnknownNameError
from hat_pipelines.desk.desk import Desk
from hat_pipelines.desk.order import Order
from hat_pipelines.desk.store import Ordered
from hat_pipelines.errors import DagError, ProfileError, RemoteError, RunConflictError, RunNotFoundError
from tests.pipelines.desks import BROKEN, TOYS, Clock, holding, make_desk, until
from tests.pipelines.toys import broken

WHO = ("default", "ada")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return make_desk(tmp_path)


def now(desk: Desk, placed: Ordered) -> Ordered:
    found = desk.store.of_run(placed.run)
    assert found is not None
    return found


def finish(desk: Desk, placed: Ordered) -> Ordered:
    until(lambda: now(desk, placed).state not in ("queued", "running"), desk)
    return now(desk, placed)


def underway(desk: Desk, placed: Ordered, step: str = "hold") -> None:
    root = desk.settings.root

    def holds() -> bool:
        return (root / placed.run / "steps" / step / "progress.jsonl").exists()

    until(holds, desk)


def test_a_run_goes_on_when_its_desk_is_gone_and_the_next_desk_hears_of_its_end(tmp_path: Path, desk: Desk) -> None:
    placed = desk.place(*WHO, holding(tmp_path))
    underway(desk, placed)
    desk.stop()
    later = make_desk(tmp_path)
    later.tick()
    assert now(later, placed).state == "running"
    (tmp_path / "release").touch()
    assert finish(later, placed).state == "done"
    assert look.detail(tmp_path / "runs", placed.run)["state"] == "done"


def test_runs_wait_for_room_in_the_order_in_which_they_came(tmp_path: Path, desk: Desk) -> None:
    first, second = desk.place(*WHO, holding(tmp_path)), desk.place(*WHO, holding(tmp_path))
    underway(desk, first)
    assert now(desk, second).state == "queued"
    assert first.run != second.run
    (tmp_path / "release").touch()
    assert finish(desk, first).state == "done"
    assert finish(desk, second).state == "done"


def test_a_cancelled_run_keeps_what_is_done_and_can_be_resumed(tmp_path: Path, desk: Desk) -> None:
    placed = desk.place(*WHO, holding(tmp_path))
    waiting = desk.place(*WHO, holding(tmp_path))
    underway(desk, placed)
    assert desk.cancel(now(desk, waiting))
    assert now(desk, waiting).state == "cancelled"
    assert desk.cancel(now(desk, placed))
    ended = finish(desk, placed)
    assert (ended.state, ended.fault) == ("cancelled", None)
    states = {one["step"]: one["state"] for one in look.detail(tmp_path / "runs", placed.run)["steps_detail"]}
    assert states == {"draw": "done", "hold": "interrupted", "total": "waiting"}
    assert not desk.cancel(now(desk, placed))
    (tmp_path / "release").touch()
    again = desk.place(*WHO, Order(pipeline=placed.order.pipeline, profile="toy", resume=placed.run))
    assert finish(desk, again).state == "done"


def test_a_killed_supervisor_is_told_with_the_way_on(tmp_path: Path, desk: Desk) -> None:
    placed = desk.place(*WHO, holding(tmp_path))
    underway(desk, placed)
    pid = int((tmp_path / "runs" / ".orders" / f"{placed.id}.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    ended = finish(desk, placed)
    assert ended.state == "interrupted"
    assert ended.fault is not None
    assert "supervisor is gone" in ended.fault.message
    assert "resume" in ended.fault.cure
    assert look.detail(tmp_path / "runs", placed.run)["state"] == "interrupted"


@pytest.mark.parametrize(
    ("budget", "told"), [({"gpu_seconds": 1.0}, "GPU-seconds of 1"), ({"tokens": 25}, "tokens of 25")]
)
def test_a_budget_stops_a_run(tmp_path: Path, desk: Desk, budget: dict[str, float], told: str) -> None:
    ended = finish(desk, desk.place(*WHO, holding(tmp_path, budget=budget)))
    assert ended.state == "over_budget"
    assert ended.fault is not None
    assert told in ended.fault.message
    assert "raise the budget" in ended.fault.cure


def test_a_step_that_is_killed_fails_the_run_and_says_so(tmp_path: Path, desk: Desk) -> None:
    order = Order(pipeline=TOYS, profile="toy", values={"steps.add-hsa.fail": "kill"})
    ended = finish(desk, desk.place(*WHO, order))
    assert ended.state == "failed"
    assert ended.fault is not None
    assert (ended.fault.kind, "out of memory" in ended.fault.cure) == ("exhausted", True)


def test_what_cannot_run_is_refused_before_it_is_queued(tmp_path: Path, desk: Desk) -> None:
    for order, error, told in (
        (Order(pipeline=TOYS, profile="toy", values={"steps.draw.count": 0}), ProfileError, "1 problem"),
        (Order(pipeline=TOYS, profile="toy", values={"steps.drew.count": 1}), ProfileError, "problem"),
        (Order(pipeline=BROKEN, profile="toy"), ProfileError, "problem"),
        (Order(pipeline="os.path", profile="toy"), UnknownNameError, "no pipeline"),
        (Order(pipeline=TOYS, profile="../toy"), UnknownNameError, "no profile"),
        (Order(pipeline=TOYS, profile="toy", harness="/etc"), UnknownNameError, "no harness"),
        (Order(pipeline=TOYS, profile="toy", target="argo"), RemoteError, "knows no argo"),
        (Order(pipeline=TOYS, profile="toy", resume="nowhere"), RunNotFoundError, "no run"),
    ):
        with pytest.raises(error, match=told):
            desk.place(*WHO, order)
    assert desk.store.active() == []
    with pytest.raises(ValidationError, match="field of its own"):
        Order(values={"harness": "/etc"})
    with pytest.raises(DagError, match="circle"):
        broken.build(())


def test_two_runs_of_one_name_are_a_conflict(tmp_path: Path, desk: Desk) -> None:
    desk.place(*WHO, holding(tmp_path, name="mine"))
    with pytest.raises(RunConflictError, match="stands already"):
        desk.place(*WHO, holding(tmp_path, name="mine"))
    with pytest.raises(RunNotFoundError):
        desk.place("other", "eve", Order(pipeline=TOYS, profile="toy", resume="mine"))


def test_a_schedule_skips_while_its_last_run_is_not_over(tmp_path: Path) -> None:
    clock = Clock()
    desk = make_desk(tmp_path, clock=clock)
    desk.put_schedule(*WHO, "nightly", "30 2 * * *", holding(tmp_path))
    desk.tick()
    assert desk.store.active() == []
    clock.time = clock.time.replace(minute=30, second=5)
    desk.tick()
    desk.tick()
    (fired,) = desk.store.active()
    assert fired.schedule == "nightly"
    underway(desk, fired)
    clock.time = clock.time.replace(day=1, month=2)
    desk.tick()
    schedule = desk.store.scheduled("default", "nightly")
    assert (schedule.fired, schedule.skipped) == (1, 1)
    assert fired.run in schedule.note
    (tmp_path / "release").touch()
    finish(desk, fired)
    clock.time = clock.time.replace(day=5, hour=12)
    desk.tick()
    assert "missed" in desk.store.scheduled("default", "nightly").note
    assert desk.store.active() == []
    desk.switch("default", "nightly", False)
    clock.time = clock.time.replace(day=6, hour=2)
    desk.tick()
    assert desk.store.active() == []


def test_only_one_desk_works_in_a_runs_directory(tmp_path: Path, desk: Desk) -> None:
    placed = desk.place(*WHO, holding(tmp_path))
    other = make_desk(tmp_path)
    with desk._alone() as mine:
        assert mine
        other.tick()
    assert now(desk, placed).state == "queued"


def test_values_of_a_step_reach_each_of_its_arms_and_leave_the_rest(desk: Desk) -> None:
    order = Order(pipeline=TOYS, profile="toy", values={"steps.add.seed": 7, "seed": 3, "steps.draw.scale": 0.5})
    loaded, dag = desk.catalogue.profile(order)
    seeds = {step.name: loaded.config(step).seed for step in dag.steps}
    assert seeds == {"draw": 3, "add-naive": 7, "add-hsa": 7, "total": 3}


def test_a_full_store_is_told_as_such(tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    from hat_pipelines.desk import supervise

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "/runs")

    monkeypatch.setattr(supervise, "_local", full)
    ticket = supervise.Ticket(
        order=holding(tmp_path), run="r", root=tmp_path, cache=None, profiles=tmp_path, harnesses=tmp_path
    )
    outcome = supervise.carry_out(ticket)
    assert outcome.fault is not None
    assert (outcome.state, outcome.fault.kind) == ("failed", "exhausted")
    assert "free disk space" in outcome.fault.cure
