"""The bench of the main job keeps finished rows, runs what is missing or changed, and compares item by item."""

from __future__ import annotations

import json
from pathlib import Path

from bench.hat import plan, tables
from bench.hat.__main__ import SECTION, put
from bench.hat.jobs import Job, Runner

HARNESS = Path(__file__).resolve().parents[2] / "harness-registry" / "harnesses" / "live-commerce"


def jobs(seed: int = 1) -> list[Job]:
    counts = {"seed": seed, "train": 3, "dev": 2, "test": 2}
    needs = {"harness": HARNESS, "items": ("a/simulate", "items_train")}
    return [Job("a/simulate", "simulate", counts), Job("a/augment", "augment", {"seed": 1}, needs)]


def lines(folder: Path) -> list[str]:
    return [json.loads(line)["job"] for line in (folder / "rows.jsonl").read_text().splitlines()]


def test_finished_steps_are_not_run_again_and_changed_ones_are(tmp_path: Path) -> None:
    first = Runner(tmp_path, 2)
    assert first.run(jobs()) == []
    assert first.path("a/augment", "trajectories").is_dir()
    assert all(row["peak_gib"] > 0 and row["digests"] for row in first.rows.values())
    again = Runner(tmp_path, 1)
    assert again.run(jobs()) == []
    assert lines(tmp_path) == ["a/simulate", "a/augment"]
    rest = [Job("b/simulate", "simulate", {"seed": 2, "train": 3, "dev": 2, "test": 2}), *jobs()]
    assert Runner(tmp_path, 1).run(rest) == []
    assert lines(tmp_path) == ["a/simulate", "a/augment", "b/simulate"]
    assert Runner(tmp_path, 2).run(jobs(seed=5)) == []
    assert lines(tmp_path)[3:] == ["a/simulate", "a/augment"]


def test_a_failure_is_told_and_what_needs_it_is_not_run(tmp_path: Path) -> None:
    broken, after = jobs()
    problems = Runner(tmp_path, 1).run([Job(broken.name, "simulate", {"train": 0}), after])
    assert [problem.split(":")[0] for problem in problems] == ["a/simulate", "a/augment"]
    assert not (tmp_path / "rows.jsonl").exists()


def test_both_arms_get_the_same_and_choose_by_the_same_score() -> None:
    size = plan.Size()
    made = [job for job in plan.search(size, HARNESS, HARNESS) if job.component == "sft"]
    settings = {arm: [job.config["fit"] for job in made if job.config["arm"] == arm] for arm in plan.ARMS}
    assert settings["naive"] == settings["hsa"]
    rows = {
        f"search/{arm}-{rate:g}/dev": {"metrics": {"t1.average": score, "t2.average": score}}
        for arm, best in (("naive", 6e-3), ("hsa", 1.5e-3))
        for rate in size.rates
        for score in [0.9 if rate == best else 0.5]
    }
    assert plan.chosen(size, rows) == {"naive": 6e-3, "hsa": 1.5e-3}
    asked = list(plan.seeds([1, 2], size, dict.fromkeys(plan.ARMS, 3e-3), HARNESS, HARNESS))
    fits = [{**job.config, "arm": ""} for job in asked if job.component == "sft" and job.config["seed"] == 2]
    assert fits[0] == fits[1]


def test_contrasts_are_paired_by_seed_and_item() -> None:
    left = {(seed, f"i{n}"): 1.0 for seed in (1, 2) for n in range(20)}
    right = {(seed, f"i{n}"): float(n % 2) for seed in (2, 3) for n in range(20)}
    assert tables.contrast(left, right).startswith("+50.0 [+")
    assert tables.contrast(left, {(3, "i1"): 1.0}) == "–"


def test_a_table_replaces_the_last_one_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "results.md"
    file.write_text(f"# R\n\n{SECTION}Said.\n\n<!-- measured -->\nold\n\n## Next\nkept\n")
    for text in ("first\n", "second\n"):
        put(file, text)
    assert file.read_text() == f"# R\n\n{SECTION}Said.\n\n<!-- measured -->\nsecond\n\n## Next\nkept\n"
