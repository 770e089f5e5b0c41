"""Load and digest of a harness of 100 skills, its diff with an edited one, and a rewrite of 200 tools.

Each is a ratio to a floor measured beside it: reading the same files as bytes, comparing the same harness as JSON text.
Prints one JSON object; exits 1 when a goal is missed (100 ms, 50 ms, 20 ms of CPU, scaled by how much slower than the
reference machine a calibration loop runs). Run: python bench/harness_sizes.py [rounds]
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from augment_rate import HARNESS, with_tools
from harness_episode import REFERENCE_MS, calibrate

from hat_harness.augment import apply, trained_plan
from hat_harness.diff import diff
from hat_harness.digest import harness_digest
from hat_harness.load import load_harness, parse_files, read_folder, save_harness
from hat_harness.spec import Harness, Skill
from hat_scenarios.live_commerce import LiveCommerce, Settings

GOALS = {"load and digest": 100.0, "diff": 50.0, "rewrite": 20.0}


def with_skills(count: int) -> Harness:
    """The live-commerce harness with `count` skills of about 2 KB."""
    base = load_harness(HARNESS)
    text = "Answer with the price of the item, and name one thing that it is good for. " * 25
    extra = tuple(
        Skill(id=f"skill_{n}", name=f"skill_{n}", description=f"answers question {n}", body=f"{n}\n{text}")
        for n in range(count - len(base.skills))
    )
    return base.model_copy(update={"skills": (*base.skills, *extra)})


def cpu_ms(work: Callable[[], Any], times: int) -> float:
    """CPU milliseconds of one call."""
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times * 1e3


def main(rounds: int = 7) -> int:
    """Measures, prints, judges."""
    harness = with_skills(100)
    skill = harness.skills[50].model_copy(update={"name": "renamed", "body": harness.skills[50].body + " More."})
    edited = harness.model_copy(update={"skills": (*harness.skills[:50], skill, *harness.skills[51:])})
    text, other = harness.model_dump_json(), edited.model_dump_json()
    scenario = LiveCommerce(Settings())
    words, held_out = scenario.vocabulary(), scenario.vocabulary(held_out=True)
    plan, many = trained_plan().model_copy(update={"original": 0.0}), with_tools(load_harness(HARNESS), 200)
    seeds = iter(range(10_000_000))
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where) / "harness"
        save_harness(harness, folder)
        files = read_folder(folder)
        rows: dict[str, tuple[Callable[[], Any], Callable[[], Any], int]] = {
            "load and digest": (lambda: harness_digest(load_harness(folder)), lambda: read_folder(folder), 2),
            "parse and digest": (lambda: harness_digest(parse_files(files)), lambda: json.loads(text), 2),
            "diff": (lambda: diff(harness, edited), lambda: (json.loads(text), json.loads(other)), 5),
            "rewrite": (
                lambda: apply(many, plan, next(seeds), words, held_out=held_out),
                lambda: json.loads(json.dumps(json.loads(text))),
                10,
            ),
        }
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
        slow = []
        for _ in range(rounds):
            slow.append(calibrate() / REFERENCE_MS)
            for name, (ours, floor, times) in rows.items():
                taken[name].append((cpu_ms(ours, times), cpu_ms(floor, times)))
    report: dict[str, Any] = {
        name: {
            "cpu_ms": round(statistics.median(ours for ours, _ in pairs), 2),
            "times_floor": round(statistics.median(ours / max(floor, 1e-6) for ours, floor in pairs), 1),
        }
        for name, pairs in taken.items()
    }
    factor = max(1.0, statistics.median(slow))
    print(json.dumps({**report, "slower_than_reference": round(statistics.median(slow), 2)}, indent=2))
    return 0 if all(report[name]["cpu_ms"] <= goal * factor for name, goal in GOALS.items()) else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
