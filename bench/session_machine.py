"""The session under an adversarial driver, many steps: the rules and invariants of the tests, counted.

Runs the state machine of tests/harness/test_a_turn_always_ends.py with fresh draws until `steps` steps were taken; every
run ends in a replay to the same bytes. Prints one JSON object with the steps and runs that held; a broken invariant is
printed by hypothesis with the steps that lead to it, and exits 1. Run: python bench/session_machine.py [steps] [seed]
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.harness.test_a_turn_always_ends import Driver

STEPS = 50
"""Steps of one run."""


class Counted(Driver):
    """The driver of the tests, counting what it sends."""

    taken = finished = 0

    def send(self, event: object) -> None:
        """One step."""
        Counted.taken += 1
        super().send(event)  # type: ignore[arg-type]  # events are the base's own

    def teardown(self) -> None:
        """One run is over."""
        super().teardown()
        Counted.finished += 1


def main(steps: int = 50_000, first: int = 1) -> int:
    """Runs until enough steps were taken."""
    began = time.process_time()
    chosen = settings(
        max_examples=200,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    number = first
    while Counted.taken < steps:
        run_state_machine_as_test(seed(number)(Counted), settings=chosen)
        number += 1
    report = {"steps": Counted.taken, "runs": Counted.finished, "seeds": number - first}
    print(json.dumps({**report, "cpu_s": round(time.process_time() - began, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
