"""`hat train plan` prints every stage, and refuses what does not fit or cannot be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

STAGES = {"sft", "opd", "rl", "mtp"}
Hat = Callable[..., Any]


def test_the_command_prints_every_stage_and_refuses_what_does_not_fit(hat: Hat) -> None:
    told = hat("train", "plan", "--output=json")
    assert told.code == 0
    assert {one["stage"] for one in told.json()["stages"]} == STAGES
    over = hat("train", "plan", "--gpus", "1", "--method", "full")
    assert over.code == 3
    assert re.search(r"does not fit: .*sft needs \d+\.\d GiB", over.err)
    assert "GPUs" in over.err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("format: hatstack.trainplan/1\nname: x\nmodel: {class: nothing}\n", "no model class 'nothing'"),
        ("format: hatstack.trainplan/1\nname: x\nmodel: {class: qwen3}\ngpus: 3\n", "gpus"),
        ("name: x\nmodel: {class: qwen3}\nmethod: {targets: [zz]}\n", "no linear layer is called zz"),
        ("- 1\n", "training plan"),
        ("name: [\n", "cannot be read"),
    ],
)
def test_a_bad_plan_is_refused_with_its_place(hat: Hat, tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(text, encoding="utf-8")
    answer = hat("train", "plan", "--profile", str(file))
    assert answer.code == 3
    assert told in answer.err
    assert "Traceback" not in answer.err
