"""Agentic distillation: what the student sampled in its own sessions is what moves it, and it moves to the teacher."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from hat_components.model.folder import load_folder, save_folder
from hat_components.model.qwen import build_model
from hat_components.opd.config import Config, Play
from hat_components.opd.sessions import Sessions
from hat_components.opd.step import run
from hat_components.rl.loss import sampled_logps
from hat_components.step import InputError, NullProgress
from tests.rl.conftest import TINY
from tests.rl.test_policy_steps_are_exact import Curves

PLAY = Play(states="augmented", turns=1)
CONFIG = Config(
    threads=1,
    steps=6,
    batch=4,
    rows_at_once=2,
    learning_rate=1e-2,
    warmup_steps=0,
    checkpoint_every=2,
    trainer="plain",
    play=PLAY,
)


@pytest.fixture(scope="module")
def teacher_folder(tmp_path_factory, tokenizer, codec):
    folder = tmp_path_factory.mktemp("teacher") / "model"
    save_folder(folder, build_model(TINY.model_copy(update={"initializer_range": 0.3}), tokenizer, seed=8), codec, {})
    return folder


def test_the_student_comes_nearer_to_the_teacher_in_its_own_sessions(tmp_path, model_folder, teacher_folder, harness):
    curves = Curves()
    inputs = {"start": model_folder, "teacher": teacher_folder, "harness": harness}
    config = CONFIG.model_copy(update={"steps": 14, "learning_rate": 2e-2, "freeze_embedding": False})
    run(config, inputs, tmp_path / "out", curves)
    losses = [value for _, value in curves.points["opd.loss"]]
    assert len(losses) == config.steps
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])


def test_rows_hold_what_was_sampled_and_are_the_same_in_another_process(model_folder, codec, harness):
    model = load_folder(model_folder).model.eval()
    first = Sessions(CONFIG, PLAY, harness, codec, model).rows(2, model)
    second = Sessions(CONFIG, PLAY, harness, codec, model).rows(2, model)
    assert first == second
    assert any(0 in row.mask for row in first)  # the session's own tokens are context
    with torch.no_grad():
        for row, logps in zip(first, sampled_logps(model, first, CONFIG.temperature), strict=True):
            told = torch.tensor([lp for lp, kept in zip(row.logprobs, row.mask, strict=True) if kept])
            assert torch.allclose(logps.float(), told, atol=2e-3)


def test_a_killed_run_ends_with_the_same_weights(tmp_path, model_folder, teacher_folder, harness):
    class Killed(NullProgress):
        def progress(self, done, total, note=""):
            if done == 3:
                raise KeyboardInterrupt

    inputs = {"start": model_folder, "teacher": teacher_folder, "harness": harness}
    run(CONFIG, inputs, tmp_path / "whole", NullProgress())
    with pytest.raises(KeyboardInterrupt):
        run(CONFIG, inputs, tmp_path / "resumed", Killed())
    run(CONFIG, inputs, tmp_path / "resumed", NullProgress())
    whole, resumed = (load_folder(tmp_path / name / "model").model.state_dict() for name in ("whole", "resumed"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_what_cannot_be_is_refused(tmp_path, model_folder, teacher_folder):
    with pytest.raises(ValidationError, match="trainer plain"):
        Config(trainer="trl", play=PLAY)
    with pytest.raises(InputError, match="harness"):
        run(CONFIG, {"start": model_folder, "teacher": teacher_folder}, tmp_path / "out", NullProgress())
