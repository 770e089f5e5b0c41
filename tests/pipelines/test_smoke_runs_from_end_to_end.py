"""`hat run --profile smoke`, at still smaller sizes: every real step, the scores, the report and the registered model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALLER = [
    "steps.simulate={train: 12, dev: 1, test: 1, turns: 1}",
    "steps.base.corpus_items=30",
    *(f"steps.base.{course}.tokens=3000" for course in ("copying", "lookup", "mixed")),
    "steps.sft.fit={tokens: 4000, trainer: plain}",
    "steps.opd.trainer=plain",
    "steps.rl.trainer=plain",
]


def hat(runs: Path, *argv: str) -> tuple[int, Any, str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW")}
    done = subprocess.run(
        [sys.executable, "-m", "hatstack.cli.main", *argv, "--runs-dir", str(runs), "--output", "json"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=280,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    runs = tmp_path_factory.mktemp("smoke") / "runs"
    sizes = [word for override in SMALLER for word in ("--set", override)]
    code, answer, err = hat(runs, "run", "--profile", "smoke", "--name", "s", *sizes)
    assert code == 0, err
    return runs, answer


def test_every_step_is_done_and_every_arm_has_its_scores(smoke: tuple[Path, dict[str, Any]]) -> None:
    runs, answer = smoke
    assert answer["state"] == "done"
    record = json.loads((runs / "s" / "run.json").read_text())
    assert {step["state"] for step in record["steps"].values()} == {"done"}
    assert [row["suite"] for row in answer["scores"]] == ["t1", "t2"]
    assert all(0 <= row[arm] <= 100 for row in answer["scores"] for arm in ("naive", "hsa"))


def test_the_report_is_one_page_of_this_run(smoke: tuple[Path, dict[str, Any]]) -> None:
    runs, answer = smoke
    page = Path(answer["report"]).read_text()
    assert Path(answer["report"]) == runs / "s" / "report.html"
    assert all(word in page for word in ("naive", "hsa", "Smoke run"))
    (runs / "s" / "report.html").unlink()
    code, again, _ = hat(runs, "report", "s")
    assert (code, Path(again["report"]).exists()) == (0, True)


def test_the_better_arm_is_registered_with_its_evidence(smoke: tuple[Path, dict[str, Any]]) -> None:
    code, models, _ = hat(smoke[0], "model", "list")
    assert (code, len(models), len(models[0]["versions"])) == (0, 1, 1)
    version = models[0]["versions"][0]
    result = json.loads((smoke[0] / "s" / "steps" / f"mtp-{version['arm']}" / "result.json").read_text())
    assert version["digest"] == result["digests"]["model"]
    code, shown, _ = hat(smoke[0], "model", "show", "live-commerce@candidate")
    assert (code, shown["version"]) == (0, version["version"])
    assert {"t1.average", "t2.average"} <= shown["metrics"].keys()


def test_the_readme_shows_the_steps_and_suites_of_this_run(smoke: tuple[Path, dict[str, Any]]) -> None:
    runs, answer = smoke
    shown = (ROOT / "README.md").read_text(encoding="utf-8").split("<!-- output: smoke -->", 1)[1].split("```")[1]
    steps = json.loads((runs / "s" / "run.json").read_text())["steps"]
    assert {line.split()[0] for line in shown.splitlines() if " done in " in line} - {"run"} == set(steps)
    table = [line.split() for line in shown.splitlines() if line.startswith(("suite", "t1", "t2"))]
    assert table[0][:3] == ["suite", "naive", "hsa"]
    assert [row[0] for row in table[1:]] == [row["suite"] for row in answer["scores"]]
    assert "hat model list" in shown
