"""One look at a rollout: the decision is saved before anything changes, and whoever may not save may not act."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kopf
import pytest

from hat_serving.canary import control
from hat_serving.canary.backends import Reading
from hat_serving.canary.controller import Controller, Settings
from hat_serving.canary.driver import Look, Wishes, look
from hat_serving.canary.errors import BackendError, ClusterError
from hat_serving.canary.folder import Folder
from hat_serving.canary.kube import Manifest
from hat_serving.canary.preflight import Finding
from hat_serving.canary.spec import API_VERSION, KIND, RolloutSpec, read_spec
from hat_serving.canary.state import Measurement, State

SPEC: dict[str, Any] = {
    "release": "r2",
    "target": {"backend": "gateway", "url": "http://gateway", "deployment": "chat"},
    "steps": [{"setWeight": 10}, {"analysis": {"deadline": "1h"}}],
    "metrics": [{"name": "m", "threshold": {"query": "q", "success": {"atMost": 1}}, "interval": "1s"}],
    "prometheus": {"url": "http://prometheus"},
}


class Journal:
    """A backend, a metric source and a place to save, all of which write down what happened in which order."""

    settle = 0.0

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.reading = Reading(0, ready=True)
        self.trouble: Exception | None = None
        self.refused = False

    def read(self) -> Reading:
        if isinstance(self.trouble, ClusterError) and self.trouble.code == 0:
            raise self.trouble
        return self.reading

    def _do(self, line: str) -> None:
        self.lines.append(line)
        if self.trouble:
            raise self.trouble

    def prepare(self) -> None:
        self._do("prepare")

    def set_weight(self, percent: int) -> None:
        self._do(f"weight {percent}")

    def promote(self) -> None:
        self._do("promote")

    def retire(self) -> None:
        self._do("retire")

    def measure(self, spec: RolloutSpec, names: Sequence[str], window: float, percent: int) -> tuple[Measurement, ...]:
        self.lines.append(f"measure {','.join(names)} over {window:g} s at {percent} %")
        return tuple(Measurement(name, "success", 0.5) for name in names)

    def save(self, state: State) -> None:
        if self.refused:
            raise ClusterError(409, "changed meanwhile")
        self.lines.append(f"save {state.phase}")


def once(journal: Journal, state: State, now: float, **wishes: Any) -> Look:
    return look(
        read_spec(SPEC),
        state,
        journal,
        journal,
        wishes=Wishes(**wishes),
        check=lambda: "",
        save=journal.save,
        clock=lambda: now,
    )


def test_the_state_is_saved_first() -> None:
    journal = Journal()
    once(journal, State(), 0.0)
    assert journal.lines == ["save Progressing", "weight 10"]


def test_who_may_not_save_may_not_act() -> None:
    journal = Journal()
    journal.refused = True
    with pytest.raises(ClusterError):
        once(journal, State(), 0.0)
    assert journal.lines == []


def test_a_measurement_is_taken_in_within_the_same_look() -> None:
    journal = Journal()
    state = once(journal, State(), 0.0).state
    journal.reading = Reading(10, ready=True)
    state = once(journal, state, 5.0).state
    journal.lines.clear()
    state = once(journal, state, 7.0).state
    assert journal.lines == ["measure m over 2 s at 10 %", "save Promoting", "weight 100"]
    assert state.windows[-1].metrics == {"m": 0.5}


@pytest.mark.parametrize("trouble", [BackendError("no route"), ClusterError(403, "forbidden")])
def test_a_command_that_fails_is_told_and_tried_again(trouble: Exception) -> None:
    journal = Journal()
    journal.trouble = trouble
    done = once(journal, State(), 0.0)
    assert str(trouble) in done.trouble
    assert done.state.phase == "Progressing"
    journal.trouble = None
    again = once(journal, done.state, 1.0)
    assert again.trouble == ""
    assert journal.lines[-1] == "weight 10"


def test_trouble_is_told_in_the_state_of_the_next_look() -> None:
    journal = Journal()
    state = once(journal, State(), 0.0).state
    said = look(
        read_spec(SPEC),
        state,
        journal,
        journal,
        wishes=Wishes(),
        check=lambda: "",
        save=journal.save,
        note="forbidden",
        clock=lambda: 1.0,
    )
    assert said.state.message == "forbidden"


def test_preflight_is_not_asked_again_once_the_canary_is_being_made() -> None:
    """Its own pods would look like missing capacity."""
    journal = Journal()
    journal.reading = Reading(0, ready=False)
    asked: list[str] = []

    def check() -> str:
        asked.append("x")
        return "no capacity" if len(asked) == 1 else ""

    state, looks = State(), dict[str, Any](wishes=Wishes(), check=check, save=journal.save)
    for now in (0.0, 1.0, 2.0, 3.0):
        clock = itertools.repeat(now).__next__
        state = look(read_spec(SPEC), state, journal, journal, clock=clock, **looks).state
    assert len(asked) == 2
    assert state.reason == "WaitingForCanary"


def test_a_lost_race_is_no_trouble() -> None:
    journal = Journal()
    journal.trouble = ClusterError(409, "changed meanwhile")
    assert once(journal, State(), 0.0).trouble == ""


def test_a_cluster_out_of_reach_stops_the_clock_and_removes_nothing() -> None:
    journal = Journal()
    state = once(journal, State(), 0.0).state
    journal.reading = Reading(10, ready=True)
    state = once(journal, state, 1.0).state
    assert state.clock_started == 1.0
    journal.trouble = ClusterError(0, "no answer")
    done = once(journal, state, 2.0, abort=True)
    assert done.state.clock_started is None
    assert done.state.phase == "Aborting"
    assert "retire" not in journal.lines
    assert "no answer" in done.trouble


def test_a_finished_rollout_is_left_alone() -> None:
    journal = Journal()
    once(journal, State(phase="Healthy"), 0.0)
    assert journal.lines == []


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Controller, Folder]:
    """A controller, and the folder with the rollout `r2` that it works on; the backend is a Journal."""
    folder = Folder(tmp_path)
    control.start(folder, control.render("r2", "default", read_spec(SPEC)))
    journal = Journal()
    monkeypatch.setattr("hat_serving.canary.controller.backend_for", lambda spec, kube, namespace: journal)
    return Controller(folder, Settings()), folder


def resource(folder: Folder) -> Manifest:
    found = folder.get(API_VERSION, KIND, "r2", "default")
    assert found is not None
    return found


def test_a_deletion_that_lost_a_race_is_not_the_end_of_it(started: tuple[Controller, Folder]) -> None:
    """Else the resource would go while its canary still has traffic."""
    controller, folder = started
    stale = resource(folder)
    assert controller.look(stale) is not None
    assert controller.look(stale) is None
    with pytest.raises(kopf.TemporaryError, match="changed meanwhile"):
        controller.look(stale, deleting=True)


def test_preflight_is_asked_again_soon_and_then_seldom(
    started: tuple[Controller, Folder], monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, folder = started
    now, asked = [0.0], []

    def preflight(*_: object) -> list[Finding]:
        asked.append(now[0])
        return [Finding("NoCapacity", "error", "no place")] if now[0] < 40 else []

    monkeypatch.setattr("hat_serving.canary.controller.preflight", preflight)
    clock = SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0])
    monkeypatch.setattr("hat_serving.canary.controller.time", clock)
    for second in range(50):
        now[0] = float(second)
        controller.look(resource(folder))
    assert asked == [0, 1, 3, 7, 15, 25, 35, 45]
    assert resource(folder)["status"]["phase"] == "Progressing"
