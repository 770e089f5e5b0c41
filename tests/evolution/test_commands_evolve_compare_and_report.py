"""`hat evolve`, `compare`, `judge`, `report paper` and `evaluate --endpoint` on the command line."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hat_components.evaluate.config import Config as EvaluateConfig
from hat_components.evaluate.step import run as evaluate
from hat_components.evolve.result import load_evolution
from hat_components.step import NullProgress
from tests.cli.conftest import Done, hat
from tests.evolution.conftest import HARNESSES

__all__ = ["hat"]
Hat = Callable[..., Done]


def test_evolve_draws_disjoint_items_and_tells_the_path(hat: Hat, tmp_path: Path) -> None:
    out = tmp_path / "evolution"
    words = ["evolve", "--scripted", "heeding", "--candidate", "evolution-2", "--dev", 12, "--test", 8, "--to", out]
    planned = hat(*words, "--dry-run", "--output", "json")
    assert planned.code == 0
    assert planned.json()["candidates"] == ["evolution-2"]
    assert not out.exists()
    done = hat(*words)
    assert done.code == 0, done.err
    found = load_evolution(out)
    assert found.selected in done.out
    assert f"held out, policy: {found.held_out['policy'].errors_before} wrong turns before" in done.out
    assert hat(*words).code == 4
    page = hat("report", "paper", "--item", "t14", "--runs-dir", tmp_path, "--output", "json")
    assert page.code == 0
    assert page.json()["state"] == "made"
    assert Path(page.json()["page"]).is_file()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["evolve"], 2, "name one policy"),
        (["evolve", "--scripted", "heeding", "--model", "x"], 2, "name one policy"),
        (["evolve", "--scripted", "nobody"], 3, "heeding, ignoring"),
        (["evolve", "--policies", "a"], 2, "NAME=POLICY"),
        (["evolve", "react-baseline", "--scripted", "heeding"], 2, "name an edit to try"),
        (["evolve", "--scripted", "heeding", *(["--candidate", "evolution-1"] * 2)], 2, "have one name"),
        (["evolve", "--scripted", "heeding", "--candidate", "evolution-22"], 3, "did you mean"),
        (["evolve", "--scripted", "heeding", "--proposals", "1"], 2, "need a proposer"),
        (["evaluate"], 2, "a model folder or an endpoint"),
        (["evaluate", "--endpoint", "http://127.0.0.1:1/v1"], 2, "needs a model name"),
        (["evaluate", "--endpoint", "ftp://x", "--endpoint-model", "m"], 2, "is no URL"),
        (["evaluate", "--endpoint", "http://127.0.0.1:1/v1", "--endpoint-model", "m", "--suite", "t99"], 3, "no suite"),
        (["compare", "nothing", "nowhere"], 3, "no such evaluation"),
        (["report", "--item", "t14"], 2, "hat report paper"),
        (["report", "paper", "--item", "t99"], 3, "no report item"),
        (["judge", "show", "nobody"], 3, "no judge"),
        (["judge", "calibrate", "nothing"], 3, "no such evaluation"),
    ],
)
def test_what_is_not_whole_is_said_with_its_cure(
    hat: Hat, tmp_path: Path, words: list[str], code: int, told: str
) -> None:
    done = hat(*words, *([] if words[:2] == ["judge", "show"] else ["--runs-dir", tmp_path]))
    assert (done.code, done.out) == (code, "")
    assert told in done.err


@pytest.fixture(scope="module")
def compared(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runs directory with the expert under two harnesses."""
    root = tmp_path_factory.mktemp("runs")
    for name in ("live-commerce", "evolution-3"):
        evaluate(
            EvaluateConfig(arm="expert", policy="expert", suites=("t1",), draws=100),
            {"items": data / "items_dev", "harness": HARNESSES / name},
            root / name / "steps" / "evaluate" / "artifacts",
            NullProgress(),
        )
    return root


def test_compare_gives_intervals_and_words(hat: Hat, compared: Path) -> None:
    words = ["compare", "evolution-3", "live-commerce", "--runs-dir", compared, "--draws", 500]
    assert hat(*words).code == 3
    done = hat(*words, "--across", "harness", "--families")
    assert done.code == 0, done.err
    assert "T1" in done.out
    assert "95 % interval" in done.out
    told = hat(*words, "--across", "harness", "--output", "json").json()
    (row,) = told["contrasts"]
    assert row["low"] <= row["delta"] <= row["high"]
    assert row["text"] in done.out


def test_judge_calibrate_and_show(hat: Hat, compared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "judge"
    folder.mkdir()
    (folder / "judge.yaml").write_text("format: hatstack.judge/1\nname: toy\nmembers: [{type: oracle, name: sim}]\n")
    rubric = "---\nname: toy\n---\n# accuracy\nTrue?\n\n- **right** (1): all of it.\n- **wrong** (0): not all.\n"
    (folder / "rubric.md").write_text(rubric)
    words = ["judge", "calibrate", "evolution-3", "--runs-dir", compared, "--judge", folder, "--to", tmp_path / "made"]
    assert hat(*words, "--dry-run").code == 0
    assert not (tmp_path / "made").exists()
    done = hat(*words)
    assert done.code == 0, done.err
    assert "accuracy" in done.out
    assert hat(*words).code == 4
    shown = hat("judge", "show", folder, "--history", tmp_path / "made" / "history.jsonl", "--output", "json").json()
    assert [row["criterion"] for row in shown["history"]] == ["accuracy"]
    assert hat("judge", "show").out.startswith("live-commerce revision")


class _Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        reply = {"role": "assistant", "content": f"no idea , {body['model']}"}
        usage = {"prompt_tokens": 5, "completion_tokens": 4}
        data = json.dumps({"choices": [{"message": reply, "finish_reason": "stop"}], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        return


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()


def test_any_endpoint_is_scored_on_suites(hat: Hat, tmp_path: Path, endpoint: str) -> None:
    words = ["evaluate", "--endpoint", endpoint, "--endpoint-model", "tiny", "--suite", "t1", "--suite", "t4m",
             "--set", "steps.simulate={train: 1, dev: 2, test: 1}", "--set", "steps.evaluate.items=2",
             "--set", "steps.evaluate.instructions=5", "--name", "served", "--runs-dir", tmp_path, "--output=json"]  # fmt: skip
    done = hat(*words)
    assert done.code == 0, done.err
    assert {row["suite"] for row in done.json()["scores"]} == {"t1", "t4m"}
    found = json.loads((tmp_path / "served/steps/evaluate/artifacts/evaluation.json").read_text())
    assert found["policy"] == "tiny"
    assert found["suites"][0]["scores"]["average"]["mean"] < 0.5
