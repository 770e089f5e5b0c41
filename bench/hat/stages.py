"""What the stages after SFT bring at micro size: general distillation, RL, the draft head; on sealed seeds.

Run: `python -m bench.hat.stages --seeds 1 2 3`. For each seed: SFT on the original harness without replay, distillation from
it, RL from that; HSA-SFT as in the profile, a draft head fitted to it. Rows of finished steps stay in `rows.jsonl` and are not
run again. Prints scores, paired contrasts (by seed and item, seeds as strata) and accept lengths as Markdown. Exits 1 when a
step failed or a goal is missed. `--quick` does all of it with next to nothing: it says that the bench runs, no more.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.hat import plan, tables
from bench.hat.__main__ import HARNESS, ROOT, base_job
from bench.hat.jobs import Job, Runner

STAGES = ("opd", "rl", "mtp")
REPLAYED_NOT = {"tokens": 800_000, "learning_rate": 3e-3, "trainer": "plain", "checkpoint_every": 0}
"""SFT whose tokens are all of the room: what it forgets is what distillation is to bring back."""
OPD = {
    "threads": 1,
    "steps": 60,
    "batch": 64,
    "rows_at_once": 64,
    "prompts": {"instruction": 0.8, "copy": 0.2},
    "learning_rate": 3e-4,
    "trainer": "plain",
    "checkpoint_every": 20,
}
OFTEN_WRONG = {
    "product_qa": 46,
    "discount": 14,
    "faq": 8,
    "aftersale": 8,
    "chat": 6,
    "clarification": 6,
    "order": 5,
    "on_sale": 2,
    "batch": 2,
    "greet": 1,
    "thanks": 1,
    "refusal": 1,
}
"""Intents of RL's items, weighed by how often a policy goes wrong in them."""
RL = {
    "threads": 1,
    "states": "original",
    "steps": 60,
    "groups": 16,
    "group": 8,
    "rows_at_once": 8,
    "call_tokens": 96,
    "settings": {"mix": OFTEN_WRONG},
    "learning_rate": 2e-4,
    "trainer": "plain",
    "checkpoint_every": 20,
}
MTP = {"threads": 1, "held_out": 40, "call_tokens": 96}
"""The step's own settings are those that were found at this size."""
LENGTH = 2.5
"""Goal of the accept length, of 4."""


QUICK = {
    "opd": {"steps": 2, "batch": 4, "rows_at_once": 4},
    "rl": {"steps": 2, "groups": 2, "group": 2, "rows_at_once": 2, "call_tokens": 24},
    "mtp": {"sessions": 6, "held_out": 2, "copying": 2, "steps": 2, "batch": 2, "call_tokens": 24},
}
"""What `--quick` lays over the settings of a stage."""


@dataclass(frozen=True)
class Settings:
    """What the stages are run with."""

    size: plan.Size = field(default_factory=plan.Size)
    unreplayed: Mapping[str, Any] = field(default_factory=lambda: REPLAYED_NOT)
    opd: Mapping[str, Any] = field(default_factory=lambda: OPD)
    rl: Mapping[str, Any] = field(default_factory=lambda: RL)
    mtp: Mapping[str, Any] = field(default_factory=lambda: MTP)

    @classmethod
    def quick(cls) -> Settings:
        """As little of everything as there can be."""
        return cls(
            plan.Size(tokens=3000, train=12, items=2, instructions=4),
            {**REPLAYED_NOT, "tokens": 3000},
            {**OPD, **QUICK["opd"]},
            {**RL, **QUICK["rl"]},
            {**MTP, **QUICK["mtp"]},
        )


def jobs(seeds: Sequence[int], stages: Sequence[str], base: Path, settings: Settings | None = None) -> Iterator[Job]:
    """Everything that the chosen stages need, in order."""
    settings = settings or Settings()
    size = settings.size
    for seed in seeds:
        yield from plan.shared(seed, size, HARNESS)
        taught = (f"s{seed}/augment", "trajectories")
        if "opd" in stages or "rl" in stages:
            sft = {"seed": seed, "threads": 1, "arm": "naive", "replay_share": 0, "fit": settings.unreplayed}
            yield Job(f"s{seed}/plain", "sft", sft, {"base": base, "trajectories": taught})
            needs = {"start": (f"s{seed}/plain", "model"), "teacher": base}
            yield Job(f"s{seed}/opd", "opd", {"seed": seed, **settings.opd}, needs)
            for arm in ("plain", "opd"):
                yield plan.sealed(seed, arm, (f"s{seed}/{arm}", "model"), ("t4m", "t1"), size, HARNESS)
        if "rl" in stages:
            needs = {"start": (f"s{seed}/opd", "model"), "harness": HARNESS}
            yield Job(f"s{seed}/rl", "rl", {"seed": seed, **settings.rl}, needs)
            yield plan.sealed(seed, "rl", (f"s{seed}/rl", "model"), ("t4m", "t1"), size, HARNESS)
        if "mtp" in stages:
            yield plan.training(f"s{seed}/sft-hsa", seed, "hsa", size.tokens, 3e-3, base)
            start = (f"s{seed}/sft-hsa", "model")
            yield Job(f"s{seed}/mtp", "mtp", {"seed": seed, **settings.mtp}, {"start": start, "harness": HARNESS})


def accept_lengths(runner: Runner, seeds: Sequence[int]) -> dict[int, tuple[float, float]]:
    """Seed → accept length of the fresh head, and after it was fitted."""
    found = {}
    for seed in seeds:
        if f"s{seed}/mtp" in runner.rows:
            text = (runner.path(f"s{seed}/mtp", "model") / "training.json").read_text(encoding="utf-8")
            told = json.loads(text)["stages"]["mtp"]
            found[seed] = (told["accept_length_before"], told["accept_length_after"])
    return found


def told(got: tables.Found, lengths: Mapping[int, tuple[float, float]]) -> str:
    """Scores, contrasts and accept lengths."""
    pairs = (("t4m", "opd", "plain"), ("t1", "opd", "plain"), ("t1", "rl", "opd"), ("t4m", "rl", "opd"))
    lines = []
    for suite, after, before in pairs:
        left, right = tables.scores(got, after, suite), tables.scores(got, before, suite)
        if left and right:
            name = f"{tables.label(suite)}: {after} − {before}"
            lines.append([name, tables.interval(right), tables.interval(left), tables.contrast(left, right)])
    parts = [tables.table(["contrast", "before", "after", "points [95 %]"], lines)] if lines else []
    if lengths:
        rows = [[str(seed), f"{before:.2f}", f"{after:.2f}"] for seed, (before, after) in sorted(lengths.items())]
        parts.append(tables.table(["seed", "accept length of a fresh head", "fitted"], rows))
    return "\n\n".join(parts)


def main(argv: Sequence[str]) -> int:
    """Run what is missing, then tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "bench-stages")
    parser.add_argument("--jobs", type=int, default=2, help="steps side by side")
    parser.add_argument("--prefix", default="", help="command before every step, such as `nice -n 10`")
    parser.add_argument("--quick", action="store_true", help="next to nothing of everything, into a folder of its own")
    given = parser.parse_args(argv)
    if given.quick:
        given.out = given.out.with_name(f"{given.out.name}-quick")
    settings = Settings.quick() if given.quick else Settings()
    runner = Runner(given.out, given.jobs, shlex.split(given.prefix))
    problems = runner.run([base_job()])
    if not problems:
        problems = runner.run(list(jobs(given.seeds, given.stages, runner.path("base", "model"), settings)))
    lengths = accept_lengths(runner, given.seeds)
    print(told(tables.found(runner.folder, runner.rows), lengths))
    if not given.quick:
        problems += [f"goal missed: accept length {after:.2f}" for _, after in lengths.values() if after < LENGTH]
    print("\n".join(problems), file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
