"""Time and memory of the paired bootstrap, interleaved with scipy's bootstrap and with a floor.

The floor is one gather of the same number of random cells: what drawing items one by one costs at least. Prints one
JSON object: per case the median seconds, the ratio to scipy (peer) and to the floor, and the growth of peak memory.
Run: python bench/stats_bootstrap.py [--rounds 5] [--draws 10000]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from hat_stats.bootstrap import paired_bootstrap

Runs = tuple[NDArray[np.float64], NDArray[np.float64]]


def runs(kind: str, n: int) -> Runs:
    """Two runs over n items: right/wrong, or graded with all values distinct."""
    rng = np.random.default_rng(1)
    if kind == "binary":
        return (rng.random(n) < 0.8).astype(np.float64), (rng.random(n) < 0.75).astype(np.float64)
    return rng.random(n), rng.random(n)


def ours(pair: Runs, draws: int) -> None:
    """The function under test."""
    paired_bootstrap(*pair, seed=1, draws=draws)


def peer(pair: Runs, draws: int) -> None:
    """scipy, vectorised, in batches of the same size."""
    gaps = pair[0] - pair[1]
    stats.bootstrap(
        (gaps,), np.mean, n_resamples=draws, batch=max(1, (1 << 16) // len(gaps)), method="percentile", rng=1
    )


def floor(pair: Runs, draws: int) -> None:
    """Draw and gather as many cells, nothing else."""
    gaps, rng = pair[0] - pair[1], np.random.default_rng(1)
    rows = max(1, (1 << 16) // len(gaps))
    for start in range(0, draws, rows):
        gaps[rng.integers(0, len(gaps), size=(min(rows, draws - start), len(gaps)))].sum(axis=1)


def seconds(work: Callable[[Runs, int], None], pair: Runs, draws: int) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work(pair, draws)
    return time.perf_counter() - start


def main() -> None:
    """Measure the cases one after the other, the three contenders interleaved within each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--draws", type=int, default=10_000)
    options = parser.parse_args()
    report = {}
    for kind, n, draws in (
        ("binary", 2000, options.draws),
        ("graded", 2000, options.draws),
        ("binary", 100_000, options.draws),
        ("graded", 100_000, max(100, options.draws // 20)),
    ):
        pair = runs(kind, n)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ours(pair, draws)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        taken: dict[str, list[float]] = {"ours": [], "peer": [], "floor": []}
        for _ in range(options.rounds):
            for name, work in (("ours", ours), ("peer", peer), ("floor", floor)):
                taken[name].append(seconds(work, pair, draws))
        middle = {name: statistics.median(values) for name, values in taken.items()}
        report[f"{kind}, {n} items, {draws} draws"] = {
            "seconds": round(middle["ours"], 4),
            "times_peer": round(middle["ours"] / middle["peer"], 3),
            "times_floor": round(middle["ours"] / middle["floor"], 3),
            "peak_grown_mib": round(grown, 1),
        }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
