"""A run that is killed with SIGKILL goes on from its checkpoint and ends with the digest of a run that was not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
import torch

from hat_components.base.config import Config as BaseConfig
from hat_components.base.step import run as run_base
from hat_components.model.artifact import ExistsError
from hat_components.model.checkpoint import ResumeError
from hat_components.model.settings import FitConfig, TokenizerConfig
from hat_components.sft.config import Config
from hat_components.sft.step import run
from hat_components.step import InputError, NullProgress
from tests.training.conftest import TINY

FIT = FitConfig(
    tokens=30_000,
    batch_tokens=600,
    learning_rate=1e-2,
    warmup_steps=3,
    log_every=1,
    checkpoint_every=7,
    trainer="plain",
)
CONFIG = Config(arm="hsa", threads=1, fit=FIT, scenario="", max_length=512)
CHILD = """
import sys
from pathlib import Path
from hat_components.sft.config import Config
from hat_components.sft.step import run
from hat_components.step import NullProgress

class Told(NullProgress):
    def metric(self, name, value, step):
        print(step, flush=True)
        sys.stdin.readline()

inputs = {"base": Path(sys.argv[2]), "trajectories": Path(sys.argv[3])}
run(Config.model_validate_json(sys.argv[1]), inputs, Path(sys.argv[4]), Told())
"""


def kill_at(inputs, out, at):
    """Run the step in a child that waits for leave after every training step; kill it at step `at`."""
    command = [sys.executable, "-c", CHILD, CONFIG.model_dump_json(), inputs["base"], inputs["trajectories"], out]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) == at:
                break
            child.stdin.write("\n")
            child.stdin.flush()
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL


class StopAt(NullProgress):
    """Ends the step from within, at one point of one curve."""

    def __init__(self, name, step):
        self.point = (name, step)

    def metric(self, name, value, step):
        if (name, step) == self.point:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def inputs(base_folder, trajectories):
    return {"base": base_folder, "trajectories": trajectories}


@pytest.fixture(scope="module")
def straight(tmp_path_factory, inputs):
    return run(CONFIG, inputs, tmp_path_factory.mktemp("straight"), NullProgress())


def test_sft_killed_twice_ends_with_the_same_digest(tmp_path, inputs, straight):
    for at in (10, 30):
        kill_at(inputs, tmp_path, at)
        assert not (tmp_path / "model").exists()
    steps = [int(path.name.removeprefix("checkpoint-")) for path in (tmp_path / "checkpoints" / "sft").iterdir()]
    assert steps == [28]
    result = run(CONFIG, inputs, tmp_path, NullProgress())
    assert result.digests == straight.digests
    assert not any((tmp_path / "checkpoints" / "sft").iterdir()), "checkpoints go when the model stands"
    assert run(CONFIG, inputs, tmp_path, NullProgress()).digests == straight.digests, (
        "a finished folder is not trained again"
    )


def test_trls_trainer_resumes_too_and_ends_where_the_plain_loop_does(tmp_path, inputs):
    weights = []
    for trainer in ("trl", "plain"):
        config = CONFIG.model_copy(update={"fit": FIT.model_copy(update={"trainer": trainer})})
        with pytest.raises(KeyboardInterrupt):
            run(config, inputs, tmp_path / trainer, StopAt("sft.loss", 16))
        run(config, inputs, tmp_path / trainer, NullProgress())
        weights.append((tmp_path / trainer / "model" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def test_base_stopped_in_its_second_course_ends_with_the_same_digest(tmp_path):
    course = FIT.model_copy(update={"tokens": 6_000, "checkpoint_every": 5})
    config = BaseConfig(
        threads=1,
        scenario="",
        corpus_items=40,
        tokenizer=TokenizerConfig(vocab_size=500),
        model=TINY,
        copying=course,
        lookup=course,
        mixed=course,
        max_length=512,
    )
    seen = []

    class Seen(NullProgress):
        def metric(self, name, value, step):
            seen.append((name, step))

    with pytest.raises(KeyboardInterrupt):
        run_base(config, {}, tmp_path / "a", StopAt("lookup.loss", 8))
    resumed = run_base(config, {}, tmp_path / "a", Seen())
    assert seen[0] == ("lookup.loss", 6), "copying is done, looking up goes on after its checkpoint at 5"
    assert resumed.digests == run_base(config, {}, tmp_path / "b", NullProgress()).digests


def test_another_config_or_other_inputs_are_refused(tmp_path, inputs, straight):
    with pytest.raises(KeyboardInterrupt):
        run(CONFIG, inputs, tmp_path, StopAt("sft.loss", 9))
    with pytest.raises(ResumeError) as caught:
        run(CONFIG.model_copy(update={"seed": 2}), inputs, tmp_path, NullProgress())
    assert caught.value.kind == "conflict"
    run(CONFIG, inputs, tmp_path, NullProgress())
    with pytest.raises(ExistsError):
        run(CONFIG.model_copy(update={"seed": 2}), inputs, tmp_path, NullProgress())


def test_a_broken_checkpoint_is_told(tmp_path, inputs):
    with pytest.raises(KeyboardInterrupt):
        run(CONFIG, inputs, tmp_path, StopAt("sft.loss", 9))
    weights = next((tmp_path / "checkpoints").rglob("weights.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(InputError, match="checkpoint is broken"):
        run(CONFIG, inputs, tmp_path, NullProgress())


def test_the_seed_decides_the_weights_and_the_threads_are_part_of_the_identity(tmp_path, inputs, straight):
    other = run(CONFIG.model_copy(update={"seed": 2}), inputs, tmp_path, NullProgress())
    assert other.digests != straight.digests
    assert torch.get_num_threads() == 1, "a step gives the thread count back"


def test_what_training_says_of_itself_has_no_times(straight, tmp_path_factory, inputs):
    out = tmp_path_factory.mktemp("again")
    assert run(CONFIG, inputs, out, NullProgress()).digests == straight.digests
    told = json.loads((out / "model" / "training.json").read_text())
    assert told["inputs"].keys() == {"base", "trajectories"}
    assert told["stages"]["sft"]["tokens"] >= FIT.tokens
    assert told["stages"]["sft"]["shares"]["trajectories"] == pytest.approx(0.8, abs=0.05)
