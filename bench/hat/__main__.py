"""The main job measured: both arms on several seeds, held-out factors, instruction following, public tool calling.

Run: `make bench-hat`, or `python -m bench.hat --seeds 1 2 3 --out runs/bench-hat`. Rows of finished steps stay in
`rows.jsonl` and are not run again. Writes `table.md`, and with `--results FILE` puts it in that file's section "The micro
model". Exits 1 when a step failed or a goal is missed.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.hat import plan, tables
from bench.hat.jobs import Job, Runner
from hat_components.data import write_text

ROOT = Path(__file__).resolve().parents[2]
HARNESS = ROOT / "harness-registry" / "harnesses" / "live-commerce"
PROFILE = ROOT / "pipelines" / "profiles" / "micro.yaml"
SECTION = "## The micro model\n"
GOALS = {"HSA T2 over naive": 0.40, "HSA T1 below naive": 0.03, "T2x": 0.75, "T4m of the base's": 0.8, "GiB": 3.0}


def options(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "bench-hat")
    parser.add_argument("--base", type=Path, help="a base model folder; by default the one that ships")
    parser.add_argument("--jobs", type=int, default=2, help="steps side by side")
    parser.add_argument("--prefix", default="", help="command before every step, such as `nice -n 10`")
    parser.add_argument("--rates", type=float, nargs="+", help="learning rates of the search; one: no search")
    parser.add_argument("--items", type=int, help="test items of each suite")
    parser.add_argument("--tokens", type=int, help="tokens of each training")
    parser.add_argument("--no-bfcl", action="store_true", help="leave public tool calling out")
    parser.add_argument("--results", type=Path, help="file whose section is replaced by the table")
    return parser.parse_args(argv)


def base_job() -> Job:
    """The shipped base, as the profile names it."""
    import yaml

    steps = yaml.safe_load(PROFILE.read_text(encoding="utf-8"))["steps"]
    return Job("base", "base", {key: steps["base"][key] for key in ("shipped", "shipped_digest")})


def bfcl_file(folder: Path) -> Path:
    """The held-in half of BFCL as one file of conversations."""
    from hat_components.bfcl import conversations, fits, line

    target = folder / "bfcl_held_in.jsonl"
    kept = (made for made in conversations() if made["metadata"]["half"] == "held_in" and fits(made))
    write_text(target, "".join(line(made).decode() for made in kept))
    return target


def section(runner: Runner) -> str:
    """The measured part as Markdown."""
    got = tables.found(runner.folder, runner.rows)
    parts = [
        tables.by_suite(got),
        tables.contrasts(got),
        tables.factors(got),
        tables.families(got),
        tables.costs(runner.rows, got),
        tables.public(runner.folder, runner.rows),
    ]
    return "\n\n".join(["Machine: " + tables.machine() + ".", *(part for part in parts if part)]) + "\n"


def put(file: Path, text: str) -> None:
    """Replace what stands under the section's marker, up to the next section."""
    before, _, rest = file.read_text(encoding="utf-8").partition(SECTION)
    said, mark, _ = rest.partition("<!-- measured -->\n")
    after = rest[rest.find("\n## ") :] if "\n## " in rest else ""
    write_text(file, f"{before}{SECTION}{said if mark else ''}<!-- measured -->\n{text}{after}")


def missed(rows: Mapping[str, Mapping[str, Any]], got: tables.Found) -> list[str]:
    """Goals that the means do not reach."""

    def mean(arm: str, suite: str) -> float:
        values = tables.scores(got, arm, suite).values()
        return sum(values) / len(values) if values else 0.0

    told = []
    if mean("hsa", "t2") - mean("naive", "t2") < GOALS["HSA T2 over naive"]:
        told.append("HSA T2 is less than 40 points above naive T2")
    if mean("naive", "t1") - mean("hsa", "t1") > GOALS["HSA T1 below naive"]:
        told.append("HSA T1 is more than 3 points below naive T1")
    if mean("hsa", "t2x") < GOALS["T2x"]:
        told.append("HSA T2x is below 75")
    if mean("hsa", "t4m") < GOALS["T4m of the base's"] * mean("base", "t4m"):
        told.append("HSA keeps less than 0.8 of the base's T4m")
    if max((float(row["peak_gib"]) for row in rows.values()), default=0.0) > GOALS["GiB"]:
        told.append("a step needs more than 3 GiB")
    return told


def main(argv: list[str]) -> int:
    """Run what is missing, then tell."""
    given = options(argv)
    size = plan.Size()
    for name in ("items", "tokens"):
        if getattr(given, name):
            size = replace(size, **{name: getattr(given, name)})
    if given.rates:
        size = replace(size, rates=tuple(given.rates))
    runner = Runner(given.out, given.jobs, shlex.split(given.prefix))
    problems: list[str] = []
    base = given.base
    if base is None:
        problems += runner.run([base_job()])
        base = runner.path("base", "model")
    problems += runner.run([job for seed in sorted({1, *given.seeds}) for job in plan.shared(seed, size, HARNESS)])
    rates = dict.fromkeys(plan.ARMS, size.rates[0])
    if len(size.rates) > 1:
        problems += runner.run(list(plan.search(size, HARNESS, base)))
        rates = plan.chosen(size, runner.rows)
    print(f"learning rates: {rates}", file=sys.stderr)
    problems += runner.run(list(plan.seeds(given.seeds, size, rates, HARNESS, base)))
    if not given.no_bfcl:
        problems += runner.run(list(plan.public(size, rates, base, bfcl_file(runner.folder))))
    told = section(runner)
    write_text(runner.folder / "table.md", told)
    if given.results:
        put(given.results, told)
    problems += [f"goal missed: {goal}" for goal in missed(runner.rows, tables.found(runner.folder, runner.rows))]
    print(told)
    print("\n".join(problems), file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
