"""A cluster in memory for tests of the canary state machine: it obeys unless told not to, and notes what was true when."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from hat_serving.canary.machine import advance
from hat_serving.canary.spec import RolloutSpec, read_spec
from hat_serving.canary.state import (
    Command,
    Measure,
    Measurement,
    Observation,
    Prepare,
    Promote,
    Retire,
    SetWeight,
    State,
    Transition,
    Verdict,
    from_status,
    to_status,
)

START = 1_700_000_000.0
METRIC = {"name": "errors", "threshold": {"query": "q", "success": {"atMost": 0.1}}, "interval": "10s", "count": 2}
STEPS = [
    {"setWeight": 10},
    {"pause": {"duration": "60s"}},
    {"analysis": {"deadline": "300s"}},
    {"setWeight": 50},
    {"pause": {}},
]


def spec(**changes: Any) -> RolloutSpec:
    raw = {
        "release": "r2",
        "target": {"backend": "gateway", "url": "http://gateway", "deployment": "chat"},
        "steps": STEPS,
        "metrics": [METRIC],
        "prometheus": {"url": "http://prometheus"},
        "progressDeadline": "120s",
    }
    return read_spec({**raw, **changes})


@dataclass
class World:
    """A cluster that obeys, unless it is told not to. Promotion and retirement are recorded with what was true then."""

    plan: RolloutSpec
    settle: float = 0.0
    now: float = START
    weight: int = 0
    ready: bool = False
    obeys: bool = True
    verdict: Verdict = "success"
    promoted: bool = False
    retired: bool = False
    paused: bool = False
    abort: bool = False
    promote: bool = False
    resume: str = ""
    state: State = field(default_factory=State)
    commands: list[Command] = field(default_factory=list)
    in_force: tuple[int, bool] = (0, False)
    """Weight and readiness that the last look saw, before it acted."""

    def seen(self) -> Observation:
        return Observation(
            self.now,
            self.weight,
            self.ready,
            "",
            self.promoted,
            self.retired,
            self.paused,
            self.abort,
            self.resume,
            promote=self.promote,
        )

    def look(self, seconds: float = 5.0) -> Transition:
        """One look of the driver, `seconds` after the last one.

        The state goes through the status and back each time.
        """
        self.now += seconds
        state = from_status(json.loads(json.dumps(to_status(self.state))))
        result = advance(self.plan, state, self.seen(), settle=self.settle)
        for command in result.commands:
            if isinstance(command, Measure):
                measured = tuple(Measurement(name, self.verdict, 0.5) for name in command.names)
                result = advance(
                    self.plan, result.state, replace(self.seen(), measurements=measured), settle=self.settle
                )
        self.state, self.in_force = result.state, (self.weight, self.ready)
        for command in result.commands:
            self.commands.append(command)
            self._act(command)
        return result

    def _act(self, command: Command) -> None:
        if isinstance(command, Retire):
            assert self.weight == 0, "the canary was taken away while it had traffic"
            self.retired = True
        if not self.obeys:
            return
        if isinstance(command, Prepare):
            self.ready = True
        elif isinstance(command, SetWeight):
            self.weight = command.percent
        elif isinstance(command, Promote):
            assert self.weight == 100, "promoted before all traffic was there"
            self.promoted = True

    def until(self, *phases: str, looks: int = 300, seconds: float = 5.0) -> State:
        for _ in range(looks):
            if self.state.phase in phases:
                return self.state
            self.look(seconds)
        raise AssertionError(f"never reached {phases}: {self.state}")
