"""SIGKILL at random signs of progress of each stage: started again in its folder, it ends with the same artifact."""

from __future__ import annotations

import random
import signal
import threading

import pytest

from hat_components.augment.config import Config as Augment
from hat_components.collect.config import Config as Collect
from hat_components.large.settings import Large
from hat_components.model.folder import save_folder
from hat_components.model.qwen import build_model
from hat_components.model.settings import FitConfig
from hat_components.mtp.config import Config as Mtp
from hat_components.opd.config import Config as Opd
from hat_components.rl.config import Config as Rl
from hat_components.sft.config import Config as Sft
from tests.rl.conftest import TINY
from tests.rl.dying import Stages
from tests.rl.test_a_teacher_is_asked_once_and_judged_by_ground_truth import Server
from tests.training.conftest import write_trajectories

SETTINGS = {"mix": "balanced"}
CONFIGS = {
    "augment": Augment(settings=SETTINGS),
    "sft": Sft(
        threads=1,
        scenario="",
        max_length=256,
        fit=FitConfig(tokens=4000, batch_tokens=512, checkpoint_every=3, warmup_steps=2, log_every=1),
    ),
    "opd": Opd(
        threads=1, scenario="", steps=6, batch=2, rows_at_once=2, reply_tokens=4, checkpoint_every=2, trainer="plain"
    ),
    "rl": Rl(threads=1, steps=4, groups=1, group=2, rows_at_once=2, call_tokens=6, checkpoint_every=2, trainer="plain"),
    "mtp": Mtp(threads=1, sessions=4, held_out=2, copying=3, steps=4, batch=2, call_tokens=8, checkpoint_every=2),
    "collect": Collect(
        endpoint="http://nowhere", teacher="expert-1", licence="own", settings=SETTINGS, samples=1, batch=1
    ),
}
TRL = {
    "sft": CONFIGS["sft"].model_copy(update={"fit": CONFIGS["sft"].fit.model_copy(update={"trainer": "trl"})}),
    "opd": CONFIGS["opd"].model_copy(update={"trainer": "trl"}),
    "rl": CONFIGS["rl"].model_copy(update={"trainer": "trl"}),
}
LARGE = {
    step: TRL[step].model_copy(update={"large": Large(rank=2, dtype="float32"), "freeze_embedding": False, **more})
    for step, more in {
        "sft": {"fit": TRL["sft"].fit.model_copy(update={"tokens": 2048, "checkpoint_every": 1}), "max_length": 256},
        "opd": {},
        "rl": {},
    }.items()
}


@pytest.fixture(scope="module")
def stages():
    """The process that runs and kills."""
    found = Stages()
    yield found
    found.close()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, model_folder, harness, tokenizer, codec):
    """Stage → its inputs."""
    from hat_components.data import DatasetWriter
    from hat_components.scenarios import load
    from hat_scenarios import general

    folder = tmp_path_factory.mktemp("killed")
    items = list(load("live_commerce", SETTINGS).items(5, "train", 4, 1))
    with DatasetWriter(folder / "items", kind="items", splits=["train"]) as writer:
        for item in items:
            writer.write("train", item)
        writer.finish(name="items", purpose="training", seed=5)
    save_folder(folder / "teacher", build_model(TINY, tokenizer, seed=9), codec, {})
    words = general.Words.of(("lamp", "table", "river", "stone"))
    trajectories = write_trajectories(folder / "trajectories", words, count=6)
    played = {"start": model_folder, "harness": harness}
    return {
        "augment": {"harness": harness, "items": folder / "items"},
        "collect": {"harness": harness, "items": folder / "items"},
        "sft": {"base": model_folder, "trajectories": trajectories},
        "opd": {"start": model_folder, "teacher": folder / "teacher"},
        "rl": played,
        "mtp": played,
    }, items


@pytest.fixture(scope="module")
def teacher(inputs):
    """A config of collect whose endpoint answers."""
    config = CONFIGS["collect"]
    server = Server(inputs[0]["collect"]["harness"], inputs[1], config)
    server.wrong = set()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield config.model_copy(update={"endpoint": f"http://127.0.0.1:{server.server_address[1]}/v1"})
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def straight(tmp_path_factory, stages, inputs):
    """What a run that nobody kills tells; each made once."""
    made = {}

    def run(step, config):
        key = (step, config.model_dump_json())
        if key not in made:
            code, made[key] = stages.run(step, config, inputs[0][step], tmp_path_factory.mktemp(step) / "out")
            assert code == 0
        return made[key]

    return run


def survives(stages, straight, step, config, given, out, rng, kills):
    """Kill `kills` times, each at a random sign of what is left, then run to the end."""
    whole = straight(step, config)
    assert whole["signs"] > kills
    for _ in range(kills):
        code, _ = stages.run(step, config, given, out, rng.randint(1, whole["signs"]))
        assert code in (0, -signal.SIGKILL), "killed, or done before: a resumed run has less to tell"
        if code == 0:
            break
    code, told = stages.run(step, config, given, out)
    assert code == 0
    assert told["digests"] == whole["digests"]


@pytest.mark.parametrize("step", sorted(CONFIGS))
def test_a_stage_that_was_killed_ends_the_same(tmp_path, stages, straight, inputs, teacher, step):
    config = teacher if step == "collect" else CONFIGS[step]
    survives(stages, straight, step, config, inputs[0][step], tmp_path / "out", random.Random(f"kill/{step}"), 1)


@pytest.mark.parametrize(("configs", "step"), [(TRL, "opd"), (LARGE, "sft")], ids=["small", "large"])
def test_a_kill_after_the_last_step_changes_nothing(tmp_path, stages, straight, inputs, configs, step):
    whole = straight(step, configs[step])
    code, _ = stages.run(step, configs[step], inputs[0][step], tmp_path / "out", whole["signs"] - 1)
    assert code == -signal.SIGKILL
    code, told = stages.run(step, configs[step], inputs[0][step], tmp_path / "out")
    assert (code, told["digests"]) == (0, whole["digests"])


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("step", sorted(CONFIGS))
def test_wherever_the_kill_falls(tmp_path, stages, straight, inputs, teacher, step, seed):
    config = teacher if step == "collect" else CONFIGS[step]
    rng = random.Random(f"matrix/{step}/{seed}")
    survives(stages, straight, step, config, inputs[0][step], tmp_path / "out", rng, 1 + seed % 3)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("step", sorted(TRL))
@pytest.mark.parametrize("which", ["small", "large"])
def test_trls_trainers_survive_it_too(tmp_path, stages, straight, inputs, which, step, seed):
    config = (TRL if which == "small" else LARGE)[step]
    rng = random.Random(f"trl/{which}/{step}/{seed}")
    survives(stages, straight, step, config, inputs[0][step], tmp_path / "out", rng, 2)
