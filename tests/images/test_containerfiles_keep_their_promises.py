"""Both images: two stages, the second without build tools; pinned packages, labels, a bill, no root, nothing written below /."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "serving" / "images"
INSTRUCTIONS = {"ARG", "FROM", "COPY", "ENV", "RUN", "LABEL", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
Stage = list[tuple[str, str]]
"""Instructions of one stage with their arguments."""


def stages(name: str) -> list[Stage]:
    """A Containerfile by stage; what stands before the first FROM is stage 0."""
    text = "\n".join(line for line in (IMAGES / name / "Containerfile").read_text().splitlines() if line[:1] != "#")
    found: list[Stage] = [[]]
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if not line.strip():
            continue
        word, _, rest = line.partition(" ")
        assert word in INSTRUCTIONS, f"{name}: {word} is no instruction that these images use"
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest.strip()))
    return found


def only(stage: Stage, word: str) -> str:
    (found,) = [rest for one, rest in stage if one == word]
    return found


def test_every_image_is_one_that_is_built() -> None:
    script = (IMAGES / "build.sh").read_text()
    assert {path.parent.name for path in IMAGES.glob("*/Containerfile")} == {"control", "trainer"}
    assert "${*:-control trainer}" in script
    assert "constraints.txt" in script


@pytest.mark.parametrize("name", ["control", "trainer"])
def test_the_first_stage_installs_what_is_pinned_and_writes_the_bill(name: str) -> None:
    _, build, _ = stages(name)
    assert only(build, "FROM") == "${BASE} AS build"
    (command,) = [rest for word, rest in build if word == "RUN"]
    assert "--constraint /wheels/constraints.txt" in command
    assert "hatstack.sbom > /opt/hatstack/sbom.json" in command
    assert command.index("pip uninstall --yes pip setuptools") < command.index("hatstack.sbom")
    extras = re.findall(r"\$\{wheel\}\[([a-z,]+)\]", command)
    known = re.findall(r"^([a-z]+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert extras == [{"control": "control", "trainer": "training,pipelines"}[name]]
    assert set(extras[0].split(",")) <= set(known)


@pytest.mark.parametrize("name", ["control", "trainer"])
def test_the_second_stage_is_nobodys_and_says_what_it_is(name: str) -> None:
    before, _, last = stages(name)
    assert only(before, "ARG").startswith("BASE=docker.io/library/python:3.11")
    assert only(last, "FROM") == "${BASE}"
    assert only(last, "USER") == "65532:65532"
    assert [rest for word, rest in last if word == "COPY"] == ["--from=build /opt/hatstack /opt/hatstack"]
    assert not [rest for word, rest in last if word == "RUN"]
    labels = dict(part.split("=", 1) for part in shlex.split(only(last, "LABEL")))
    assert labels["org.opencontainers.image.title"] == f"hatstack {name}"
    assert labels["org.opencontainers.image.revision"] == "${REVISION}"
    assert labels["org.opencontainers.image.base.name"] == "${BASE}"
    assert labels["org.opencontainers.image.base.digest"] == "${BASE_DIGEST}"
    assert labels["dev.hatstack.wheel"] == "${WHEEL}"
    assert labels["dev.hatstack.sbom"] == "/opt/hatstack/sbom.json"
    variables = dict(part.split("=", 1) for part in shlex.split(only(last, "ENV")))
    assert (variables["HOME"], variables["PYTHONDONTWRITEBYTECODE"]) == ("/tmp", "1")
    assert only(last, "WORKDIR") == "/tmp"
    started = {"control": '["hat"]', "trainer": '["python", "-m", "hat_pipelines.pod"]'}
    assert only(last, "ENTRYPOINT") == started[name]
