"""Checkpoints of a running training: whole or absent, safetensors and JSON only, tied to one config and its inputs.

Always holds: a checkpoint that exists restores weights, optimiser and stream position to the bit; one that was made
under another config, other inputs or other versions is refused, not adapted. Not here: a finished model folder.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hat_components.model.artifact import disk_errors, new_folder
from hat_components.step import InputError, StepError
from hat_harness.errors import Kind

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from hat_components.model.muon import MuonAdamW

_NAME = re.compile(r"^checkpoint-(\d{8})$")


class ResumeError(StepError):
    """A checkpoint belongs to another run."""

    kind: Kind = "conflict"


class Checkpoints:
    """The checkpoints of one run below `folder`; only the newest is kept."""

    def __init__(self, folder: Path, identity: str) -> None:
        """`identity` is the digest of what must be equal for a resume: config, input digests, versions, threads."""
        self._folder = folder
        self._identity = identity

    def save(self, state: Mapping[str, Any], model: PreTrainedModel, optimizer: MuonAdamW) -> Path:
        """Write a checkpoint for `state["steps"]` and remove older ones."""
        from safetensors.torch import save

        final = self._folder / f"checkpoint-{int(state['steps']):08d}"
        weights = {name: tensor.detach() for name, tensor in model.named_parameters()}
        with disk_errors(final), new_folder(final) as draft:
            (draft / "weights.safetensors").write_bytes(save(weights))
            (draft / "optimizer.safetensors").write_bytes(save(optimizer.tensors()))
            (draft / "state.json").write_text(json.dumps({"identity": self._identity, **state}), encoding="utf-8")
        for step, path in self._all():
            if step < int(state["steps"]):
                shutil.rmtree(path)
        return final

    def load(self, model: PreTrainedModel, optimizer: MuonAdamW) -> dict[str, Any] | None:
        """Restore the newest checkpoint in place and return its state; None where there is none."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        found = self._all()
        if not found:
            return None
        folder = found[-1][1]
        try:
            state: dict[str, Any] = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            weights = load_file(folder / "weights.safetensors")
            moments = load_file(folder / "optimizer.safetensors")
        except (OSError, ValueError, SafetensorError) as error:
            raise InputError(f"the checkpoint is broken: {error}", place=str(folder), cure="remove it") from error
        if state.pop("identity") != self._identity:
            cure = "give a new output folder, or run with the config, inputs, versions and threads that it began with"
            raise ResumeError("the checkpoint belongs to a run with another config", place=str(folder), cure=cure)
        for name, parameter in model.named_parameters():
            parameter.data.copy_(weights[name])
        optimizer.load_tensors(moments)
        return state

    def clear(self) -> None:
        """Remove all checkpoints; the finished model stands."""
        for _, path in self._all():
            shutil.rmtree(path)

    def _all(self) -> list[tuple[int, Path]]:
        if not self._folder.is_dir():
            return []
        found = [(_NAME.match(path.name), path) for path in self._folder.iterdir()]
        return sorted((int(match.group(1)), path) for match, path in found if match)
