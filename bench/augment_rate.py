"""Rate of harness-state augmentation on one core: a harness and a session rewritten, as a ratio to a JSON round trip.

The floor reads and writes the same harness and session as JSON once: what copying them at all costs. The three are
interleaved, medians over rounds. Prints one JSON object: milliseconds, rewrites a second, the ratio to the floor, and the
same for a harness of 200 tools without a session.
Run: python bench/augment_rate.py [--rounds 7] [--draws 100]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hat_harness.augment import apply, rewrite_trajectory, trained_plan
from hat_harness.events import Message
from hat_harness.load import load_harness
from hat_harness.spec import Harness, Tool
from hat_scenarios.live_commerce import LiveCommerce, Settings
from hat_scenarios.play import play_expert

HARNESS = Path(__file__).parents[1] / "harness-registry" / "harnesses" / "live-commerce"


def with_tools(harness: Harness, count: int) -> Harness:
    """The harness with copies of its tools under further names, `count` in all."""
    tools: list[Tool] = []
    for number in range(count):
        tool = harness.tools[number % len(harness.tools)]
        suffix = f"_{number // len(harness.tools)}" if number >= len(harness.tools) else ""
        tools.append(tool.model_copy(update={"id": tool.id + suffix, "name": tool.name + suffix}))
    return harness.model_copy(update={"tools": tuple(tools)})


def seconds(work: Callable[[int], Any], draws: int) -> float:
    """Processor time of one draw."""
    start = time.process_time()
    for number in range(draws):
        work(number)
    return (time.process_time() - start) / draws


def measure(harness: Harness, session: list[Message], rounds: int, draws: int) -> dict[str, float]:
    """One case."""
    scenario = LiveCommerce(Settings())
    words, held_out = scenario.vocabulary(), scenario.vocabulary(held_out=True)
    plan = trained_plan().model_copy(update={"original": 0.0})
    text = json.dumps([harness.model_dump(mode="json"), [message.content for message in session]])

    def ours(seed: int) -> object:
        state = apply(harness, plan, seed, words, held_out=held_out)
        return rewrite_trajectory(state, session, "") if session else state

    def floor(_: int) -> object:
        return json.dumps(json.loads(text))

    ours(0)
    taken: dict[str, list[float]] = {"ours": [], "floor": []}
    for _ in range(rounds):
        taken["ours"].append(seconds(ours, draws))
        taken["floor"].append(seconds(floor, draws))
    mine, least = statistics.median(taken["ours"]), statistics.median(taken["floor"])
    return {
        "milliseconds": round(mine * 1000, 3),
        "per_second": round(1 / mine),
        "times_floor": round(mine / least, 2),
        "floor_milliseconds": round(least * 1000, 3),
    }


def main() -> None:
    """Both cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--draws", type=int, default=100)
    options = parser.parse_args()
    harness, scenario = load_harness(HARNESS), LiveCommerce(Settings(mix="balanced"))
    item = next(scenario.items(3, "train", 1))
    (trace,) = play_expert(scenario, [(harness, item)])
    session = list(trace.segments[0].messages)
    report = {
        f"harness of {len(harness.tools)} tools and a session of {len(session)} messages": measure(
            harness, session, options.rounds, options.draws
        ),
        "harness of 200 tools": measure(with_tools(harness, 200), [], options.rounds, max(5, options.draws // 5)),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
