"""Tiny random models of the classes that profile h20 names go through every stage by TRL's trainers, whole and by adapters."""

from __future__ import annotations

import json

import pytest
import torch
import trl
from accelerate.utils.dataclasses import get_module_class_from_name
from safetensors.torch import load_file

from hat_components.base.corpus import corpus_texts, corpus_words
from hat_components.large.settings import Large
from hat_components.model.folder import load_folder
from hat_components.model.settings import FitConfig, TokenizerConfig
from hat_components.model.tokenizer import train_tokenizer
from hat_components.model.train import TrainingError
from hat_components.mtp.config import Config as MtpConfig
from hat_components.mtp.head import DraftHead
from hat_components.mtp.step import run as run_mtp
from hat_components.mtp.tensors import put_head, read_head
from hat_components.opd.config import Config as OpdConfig
from hat_components.opd.step import run as run_opd
from hat_components.rl.config import Config as RlConfig
from hat_components.rl.step import run as run_rl
from hat_components.runner import EXIT_CODES, execute
from hat_components.scenarios import load
from hat_components.sft.config import Config as SftConfig
from hat_components.sft.step import run as run_sft
from hat_components.step import NullProgress
from tests.training.conftest import write_trajectories
from tests.training.large_models import qwen_tokenizer, write_model
from tests.training.test_bad_inputs_leave_nothing_behind import small_files

MIXTURE = "qwen3_5_moe_text"
LORA = Large(rank=4, alpha=8, dtype="float32", sampled_at_once=4)
FULL = LORA.model_copy(update={"method": "full"})
FIT = FitConfig(tokens=6144, batch_tokens=2048, learning_rate=1e-2, warmup_steps=1, checkpoint_every=1)
SFT = SftConfig(arm="hsa", threads=1, fit=FIT, scenario="", max_length=1024, freeze_embedding=False, large=LORA)
OPD = OpdConfig(
    threads=1, scenario="", prompts={"copy": 1.0}, steps=2, batch=4, rows_at_once=2, reply_tokens=4, checkpoint_every=1,
    learning_rate=1e-2, freeze_embedding=False, large=LORA,
)  # fmt: skip
RL = RlConfig(
    threads=1, states="original", steps=2, groups=1, group=2, rows_at_once=1, call_tokens=4, checkpoint_every=1,
    learning_rate=1e-2, freeze_embedding=False, large=LORA,
)  # fmt: skip
MTP = MtpConfig(
    threads=1,
    states="original",
    sessions=4,
    held_out=2,
    steps=2,
    batch=2,
    call_tokens=8,
    checkpoint_every=1,
    large=LORA,
)


@pytest.fixture(scope="module")
def shop_tokenizer():
    scenario = load("live_commerce", {})
    words = corpus_words(scenario)
    return train_tokenizer(corpus_texts(scenario, 1, 40, words), words, TokenizerConfig(vocab_size=1800))


@pytest.fixture(scope="module")
def starts(tmp_path_factory, shop_tokenizer):
    """Class → folder of a random model with a draft head; the mixture speaks Qwen3.6's template."""
    found = {}
    for kind in ("qwen3", "qwen3_5_moe_text"):
        tokenizer = shop_tokenizer if kind == "qwen3" else qwen_tokenizer(shop_tokenizer)
        folder = write_model(tmp_path_factory.mktemp(kind) / "model", kind, tokenizer)
        from transformers import AutoConfig

        head = DraftHead(AutoConfig.from_pretrained(folder))
        for parameter in head.parameters():
            torch.nn.init.normal_(parameter, std=0.02)
        put_head(folder, head.tensors())
        found[kind] = folder
    return found


@pytest.fixture(scope="module")
def harness(repository):
    return repository / "harness-registry" / "harnesses" / "live-commerce"


@pytest.fixture(scope="module")
def data(tmp_path_factory, words):
    return write_trajectories(tmp_path_factory.mktemp("large") / "trajectories", words)


def stage(name, start, large, harness, data):
    """Step, config and inputs of a stage that begins with `start`."""
    if name == "sft":
        return run_sft, SFT.model_copy(update={"large": large}), {"base": start, "trajectories": data}
    if name == "opd":
        teacher = start.parent / "teacher"
        return run_opd, OPD.model_copy(update={"large": large}), {"start": start, "teacher": teacher}
    if name == "rl":
        return run_rl, RL.model_copy(update={"large": large}), {"start": start, "harness": harness}
    return run_mtp, MTP.model_copy(update={"large": large}), {"start": start, "harness": harness}


def weights(folder):
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= load_file(path)
    return found


class StopAt(NullProgress):
    """Ends the step from within after its first step."""

    def progress(self, done, total, note=""):
        if done == 1:
            raise KeyboardInterrupt


@pytest.fixture(scope="module", autouse=True)
def teachers(starts, shop_tokenizer):
    for kind, folder in starts.items():
        tokenizer = shop_tokenizer if kind == "qwen3" else qwen_tokenizer(shop_tokenizer)
        write_model(folder.parent / "teacher", kind, tokenizer, seed=4)


FIRST = {("sft", "qwen3", "full"), ("sft", MIXTURE, "lora"), ("opd", MIXTURE, "full"), ("rl", MIXTURE, "lora")}
EVERY = [
    (name, kind, method) for name in ("sft", "opd", "rl") for kind in ("qwen3", MIXTURE) for method in ("lora", "full")
]


@pytest.mark.parametrize(
    ("name", "kind", "method"),
    [pytest.param(*one, marks=() if one in FIRST else pytest.mark.matrix) for one in EVERY],
)
def test_a_stage_moves_the_weights_keeps_the_head_and_resumes(tmp_path, starts, harness, data, name, kind, method):
    run, config, inputs = stage(name, starts[kind], LORA if method == "lora" else FULL, harness, data)
    straight = run(config, inputs, tmp_path / "straight", NullProgress())
    before, after = weights(starts[kind]), weights(tmp_path / "straight" / "model")
    assert before.keys() == after.keys()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved or name == "rl", "a random policy earns nothing: no group differs"
    assert not any(name.startswith("mtp.") for name in moved)
    if method == "lora":
        assert all(name.rsplit(".", 2)[-2] in config.large.targets for name in moved)
    told = json.loads((tmp_path / "straight" / "model" / "training.json").read_text())
    assert told["stages"][name]["steps"] == (3 if name == "sft" else 2)
    with pytest.raises(KeyboardInterrupt):
        run(config, inputs, tmp_path / "stopped", StopAt())
    assert not (tmp_path / "stopped" / "model").exists()
    assert run(config, inputs, tmp_path / "stopped", NullProgress()).digests == straight.digests
    assert not (tmp_path / "stopped" / "checkpoints" / name).exists()


@pytest.mark.parametrize("kind", ["qwen3", MIXTURE])
def test_every_layer_that_fsdp_is_told_to_wrap_is_there(starts, kind):
    model = load_folder(starts[kind]).model
    assert model._no_split_modules
    assert all(get_module_class_from_name(model, name) for name in model._no_split_modules)


def test_a_full_disk_ends_a_stage_with_its_cure_and_room_lets_it_go_on(tmp_path, starts, data, capsys):
    config = SFT.model_copy(update={"fit": FIT.model_copy(update={"tokens": 4096})})
    (tmp_path / "config.json").write_text(config.model_dump_json())
    arguments = ["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "out")]
    arguments += ["--input", f"base={starts['qwen3']}", "--input", f"trajectories={data}"]
    with small_files(20_000):
        assert execute(SftConfig, run_sft, arguments) == EXIT_CODES["exhausted"]
    told = capsys.readouterr().err
    assert "cannot write" in told
    assert "Traceback" not in told
    assert execute(SftConfig, run_sft, arguments) == 0


def test_a_loss_that_is_no_number_ends_a_stage_before_a_weight_moves(tmp_path, starts, data, monkeypatch):
    real = trl.SFTTrainer.compute_loss
    monkeypatch.setattr(trl.SFTTrainer, "compute_loss", lambda *given, **named: real(*given, **named) * float("nan"))
    with pytest.raises(TrainingError, match="the loss is nan at step 1"):
        run_sft(SFT, {"base": starts["qwen3"], "trajectories": data}, tmp_path, NullProgress())
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_5_moe_text"])
def test_the_head_is_taken_out_fitted_and_written_back(tmp_path, starts, harness, kind):
    run, config, inputs = stage("mtp", starts[kind], LORA, harness, None)
    result = run(config, inputs, tmp_path / "fitted", NullProgress())
    old, new = read_head(starts[kind]), read_head(tmp_path / "fitted" / "model")
    assert old.keys() == new.keys()
    assert any(not torch.equal(old[name], new[name]) for name in old)
    body = weights(tmp_path / "fitted" / "model")
    assert all(torch.equal(body[name], tensor) for name, tensor in weights(starts[kind]).items() if name not in old)
    assert 1.0 <= result.metrics["mtp.accept_length_after"] <= config.depth + 1
