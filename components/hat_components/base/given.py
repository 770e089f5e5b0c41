"""Hands out a model that stands on the machine, such as Qwen3.6-35B-A3B on a mounted volume, as the base of a run.

Always holds: pickles, code, broken safetensors and tokenizers without a chat template are refused before anything is
written; the folder itself is never changed. Not here: checkpoints that ship (shipped), training a base (step).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hat_components.data import digest_path
from hat_components.model.artifact import new_folder
from hat_components.model.qwen import check_folder
from hat_components.model.template import load_codec
from hat_components.step import InputError, Progress, StepResult

KEPT = (".safetensors", ".json", ".jinja", ".txt", ".model")
"""What of a folder a model is made of; a README or an image is left."""


def hand_over(folder: Path, digest: str, out: Path, progress: Progress) -> StepResult:
    """The artifact `model`: the files of `folder`, linked where the file system allows it. `digest` "" takes any."""
    if not folder.is_dir():
        raise InputError("there is no such folder", place=str(folder), cure="mount the volume with the model")
    check_folder(folder)
    load_codec(folder)
    target = out / "model"
    if not target.exists():
        with new_folder(target) as draft:
            for path in sorted(folder.iterdir()):
                if path.is_file() and path.suffix in KEPT:
                    _place(path.resolve(), draft / path.name)
    found = digest_path(target)
    if digest and found != digest:
        shutil.rmtree(target)
        raise InputError(f"the model has digest {found}, not {digest}", place=str(folder), cure="name the one it has")
    progress.artifact("model", target)
    return StepResult(artifacts={"model": "model"}, digests={"model": found}, notes={"folder": str(folder)})


def _place(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
