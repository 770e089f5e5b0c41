"""The tensors of a draft head in model folders, under the names that SGLang reads: taken out, checked, put in.

transformers drops `mtp.*` when it loads and so loses them when it saves: every trained model needs its head put back.
Always holds: what is put in comes out bit for bit; a file is replaced whole; an index names every tensor that the
folder has. Not here: what the head computes (head), its training (step).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hat_components.model.artifact import disk_errors, new_folder
from hat_components.step import InputError

if TYPE_CHECKING:
    import torch

PREFIX = "mtp."
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = "model-mtp.safetensors"


def read_head(folder: Path) -> dict[str, torch.Tensor]:
    """The folder's `mtp.*` tensors as they are stored; empty where there are none. Raises InputError."""
    from safetensors import SafetensorError, safe_open

    found: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, "pt") as stream:
                names = list(stream.keys())
                found |= {name: stream.get_tensor(name) for name in names if name.startswith(PREFIX)}
        except (OSError, SafetensorError) as error:
            raise InputError(f"the weights cannot be read: {error}", place=str(path)) from error
    return found


def check_head(tensors: Mapping[str, torch.Tensor], shapes: Mapping[str, tuple[int, ...]], place: Path) -> None:
    """Raise InputError where a head is not exactly of `shapes`, or a weight is not finite."""
    import torch

    faults = [f"{name} is missing" for name in sorted(set(shapes) - set(tensors))]
    faults += [f"{name} is unknown" for name in sorted(set(tensors) - set(shapes))]
    for name in sorted(set(shapes) & set(tensors)):
        if tuple(tensors[name].shape) != shapes[name]:
            faults.append(f"{name} is {tuple(tensors[name].shape)}, not {shapes[name]}")
        elif not torch.isfinite(tensors[name]).all():
            faults.append(f"{name} is not finite")
    if faults:
        more = f" and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise InputError(
            f"the draft head does not fit the model: {'; '.join(faults[:5])}{more}",
            place=str(place),
            cure="take the head of the model that this one was trained from",
        )


def fused(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights of a mixture's experts that are stored one by one, as transformers has them: `gate_up_proj` [E, 2I, H] and
    `down_proj` [E, H, I]. Other heads come back as they are."""
    import torch

    found = dict(tensors)
    for name in sorted(tensors):
        head, mark, _ = name.partition(".experts.0.gate_proj.weight")
        if not mark:
            continue
        count = sum(
            1 for other in tensors if other.startswith(f"{head}.experts.") and other.endswith(".gate_proj.weight")
        )
        parts = {
            kind: [found.pop(f"{head}.experts.{number}.{kind}_proj.weight") for number in range(count)]
            for kind in ("gate", "up", "down")
        }
        both = zip(parts["gate"], parts["up"], strict=True)
        found[f"{head}.experts.gate_up_proj"] = torch.stack([torch.cat(pair) for pair in both])
        found[f"{head}.experts.down_proj"] = torch.stack(parts["down"])
    return found


def put_head(folder: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Put a head into a model folder that nobody else reads yet, in the place of the one it has."""
    from safetensors.torch import load_file, save_file

    if any(not name.startswith(PREFIX) for name in tensors):
        raise ValueError("a draft head's tensors are named mtp.*")
    plain = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with disk_errors(folder):
        if (folder / INDEX).is_file():
            index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
            elsewhere = [n for n, f in index["weight_map"].items() if n.startswith(PREFIX) and f != SHARD]
            if elsewhere:
                raise InputError(
                    f"the folder has a head in its shards already: {elsewhere[0]}",
                    place=str(folder),
                    cure="save the model with transformers first, which leaves the head out",
                )
            _replace(folder / SHARD, lambda path: save_file(plain, path, {"format": "pt"}))
            kept = {name: file for name, file in index["weight_map"].items() if not name.startswith(PREFIX)}
            index["weight_map"] = {**kept, **dict.fromkeys(plain, SHARD)}
            text = json.dumps(index, indent=2, sort_keys=True) + "\n"
            _replace(folder / INDEX, lambda path: path.write_text(text, encoding="utf-8"))
            return
        weights = load_file(folder / SINGLE)
        kept_weights = {name: tensor for name, tensor in weights.items() if not name.startswith(PREFIX)}
        _replace(folder / SINGLE, lambda path: save_file({**kept_weights, **plain}, path, {"format": "pt"}))


def transplant(source: Path, target: Path, out: Path) -> list[str]:
    """A new folder `out`: the model of `target` with the head of `source`, both as stored. Returns the head's names."""
    tensors = read_head(source)
    if not tensors:
        raise InputError("there is no draft head (mtp.*) in it", place=str(source), cure="give a model that has one")
    with new_folder(out) as draft:
        shutil.copytree(target, draft, dirs_exist_ok=True)
        put_head(draft, tensors)
    return sorted(tensors)


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
