"""Base checkpoints that ship: made by this repository's own base step, bf16 safetensors, named by digest.

Always holds: a checkpoint is handed out only when its content has the digest that the caller names. `python -m
hat_components.base.shipped FOLDER NAME [EVALUATION]` makes one from a trained model folder; `make base` trains that folder anew.
Not here: training (hat_components.base.step).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path

from hat_components.data import digest_path
from hat_components.model.artifact import disk_errors, new_folder
from hat_components.step import InputError, Progress, StepResult

CARD = "card.json"
"""Beside the model: the digest of the content, of the full-precision model it was made from, and measured scores."""


def hand_out(name: str, digest: str, out: Path, progress: Progress) -> StepResult:
    """Copy checkpoint `name` to `out/model`. InputError when it does not ship or does not have `digest`."""
    root = files(__package__).joinpath(name)
    if not name or "/" in name or not root.is_dir():
        known = ", ".join(
            sorted(entry.name for entry in files(__package__).iterdir() if entry.is_dir() and "__" not in entry.name)
        )
        raise InputError(
            f"no base checkpoint {name!r} ships", place="steps.base.shipped", cure=f"one of: {known or 'none'}"
        )
    target = out / "model"
    with as_file(root.joinpath("model")) as source:
        found = digest_path(source)
        if found != digest:
            cure = "make base rebuilds it; or name the digest that the profile means"
            raise InputError(f"checkpoint {name} has digest {found}, not {digest}", place=str(source), cure=cure)
        if not target.exists():
            with disk_errors(target), new_folder(target) as draft:
                shutil.copytree(source, draft, dirs_exist_ok=True)
    progress.artifact("model", target)
    card: Mapping[str, object] = json.loads(root.joinpath(CARD).read_text(encoding="utf-8"))
    notes = {"shipped": name, **card}
    return StepResult(artifacts={"model": "model"}, digests={"model": digest_path(target)}, notes=notes)


def make(folder: Path, name: str, scores: Mapping[str, float] | None = None) -> str:
    """Ship a trained model folder under `name`, with measured scores if given; returns the digest for profiles."""
    from hat_components.model.folder import load_folder, read_training, save_folder

    loaded = load_folder(folder)
    place = Path(__file__).resolve().parent / name
    digest = save_folder(place / "model", loaded.model, loaded.codec, read_training(folder), "bfloat16")
    training = read_training(folder)
    card = {
        "digest": digest,
        "made_from": loaded.digest,
        "seed": training.get("config", {}).get("seed"),
        "stages": training.get("stages", {}),
        "scores": dict(scores or {}),
    }
    (place / CARD).write_text(json.dumps(card, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return digest
