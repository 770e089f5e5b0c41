"""Broken models and data are refused in one sentence; a full disk leaves no half-written model."""

from __future__ import annotations

import contextlib
import json
import resource
import shutil
import signal

import pytest
import torch
from safetensors.torch import load_file, save_file

from hat_components.model.folder import load_folder
from hat_components.model.qwen import load_model, save_model
from hat_components.runner import EXIT_CODES, execute
from hat_components.sft.config import Config
from hat_components.sft.step import run
from hat_components.step import InputError, NullProgress
from tests.training.conftest import write_trajectories
from tests.training.test_killed_runs_resume_to_the_same_weights import CONFIG


def change(folder, edit):
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors")


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-50])


def cut_header(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:20])


def garble(folder):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[8:60] = b"\xff" * 52
    path.write_bytes(bytes(data))


def pickle(folder):
    torch.save({"a": torch.zeros(1)}, folder / "pytorch_model.bin")


def code(folder):
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "evil.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('code of the folder was run')")


def integers(folder):
    change(folder, lambda w: w.update({"model.norm.weight": torch.ones(32, dtype=torch.int64)}))


def missing(folder):
    change(folder, lambda w: w.pop("model.layers.1.mlp.up_proj.weight"))


def extra(folder):
    change(folder, lambda w: w.update({"model.layers.9.mlp.up_proj.weight": torch.ones(64, 32)}))


def misshapen(folder):
    change(folder, lambda w: w.update({"model.norm.weight": torch.ones(31)}))


def infinite(folder):
    change(folder, lambda w: w["model.norm.weight"].fill_(float("inf")))


def small_vocabulary(folder):
    config = json.loads((folder / "config.json").read_text())
    config["vocab_size"] = 600
    (folder / "config.json").write_text(json.dumps(config))
    change(folder, lambda w: w.update({"model.embed_tokens.weight": w["model.embed_tokens.weight"][:600].clone()}))


def other_end(folder):
    config = json.loads((folder / "config.json").read_text())
    config["eos_token_id"] = 7
    (folder / "config.json").write_text(json.dumps(config))


def no_config(folder):
    (folder / "config.json").unlink()


def no_weights(folder):
    (folder / "model.safetensors").unlink()


FAULTS = {
    cut: "header says",
    cut_header: "header is broken",
    garble: "header is not JSON",
    pickle: "pickled weights are refused",
    code: "code of its own",
    integers: "dtype I64",
    missing: "do not fit the config",
    extra: "extra_keys.*layers.9",
    misshapen: "cannot be loaded|do not fit",
    infinite: "not finite",
    small_vocabulary: "the tokenizer has 652 entries, the model 600",
    other_end: "end token",
    no_config: "no config.json",
    no_weights: "no safetensors",
}


@pytest.mark.parametrize("fault", list(FAULTS), ids=lambda fault: fault.__name__)
def test_a_broken_base_is_refused_before_anything_is_written(tmp_path, base_folder, trajectories, fault):
    broken = tmp_path / "base"
    shutil.copytree(base_folder, broken)
    fault(broken)
    out = tmp_path / "out"
    with pytest.raises(InputError, match=FAULTS[fault]) as caught:
        run(CONFIG, {"base": broken, "trajectories": trajectories}, out, NullProgress())
    assert caught.value.place
    assert not out.exists()


def test_a_sound_base_is_accepted(base_folder):
    assert load_folder(base_folder).digest.startswith("sha256:")


def test_data_that_is_not_for_training_is_refused(tmp_path, base_folder, words):
    for purpose in (None, "evaluation"):
        data = write_trajectories(tmp_path / f"data-{purpose}", words, count=2, purpose=purpose)
        with pytest.raises(InputError, match="tagged for"):
            run(CONFIG, {"base": base_folder, "trajectories": data}, tmp_path / "out", NullProgress())


def test_an_arm_that_is_not_in_the_data_is_told_with_those_that_are(tmp_path, base_folder, trajectories):
    config = CONFIG.model_copy(update={"arm": "other"})
    with pytest.raises(InputError, match=r"arm 'other'.*hsa \(24\), naive \(24\)"):
        run(config, {"base": base_folder, "trajectories": trajectories}, tmp_path / "out", NullProgress())


def test_a_missing_input_is_told(tmp_path, base_folder):
    with pytest.raises(InputError, match="'trajectories' was not given"):
        run(CONFIG, {"base": base_folder}, tmp_path / "out", NullProgress())


def test_weights_are_saved_as_they_are_and_as_bfloat16(tmp_path, tiny):
    for dtype in ("float32", "bfloat16"):
        folder = tmp_path / dtype
        folder.mkdir()
        save_model(tiny, folder, dtype)
        assert json.loads((folder / "config.json").read_text())["dtype"] == dtype
        again = load_model(folder)
        for (name, one), (_, other) in zip(tiny.named_parameters(), again.named_parameters(), strict=True):
            assert torch.equal(one.to(getattr(torch, dtype)).float(), other), name
    assert next(tiny.parameters()).dtype is torch.float32
    assert (tmp_path / "bfloat16" / "model.safetensors").stat().st_size < 0.6 * (
        tmp_path / "float32" / "model.safetensors"
    ).stat().st_size


@contextlib.contextmanager
def small_files(limit):
    """No file of this process may grow beyond `limit` bytes, as on a disk that is full or under a quota."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        signal.signal(signal.SIGXFSZ, before)


@pytest.mark.parametrize("checkpoints", [0, 5], ids=["model", "checkpoint"])
def test_a_full_disk_leaves_no_half_written_model(tmp_path, base_folder, trajectories, checkpoints, capsys):
    fit = CONFIG.fit.model_copy(update={"tokens": 3_000, "checkpoint_every": checkpoints})
    (tmp_path / "config.json").write_text(CONFIG.model_copy(update={"fit": fit}).model_dump_json())
    out = tmp_path / "out"
    arguments = ["--config", str(tmp_path / "config.json"), "--out", str(out)]
    arguments += ["--input", f"base={base_folder}", "--input", f"trajectories={trajectories}"]
    with small_files(40_000):
        assert execute(Config, run, arguments) == EXIT_CODES["exhausted"]
    told = capsys.readouterr().err
    assert "cannot write" in told
    assert "free disk space" in told
    assert "Traceback" not in told
    assert {path.name for path in out.rglob("*") if path.is_file()} == {"progress.jsonl"}
    assert execute(Config, run, arguments) == 0, "with room again, the same command ends well"
