"""Runs a step inside a KFP component: artifacts come in and go out at the paths that KFP gives.

Always holds: an artifact appears at its path only when the whole step ended well; an expected error ends the pod with the
exit code of its kind and one line, no traceback. Not here: kfp itself (each step's component.py), whole pipelines, which
derive their components from a Dag (hat_pipelines.to_kfp).
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hat_components.runner import execute

CONTROL = f"hatstack/control:{version('hatstack')}"
"""Image of steps that need no torch."""
TRAINER = f"hatstack/trainer:{version('hatstack')}"
"""Image of steps that train or run a model."""


def perform(package: str, config: str, inputs: Mapping[str, Any], outputs: Mapping[str, str]) -> None:
    """Run `hat_components.<package>` under a JSON config.

    `inputs`: name → KFP artifact, None where an optional one was not given. `outputs`: artifact name → path that
    KFP wants it at. Ends the process when the step fails.
    """
    config_class = importlib.import_module(f"hat_components.{package}.config").Config
    run = importlib.import_module(f"hat_components.{package}.step").run
    with tempfile.TemporaryDirectory() as scratch:
        file, out = Path(scratch) / "config.json", Path(scratch) / "out"
        file.write_text(json.dumps(json.loads(config or "{}")), encoding="utf-8")
        given = [f"--input={name}={artifact.path}" for name, artifact in inputs.items() if artifact is not None]
        code = execute(config_class, run, ["--config", str(file), "--out", str(out), *given])
        if code:
            sys.exit(code)
        artifacts = json.loads((out / "result.json").read_text(encoding="utf-8"))["artifacts"]
        for name, target in outputs.items():
            if name in artifacts:
                _deliver(out / artifacts[name], Path(target))


def _deliver(made: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        target.rmdir()
    shutil.move(made, target)
