"""Each step is a KFP component that compiles by itself and gives the same artifacts in KFP as in process."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from hat_components.data import load_manifest

NAMES = {
    "simulate": "simulate",
    "importer": "import_conversations",
    "augment": "augment",
    "evaluate": "evaluate",
    "evolve": "evolve",
    "label": "label",
    "register": "register",
    "report": "report",
}


@pytest.mark.parametrize("package", NAMES)
def test_a_component_compiles_by_itself(tmp_path: Path, package: str) -> None:
    from kfp import compiler

    made = getattr(importlib.import_module(f"hat_components.{package}.component"), NAMES[package])
    compiler.Compiler().compile(made, str(tmp_path / "component.yaml"))
    text = (tmp_path / "component.yaml").read_text()
    assert "hatstack/" in text
    assert "pip install" not in text


def test_a_component_gives_in_kfp_what_the_step_gives_in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kfp import local

    from hat_components.simulate.component import simulate
    from hat_components.simulate.config import Config
    from hat_components.simulate.step import run
    from hat_components.step import NullProgress

    monkeypatch.chdir(tmp_path)
    settings = {"train": 4, "dev": 2, "test": 2}
    expected = run(Config.model_validate(settings), {}, tmp_path / "here", NullProgress())
    local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "kfp"), raise_on_error=True)
    task = simulate(config=json.dumps(settings))
    for name, digest in expected.digests.items():
        assert load_manifest(Path(task.outputs[name].path)).digest == digest
    with pytest.raises(RuntimeError):
        simulate(config=json.dumps({"scenario": "live_opera"}))
