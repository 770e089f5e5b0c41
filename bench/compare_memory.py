"""Memory and time of comparing two evaluations of 100,000 sessions, as a ratio to reading them whole.

Each side runs in a process of its own, so that peaks do not mix: `lean` is what `hat compare` does, `whole` loads both
files with every turn, as a report does. Prints one JSON object: peak MiB and seconds of both, their ratios, and whether
the lean comparison stays within 1 GiB.
Run: python bench/compare_memory.py [--items 100000] [--without-whole]
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FAMILIES = ("skill_name", "tool_name", "gate", "opener", "layout")


def write(path: Path, arm: str, items: int, seed: int, right: float) -> None:
    """An evaluation of `items` sessions of three turns, written line by line as the step writes it."""
    rng = random.Random(seed)
    digest = "sha256:" + "ab" * 32
    score = {"mean": right, "low": right, "high": right}
    suite = {
        "id": "t2", "title": "the same items under fresh draws", "kind": "rollout", "headline": "average", "seed": 5102,
        "paired_with": "", "scores": {"average": score}, "intents": {}, "families": {},
    }  # fmt: skip
    head = {
        "format": "hatstack.evaluation/1", "arm": arm, "policy": "model", "model": "", "harness": digest,
        "dataset": digest, "config": digest, "seeds": "sealed", "environment": {},
    }  # fmt: skip
    with path.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(head)[:-1] + ', "suites": [' + json.dumps(suite)[:-1] + ', "items": [')
        for number in range(items):
            turns = [_turn(rng, right) for _ in range(3)]
            values = {name: sum(turn["values"][name] for turn in turns) / 3 for name in turns[0]["values"]}
            item = {
                "item": f"live_commerce-published1-test-1-{number}", "values": values, "turns": turns,
                "harness": digest, "families": rng.sample(FAMILIES, 3),
            }  # fmt: skip
            stream.write((",\n" if number else "") + json.dumps(item, indent=1))
        stream.write("]}]}\n")


def _turn(rng: random.Random, right: float) -> dict[str, object]:
    names = ("accuracy", "effectiveness", "skill_selection", "tool_rationality")
    values = {name: float(rng.random() < right) for name in names}
    values["average"] = (values["accuracy"] + values["effectiveness"]) / 2
    return {"intent": "product_qa", "values": values, "causes": [] if values["average"] == 1 else ["missing_fact"]}


def work(kind: str, paths: list[Path]) -> None:
    """One contender, in its own process: prints peak memory and seconds."""
    from hat_components.evaluate.compare import compare
    from hat_components.evaluate.compare_read import read_lean
    from hat_components.evaluate.result import load_evaluation

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    a, b = (read_lean(path) if kind == "lean" else load_evaluation(path) for path in paths)
    read = time.perf_counter() - start
    rows = compare(a, b, families=True, draws=2000)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    made = {"mib": peak / 1024, "grown_mib": (peak - before) / 1024, "read_s": read}
    print(json.dumps({**made, "seconds": time.perf_counter() - start, "contrasts": len(rows), "delta": rows[0].delta}))


def main() -> None:
    """Write the two files, let both contenders compare them, print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--without-whole", action="store_true")
    parser.add_argument("--work", choices=["lean", "whole"])
    parser.add_argument("paths", nargs="*", type=Path)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.paths)
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{arm}.json" for arm in ("a", "b")]
        for path, seed, right in zip(paths, (1, 2), (0.9, 0.88), strict=True):
            write(path, path.stem, options.items, seed, right)
        report: dict[str, object] = {
            "items": options.items,
            "file_mib": round(paths[0].stat().st_size / 2**20, 1),
        }
        found = {}
        for kind in ("lean",) if options.without_whole else ("lean", "whole"):
            command = [sys.executable, __file__, "--work", kind, *map(str, paths)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[kind] = json.loads(done.stdout)
            report[kind] = {name: round(value, 3) for name, value in found[kind].items()}
    report["lean_within_1_gib"] = found["lean"]["mib"] < 1024
    if "whole" in found:
        report["lean_times_whole"] = {
            name: round(found["lean"][name] / found["whole"][name], 3) for name in ("mib", "seconds")
        }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
