"""What the rows of the bench say: scores, paired contrasts, held-out factors, families, memory, speed, as Markdown.

Always holds: a contrast is paired by seed and item and its interval is over items with seeds as strata; figures are points
of 100. Not here: running (jobs), the statistics (hat_stats).
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.hat.plan import ARMS, FACTORS
from hat_components.evaluate.result import Evaluation, load_evaluation
from hat_stats.bootstrap import bootstrap_mean, paired_bootstrap

SUITES = ("t1", "t2", "t2x", "t2n", "t2e", "t4m", "t4")
Found = Mapping[tuple[int, str], Evaluation]
"""(seed, arm) → evaluation on sealed seeds."""


def found(folder: Path, rows: Mapping[str, Mapping[str, Any]]) -> dict[tuple[int, str], Evaluation]:
    """The finished sealed evaluations."""
    made = {}
    for name in sorted(rows):
        seed, _, rest = name.partition("/test-")
        if rest and seed[1:].isdigit():
            made[int(seed[1:]), rest] = load_evaluation(folder / name.replace("/", "-"))
    return made


def scores(evaluations: Found, arm: str, suite: str) -> dict[tuple[int, str], float]:
    """(seed, item) → headline score."""
    made: dict[tuple[int, str], float] = {}
    for (seed, name), evaluation in sorted(evaluations.items()):
        result = evaluation.suite(suite) if name == arm else None
        if result is not None:
            made |= {(seed, item): value for item, value in result.values(result.headline).items()}
    return made


def mean(values: Iterable[float]) -> str:
    """In points, or a dash."""
    all_of = list(values)
    return f"{100 * sum(all_of) / len(all_of):.0f}" if all_of else "–"


def interval(values: Mapping[tuple[int, str], float]) -> str:
    """Mean with its interval over items."""
    if not values:
        return "–"
    got = bootstrap_mean(list(values.values()), seed=1, strata=[str(seed) for seed, _ in values])
    return f"{100 * (got.value or 0):.1f} [{100 * got.low:.1f}, {100 * got.high:.1f}]"


def contrast(left: Mapping[tuple[int, str], float], right: Mapping[tuple[int, str], float]) -> str:
    """Paired difference of means with its interval."""
    keys = sorted(left.keys() & right.keys())
    if not keys:
        return "–"
    strata = [str(seed) for seed, _ in keys]
    got = paired_bootstrap([left[key] for key in keys], [right[key] for key in keys], seed=1, strata=strata)
    return f"{100 * (got.delta or 0):+.1f} [{100 * got.low:+.1f}, {100 * got.high:+.1f}]"


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    rows = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*rows, *(f"| {' | '.join(line)} |" for line in lines)])


def label(suite: str) -> str:
    """How a suite is called in tables."""
    return suite[:2].upper() + suite[2:]


def by_suite(evaluations: Found) -> str:
    """Every arm and seed, then the means with intervals."""
    numbers = sorted({seed for seed, _ in evaluations})
    lines = []
    for arm in ("base", *ARMS):
        for seed in numbers:
            one = {key: value for key, value in evaluations.items() if key == (seed, arm)}
            if one:
                lines.append([arm, str(seed), *(mean(scores(one, arm, suite).values()) for suite in SUITES)])
        lines.append([f"**{arm}**", "all", *(interval(scores(evaluations, arm, suite)) for suite in SUITES)])
    return table(["arm", "seed", *map(label, SUITES)], lines)


def contrasts(evaluations: Found) -> str:
    """What the main claims are about."""
    got = {(arm, suite): scores(evaluations, arm, suite) for arm in ("base", *ARMS) for suite in SUITES}
    lines = [
        (f"{label(suite)}: HSA − naive", contrast(got["hsa", suite], got["naive", suite]))
        for suite in ("t2", "t1", "t2x", "t2n", "t2e", "t4m", "t4")
    ]
    lines += [(f"{arm}: T2 − T1", contrast(got[arm, "t2"], got[arm, "t1"])) for arm in ARMS]
    lines.append(("HSA: T2e − T2", contrast(got["hsa", "t2e"], got["hsa", "t2"])))
    lines += [(f"T4m: {arm} − base", contrast(got[arm, "t4m"], got["base", "t4m"])) for arm in ARMS]
    return table(["contrast", "points [95 %]"], lines)


def factors(evaluations: Found) -> str:
    """HSA with one thing held out at a time, and with all at once."""
    lines = [(name, interval(scores(evaluations, "hsa", name))) for name in ("t2", *FACTORS, "t2x")]
    return table(["held out", "HSA"], lines)


def families(evaluations: Found) -> str:
    """T2 by rewrite family: the items whose state has the family."""
    sums: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (_, arm), evaluation in evaluations.items():
        suite = evaluation.suite("t2")
        for item in suite.items if suite and arm in ARMS else ():
            for family in item.families:
                sums[family][arm].append(item.values["average"])
    most = max((len(rows["hsa"]) for rows in sums.values()), default=0)
    always = [family for family, rows in sorted(sums.items()) if len(rows["hsa"]) == most]
    shown = {family: sums[family] for family in sorted(sums) if family not in always}
    if always:
        shown[f"in every state: {', '.join(always)}"] = sums[always[0]]
    lines = [[family, str(len(rows["hsa"])), *(mean(rows[arm]) for arm in ARMS)] for family, rows in shown.items()]
    return table(["family in the state", "items", *ARMS], lines)


def costs(rows: Mapping[str, Mapping[str, Any]], evaluations: Found) -> str:
    """Time and peak memory by step, tokens and turns per second."""
    steps: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows.values():
        steps[str(row["component"])].append(row)
    lines = []
    for name, all_of in sorted(steps.items()):
        seconds = sorted(float(row["cpu_seconds"]) for row in all_of)
        peak = max(float(row["peak_gib"]) for row in all_of)
        lines.append([name, str(len(all_of)), f"{seconds[len(seconds) // 2]:.0f}", f"{peak:.2f}", _speed(name, all_of)])
    for arm in ARMS:
        for suite in ("t1", "t2"):
            speeds = list(_turns(evaluations, arm, suite))
            if speeds:
                told = f"{min(speeds):.0f} to {max(speeds):.0f} turns/s of wall time"
                lines.append([f"rollouts, {arm}, {suite.upper()}", str(len(speeds)), "–", "–", told])
    return table(["step", "runs", "CPU seconds (median)", "peak GiB", "speed"], lines)


def _speed(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    if name != "sft":
        return "–"
    speeds = sorted(row["metrics"]["sft.tokens"] / row["metrics"]["train_seconds"] for row in rows)
    return f"{speeds[0]:,.0f} to {speeds[-1]:,.0f} tokens/s"


def _turns(evaluations: Found, arm: str, suite: str) -> Iterator[float]:
    for (_, name), evaluation in evaluations.items():
        result = evaluation.suite(suite) if name == arm else None
        if result is not None and result.seconds:
            yield sum(len(item.turns) for item in result.items) / result.seconds


def public(folder: Path, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """BFCL: original against rewritten training data."""
    got = {arm: load_evaluation(folder / f"bfcl-test-{arm}") for arm in ARMS if f"bfcl/test-{arm}" in rows}
    if len(got) < len(ARMS):
        return ""
    lines = []
    for suite in ("t5", "t5-t2"):
        values = {arm: scores({(1, arm): evaluation}, arm, suite) for arm, evaluation in got.items()}
        entries = str(len(values["hsa"]))
        shown = [interval(values[arm]) for arm in ARMS]
        lines.append([suite, entries, *shown, contrast(values["hsa"], values["naive"])])
    return table(["suite", "entries", "trained on the original", "trained on rewritten", "difference"], lines)


def machine() -> str:
    """What the numbers depend on."""
    names = ("torch", "transformers", "trl", "numpy")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)
    return f"{platform.machine()}, {os.cpu_count()} cores, one thread a step, Python {platform.python_version()}, {versions}"
