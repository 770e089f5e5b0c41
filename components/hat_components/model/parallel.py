"""Several processes that train one model: each takes its rows of every batch, gradients are summed.

Always holds: all processes draw the same batch from the same stream, so N processes do what one does with the whole
batch, up to the order of float sums; a step's loss is the mean over the supervised tokens of the whole batch. Processes
find each other by the variables that torchrun and Kubeflow Trainer set. Not here: starting them (hat_pipelines).
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

if TYPE_CHECKING:
    from hat_components.model.muon import MuonAdamW


@dataclass(frozen=True, slots=True)
class Group:
    """This process among its peers; one alone is rank 0 of 1."""

    rank: int = 0
    size: int = 1

    def share(self, ids: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows of a batch [B, T] that are this process's: every `size`-th, which may be none."""
        return ids[self.rank :: self.size], labels[self.rank :: self.size]

    def as_first(
        self, state: dict[str, Any] | None, model: torch.nn.Module, optimizer: MuonAdamW
    ) -> dict[str, Any] | None:
        """What the first process restored from its checkpoint, for all: state, weights and moments."""
        if self.size == 1:
            return state
        box: list[Any] = [(state, {} if state is None else optimizer.tensors())]
        distributed.broadcast_object_list(box, src=0)
        found, moments = box[0]
        if found is not None:
            for parameter in model.parameters():
                distributed.broadcast(parameter.data, src=0)
            if self.rank:
                optimizer.load_tensors(moments)
        return dict(found) if found is not None else None

    def total(self, value: torch.Tensor) -> torch.Tensor:
        """The sum of a number over all processes."""
        if self.size > 1:
            value = value.detach().clone()
            distributed.all_reduce(value)
        return value

    def add_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sum gradients over all processes, in place; a parameter without one counts as nought."""
        if self.size == 1:
            return
        given = list(parameters)
        for parameter in given:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        flat = torch.cat([parameter.grad.flatten() for parameter in given if parameter.grad is not None])
        distributed.all_reduce(flat)
        begin = 0
        for parameter in given:
            assert parameter.grad is not None
            parameter.grad.copy_(flat[begin : begin + parameter.numel()].view_as(parameter))
            begin += parameter.numel()


def join() -> Group:
    """The group of this process, joined at the first call: NCCL between GPUs, gloo elsewhere."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return Group()
    if not distributed.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        atexit.register(distributed.destroy_process_group)
    return Group(distributed.get_rank(), size)
