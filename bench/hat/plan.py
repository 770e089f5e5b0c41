"""Which steps the bench of the main job runs: a search on dev seeds, then every seed with its sealed evaluation.

Always holds: both arms get the same tokens, the same batches and the same learning rates to choose from, and choose by the
same score on dev seeds; sealed seeds are read once, by the evaluation that the table shows. Not here: running (jobs).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.hat.jobs import Job, Needs

ARMS = ("naive", "hsa")
FACTORS = ("names", "skill", "tool", "parameter", "activation", "gate", "opener", "layout", "envelope")
"""Suites in which one thing alone is held out."""
SEALED = {
    "naive": ("t1", "t2", "t2x", "t2n", "t2e", "t4m", "t4"),
    "hsa": ("t1", "t2", "t2x", "t2n", "t2e", *FACTORS, "t4m", "t4"),
}
BASE = ("t1", "t2", "t2x", "t4m", "t4")
"""Suites of the base: the others would say nothing of a model that was not trained for the task."""


@dataclass(frozen=True)
class Size:
    """How much is run."""

    tokens: int = 2_500_000
    """Of each arm's training."""
    search_tokens: int = 600_000
    """Of each training in the search."""
    rates: tuple[float, ...] = (1.5e-3, 3e-3, 6e-3)
    """Learning rates that both arms choose from."""
    train: int = 3000
    """Items that training conversations are made of."""
    items: int = 60
    """Test items, of three turns each."""
    instructions: int = 1000
    """Prompts of t4m."""
    bfcl_tokens: int = 800_000
    """Of each arm's training on the held-in half of BFCL."""


def shared(seed: int, size: Size, harness: Path) -> list[Job]:
    """Items and conversations of one seed."""
    counts = {"train": size.train, "dev": 40, "test": size.items}
    return [
        Job(f"s{seed}/simulate", "simulate", {"seed": seed, **counts}),
        Job(
            f"s{seed}/augment",
            "augment",
            {"seed": seed},
            {"harness": harness, "items": (f"s{seed}/simulate", "items_train")},
        ),
    ]


def fit(tokens: int, rate: float) -> dict[str, Any]:
    """The training's settings, but for the arm."""
    return {"tokens": tokens, "learning_rate": rate, "trainer": "trl", "checkpoint_every": 200}


def training(name: str, seed: int, arm: str, tokens: int, rate: float, base: Path) -> Job:
    """One arm's training."""
    config = {"seed": seed, "threads": 1, "arm": arm, "fit": fit(tokens, rate)}
    return Job(name, "sft", config, {"base": base, "trajectories": (f"s{seed}/augment", "trajectories")})


def search(size: Size, harness: Path, base: Path) -> Iterator[Job]:
    """Every learning rate for both arms on seed 1, scored on dev items."""
    for rate in size.rates:
        for arm in ARMS:
            name = f"search/{arm}-{rate:g}"
            yield training(f"{name}/sft", 1, arm, size.search_tokens, rate, base)
            config = {"arm": arm, "suites": ["t1", "t2"], "items": 20, "traces": False}
            needs: Needs = {
                "model": (f"{name}/sft", "model"),
                "items": ("s1/simulate", "items_dev"),
                "harness": harness,
            }
            yield Job(f"{name}/dev", "evaluate", config, needs)


def chosen(size: Size, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Arm → the learning rate whose dev T1 and T2 are best together."""
    return {arm: max(size.rates, key=lambda rate: dev_score(rows[f"search/{arm}-{rate:g}/dev"])) for arm in ARMS}


def dev_score(row: Mapping[str, Any]) -> float:
    """What is chosen by."""
    return float(row["metrics"]["t1.average"]) + float(row["metrics"]["t2.average"])


def seeds(numbers: Sequence[int], size: Size, rates: Mapping[str, float], harness: Path, base: Path) -> Iterator[Job]:
    """Both arms of every seed, and what the sealed suites say of them and, on the first seed, of the base."""
    for seed in numbers:
        for arm in reversed(ARMS):
            yield training(f"s{seed}/sft-{arm}", seed, arm, size.tokens, rates[arm], base)
        for arm in reversed(ARMS):
            yield sealed(seed, arm, (f"s{seed}/sft-{arm}", "model"), SEALED[arm], size, harness)
        if seed == numbers[0]:
            yield sealed(seed, "base", base, BASE, size, harness)


def sealed(seed: int, arm: str, model: tuple[str, str] | Path, suites: Sequence[str], size: Size, harness: Path) -> Job:
    """The evaluation that the table shows."""
    config = {"seed": seed, "arm": arm, "suites": list(suites), "instructions": size.instructions, "traces": False}
    needs: Needs = {"model": model, "items": (f"s{seed}/simulate", "items_test"), "harness": harness}
    return Job(f"s{seed}/test-{arm}", "evaluate", config, needs)


def public(size: Size, rates: Mapping[str, float], base: Path, data: Path) -> Iterator[Job]:
    """Public tool calling: the held-in half of BFCL as it is and rewritten, exact calls on the held-out half."""
    config = {"name": "bfcl", "purpose": "training", "held_out": 0}
    yield Job("bfcl/import", "importer", config, {"conversations": data})
    yield Job("bfcl/augment", "augment", {"seed": 1}, {"conversations": ("bfcl/import", "held_in")})
    for arm in ARMS:
        sft = {"seed": 1, "threads": 1, "arm": arm, "fit": fit(size.bfcl_tokens, rates[arm])}
        needs: Needs = {"base": base, "trajectories": ("bfcl/augment", "trajectories")}
        yield Job(f"bfcl/sft-{arm}", "sft", sft, needs)
        asked = {"arm": arm, "suites": ["t5", "t5-t2"], "traces": False}
        needs = {"model": (f"bfcl/sft-{arm}", "model"), "trained_on": ("bfcl/augment", "trajectories")}
        yield Job(f"bfcl/test-{arm}", "evaluate", asked, needs)
