"""Argo's own offline lint, strict, takes every compiled file and every manifest that is submitted, and finds what is wrong."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from hat_pipelines.compiler import argo_manifest
from hat_pipelines.plan import Job
from hat_pipelines.remote.argo import cron_workflow, instance
from tests.cluster.controlplane import argo_build
from tests.pipelines.conftest import make_job, toys

pytestmark = pytest.mark.cluster
COMPILED = sorted((Path(__file__).resolve().parents[2] / "pipelines" / "compiled").glob("*.argo.yaml"))
__all__ = ["make_job", "toys"]


def lint(*files: Path) -> tuple[int, str]:
    done = subprocess.run(
        [argo_build.folder() / "bin" / "argolint", *files], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def test_every_compiled_file_passes() -> None:
    assert len(COMPILED) >= 5
    code, told = lint(*COMPILED)
    assert code == 0, told


def test_what_is_submitted_passes_too(make_job: Callable[..., Job], tmp_path: Path) -> None:
    template = argo_manifest(make_job())
    made = {
        "workflow": instance(template, "one", "default", {"harness-key": "x"}),
        "cron": cron_workflow(template, "often", "default", "30 2 * * *", {"harness-key": "x"}),
    }
    for name, manifest in made.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(manifest))
        code, told = lint(path)
        assert code == 0, told


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("depends: draw.Succeeded", "depends: drew.Succeeded"),
        ("{{inputs.parameters.config}}", "{{inputs.parameters.confg}}"),
        ("entrypoint: dag", "entrypoint: dga"),
        ("podSpec", ""),
    ],
)
def test_what_is_wrong_is_found(wrong: str, right: str, make_job: Callable[..., Job], tmp_path: Path) -> None:
    text = yaml.safe_dump(argo_manifest(make_job()))
    broken = text.replace(wrong, right, 1) if right else text.replace("spec:\n", "spec:\n  unknownField: 1\n", 1)
    assert broken != text
    path = tmp_path / "broken.yaml"
    path.write_text(broken)
    code, told = lint(path)
    assert code == 1, told
