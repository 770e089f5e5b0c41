"""The judge step on a real evaluation: calibrated in simulation, then scoring, corrected, refused where it must be."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hat_components import evaluate, simulate  # noqa: F401  the packages whose steps run below
from hat_components.evaluate.config import Config as EvaluateConfig
from hat_components.evaluate.step import run as run_evaluate
from hat_components.judge.calibration import JudgeCalibration
from hat_components.judge.config import Config
from hat_components.judge.result import Judged
from hat_components.judge.step import run
from hat_components.runner import execute
from hat_components.simulate.config import Config as SimulateConfig
from hat_components.simulate.step import run as run_simulate
from hat_components.step import InputError, NullProgress
from tests.judge.conftest import Endpoint, said, verdict

Serve = Callable[[Callable[[dict[str, Any], int], Any]], Endpoint]


class Heard(NullProgress):
    """Keeps warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, message: str) -> None:
        self.warnings.append(message)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> dict[str, Path]:
    """Evaluations of the scripted expert on calibration and test items."""
    root = tmp_path_factory.mktemp("world")
    settings = SimulateConfig(train=1, dev=1, test=20, calibration=40)
    run_simulate(settings, {}, root / "items", NullProgress())
    found = {}
    for name in ("calibration", "test"):
        inputs = {
            "items": root / "items" / f"items_{name}",
            "harness": repository / "harness-registry" / "harnesses" / "live-commerce",
        }
        config = EvaluateConfig(policy="expert", suites=("t1", "t2"), draws=100)
        run_evaluate(config, inputs, root / name, NullProgress())
        _spoil(root / name / "evaluation.json")
        found[name] = root / name
    return found


def _spoil(path: Path) -> None:
    """The expert is always right; every fourth item's truth is turned so that there is something to find."""
    data = json.loads(path.read_text())
    for suite in data["suites"]:
        for index, item in enumerate(suite["items"]):
            for turn in item["turns"] if index % 4 == 0 else ():
                turn["values"]["accuracy"] = 0.0
    path.write_text(json.dumps(data))


@pytest.fixture
def oracle(tmp_path: Path, repository: Path) -> Path:
    """A judge folder whose one member errs by a known matrix."""
    folder = tmp_path / "judge"
    folder.mkdir()
    source = repository / "components" / "hat_components" / "judge" / "judges" / "live-commerce" / "rubric.md"
    shutil.copy(source, folder / "rubric.md")
    _write_oracle(folder, 0.9, 1)
    return folder


def _write_oracle(folder: Path, quality: float, revision: int) -> None:
    rows = {"right": {"right": quality, "wrong": 1 - quality}, "wrong": {"wrong": quality, "right": 1 - quality}}
    member = {"type": "oracle", "name": "sim", "confusion": {"accuracy": rows}}
    fields = {"name": "sim", "revision": revision, "members": [member]}
    (folder / "judge.yaml").write_text(json.dumps(fields))


def test_calibrate_then_score(world: dict[str, Path], oracle: Path, tmp_path: Path) -> None:
    inputs = {"judge": oracle, "evaluation": world["calibration"]}
    result = run(Config(mode="calibrate"), inputs, tmp_path / "c", NullProgress())
    made = JudgeCalibration.model_validate_json((tmp_path / "c" / "calibration.json").read_bytes())
    assert made.n == 120
    assert made.criteria["accuracy"].truth == pytest.approx(0.75)
    assert result.metrics["accuracy.agreement"] == pytest.approx(0.9, abs=0.08)
    scored = run(
        Config(draws=200),
        {"judge": oracle, "evaluation": world["test"], "calibration": tmp_path / "c"},
        tmp_path / "s",
        NullProgress(),
    )
    judged = Judged.model_validate_json((tmp_path / "s" / "judged.json").read_bytes())
    accuracy = judged.criteria["accuracy"]
    assert accuracy.corrected is not None
    assert accuracy.corrected.low <= 0.75 <= accuracy.corrected.high
    assert accuracy.raw.low <= accuracy.raw.value <= accuracy.raw.high  # type: ignore[operator]
    assert (judged.subjects, accuracy.n, accuracy.missing) == (60, 60, {})
    assert set(accuracy.intents) >= {"product_qa"}
    assert scored.artifacts == {"judged": "judged.json", "judgements": "judgements.jsonl"}
    lines = (tmp_path / "s" / "judgements.jsonl").read_text().splitlines()
    assert len(lines) == 60


def test_the_same_inputs_give_the_same_bytes(world: dict[str, Path], oracle: Path, tmp_path: Path) -> None:
    digests = [
        run(Config(mode="calibrate", suite="t2"), {"judge": oracle, "evaluation": world["calibration"]}, tmp_path / name,
            NullProgress()).digests
        for name in ("a", "b")
    ]  # fmt: skip
    assert digests[0] == digests[1]


def test_a_revision_that_is_worse_is_told(world: dict[str, Path], oracle: Path, tmp_path: Path) -> None:
    heard, inputs = Heard(), {"judge": oracle, "evaluation": world["calibration"]}
    run(Config(mode="calibrate"), inputs, tmp_path / "one", heard)
    assert heard.warnings == []
    _write_oracle(oracle, 0.55, 2)
    inputs["history"] = tmp_path / "one" / "history.jsonl"
    result = run(Config(mode="calibrate"), inputs, tmp_path / "two", heard)
    assert result.metrics["accuracy.drift"] == 1.0
    assert result.metrics["effectiveness.drift"] == 0.0
    assert len(heard.warnings) == 1
    assert "the judge has moved since revision 1" in heard.warnings[0]
    assert len((tmp_path / "two" / "history.jsonl").read_text().splitlines()) == 2


def test_what_must_be_refused_is_refused_before_anything_is_asked(
    world: dict[str, Path], oracle: Path, tmp_path: Path
) -> None:
    run(Config(mode="calibrate"), {"judge": oracle, "evaluation": world["calibration"]}, tmp_path / "c", NullProgress())
    _write_oracle(oracle, 0.7, 2)
    base = {"judge": oracle, "evaluation": world["test"]}
    cases: list[tuple[Config, dict[str, Path], str]] = [
        (Config(), {**base, "calibration": tmp_path / "c"}, "another judge"),
        (Config(), {**base, "calibration": tmp_path}, "no calibration"),
        (Config(mode="calibrate"), base, "test set's own truth"),
        (Config(suite="t4"), base, "no sessions of suite"),
        (Config(judge="nobody"), {"evaluation": world["test"]}, "no judge"),
        (Config(), {"judge": oracle}, "was not given"),
    ]
    for number, (config, inputs, fault) in enumerate(cases):
        out = tmp_path / str(number)
        with pytest.raises(InputError, match=fault):
            run(config, inputs, out, NullProgress())
        assert not out.exists()


def test_turns_that_were_calibrated_on_are_not_scored_by_it(
    oracle: Path, world: dict[str, Path], tmp_path: Path
) -> None:
    base = {"judge": oracle, "evaluation": world["calibration"]}
    run(Config(mode="calibrate"), base, tmp_path / "c", NullProgress())
    with pytest.raises(InputError, match="turns were calibrated on"):
        run(Config(), {**base, "calibration": tmp_path / "c"}, tmp_path / "s", NullProgress())
    assert not (tmp_path / "s").exists()


def test_people_may_label_the_test_set(world: dict[str, Path], oracle: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    run(Config(draws=100), {"judge": oracle, "evaluation": world["test"]}, tmp_path / "s", NullProgress())
    first = json.loads((tmp_path / "s" / "judgements.jsonl").read_text().splitlines()[0])["subject"]
    labels.write_text(json.dumps({"subject": first, "criterion": "accuracy", "label": "wrong", "rater": "p1"}) + "\n")
    inputs = {"judge": oracle, "evaluation": world["test"], "labels": labels}
    run(Config(mode="calibrate"), inputs, tmp_path / "c", NullProgress())
    made = JudgeCalibration.model_validate_json((tmp_path / "c" / "calibration.json").read_bytes())
    assert (made.n, list(made.criteria)) == (1, ["accuracy"])


def test_the_built_in_judge_asks_an_endpoint_and_pays_once(
    serve: Serve, world: dict[str, Path], tmp_path: Path
) -> None:
    def answer(body: dict[str, Any], number: int) -> Any:
        return said("Seen.") if "tools" in body else said(verdict(body))

    endpoint = serve(answer)
    config = Config(endpoint=endpoint.url, subjects=6, draws=100)
    inputs = {"evaluation": world["test"], "cache": tmp_path / "cache"}
    run(config, inputs, tmp_path / "one", NullProgress())
    judged = Judged.model_validate_json((tmp_path / "one" / "judged.json").read_bytes())
    assert judged.criteria["accuracy"].raw.value == 1.0
    assert judged.usage["local"]["requests"] == 12
    run(config, inputs, tmp_path / "two", NullProgress())
    assert len(endpoint.bodies) == 12
    again = Judged.model_validate_json((tmp_path / "two" / "judged.json").read_bytes())
    assert again.usage["local"]["cached"] == 12
    assert again.criteria == judged.criteria
    short = config.model_copy(update={"requests": 4})
    run(short, {"evaluation": world["test"]}, tmp_path / "three", NullProgress())
    cut = Judged.model_validate_json((tmp_path / "three" / "judged.json").read_bytes())
    assert cut.criteria["accuracy"].missing["budget"] >= 3
    assert cut.criteria["accuracy"].raw.low < 0.7


def test_evaluation_and_sessions_may_lie_apart(world: dict[str, Path], oracle: Path, tmp_path: Path) -> None:
    """As in a pod, where every artifact has a path of its own."""
    for name in ("evaluation", "traces"):
        (tmp_path / name).mkdir()
    evaluation, traces = tmp_path / "evaluation" / "data", tmp_path / "traces" / "data"
    shutil.copy(world["test"] / "evaluation.json", evaluation)
    shutil.copy(world["test"] / "traces.jsonl", traces)
    inputs = {"judge": oracle, "evaluation": evaluation, "traces": traces}
    apart = run(Config(draws=100), inputs, tmp_path / "apart", NullProgress())
    beside = run(Config(draws=100), {"judge": oracle, "evaluation": world["test"]}, tmp_path / "beside", NullProgress())
    assert apart.digests == beside.digests
    with pytest.raises(InputError, match="no sessions"):
        run(Config(), {"judge": oracle, "evaluation": evaluation}, tmp_path / "lost", NullProgress())


def test_as_a_process_an_error_is_one_line(
    world: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = execute(Config, run, ["--input", f"evaluation={world['test']}", "--out", str(tmp_path / "o"), "--config",
                                 str(_config(tmp_path, judge="nobody"))])  # fmt: skip
    assert code == 3
    told = capsys.readouterr().err
    assert told.startswith("error: judge: there is no judge at 'nobody'")
    assert told.count("\n") == 1


def _config(folder: Path, **fields: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(fields))
    return path
