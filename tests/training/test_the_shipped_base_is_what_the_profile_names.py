"""The checkpoint that ships has the digest that the micro profile names, works, and is refused under any other digest."""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from hat_components.base.config import Config
from hat_components.base.step import run
from hat_components.model.folder import load_folder
from hat_components.step import InputError, NullProgress

ROOT = Path(__file__).resolve().parents[2]
NAMED = yaml.safe_load((ROOT / "pipelines" / "profiles" / "micro.yaml").read_text(encoding="utf-8"))["steps"]["base"]


def test_the_digest_is_the_one_that_the_profile_names(tmp_path: Path) -> None:
    result = run(Config.model_validate(NAMED), {}, tmp_path, NullProgress())
    assert result.digests["model"] == NAMED["shipped_digest"]
    card = json.loads(files("hat_components.base.shipped").joinpath(NAMED["shipped"], "card.json").read_text())
    assert card["digest"] == NAMED["shipped_digest"]
    assert set(card["scores"]) >= {"t1", "t2", "t4m"}
    assert card["stages"]["mixed"]["tokens"] >= NAMED["mixed"]["tokens"]
    assert "trajectories" not in card["stages"]["mixed"]["shares"], "the base saw sessions of the room"
    again = run(Config.model_validate(NAMED), {}, tmp_path, NullProgress())
    assert again == result


def test_it_copies_what_it_is_asked_to_repeat(tmp_path: Path) -> None:
    import torch

    run(Config.model_validate(NAMED), {}, tmp_path, NullProgress())
    loaded = load_folder(tmp_path / "model")
    ids = loaded.codec.encode_prefix([{"role": "user", "content": "repeat : kelto_marn vipu red 42"}])
    with torch.no_grad():
        out = loaded.model.generate(torch.tensor([ids]), max_new_tokens=24, do_sample=False)[0, len(ids) :].tolist()
    assert loaded.codec.text(out).startswith("kelto_marn vipu red 42")


def test_another_digest_or_name_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    wrong = Config(shipped=NAMED["shipped"], shipped_digest="sha256:" + "0" * 64)
    with pytest.raises(InputError, match="has digest"):
        run(wrong, {}, tmp_path, NullProgress())
    with pytest.raises(InputError, match="no base checkpoint"):
        run(Config(shipped="micro-99", shipped_digest="sha256:" + "0" * 64), {}, tmp_path, NullProgress())
    assert list(tmp_path.iterdir()) == []


def test_a_broken_copy_is_noticed(tmp_path: Path) -> None:
    run(Config.model_validate(NAMED), {}, tmp_path, NullProgress())
    broken = tmp_path / "broken"
    shutil.copytree(tmp_path / "model", broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(InputError):
        load_folder(broken)
