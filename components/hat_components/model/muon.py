"""Muon for the matrices and AdamW for the rest, as one optimiser that any trainer can hold.

Muon orthogonalises the momentum of a matrix (Jordan 2024; scaled to AdamW's RMS as in arXiv 2502.16982), which is what
lets a model of this size find copying within minutes. Always holds: one `param_groups` list, so that a scheduler or
a trainer sees one optimiser; its state is a flat mapping of names to tensors. Not here: schedules (train).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, overload

import torch


class MuonAdamW(torch.optim.Optimizer):
    """`torch.optim.Muon` on the 2-D weights that are no embedding, `torch.optim.AdamW` on everything else.

    Parameters that do not require a gradient are left out, as is a head that is tied to a frozen embedding.
    """

    def __init__(
        self,
        named_parameters: Iterable[tuple[str, torch.nn.Parameter]],
        lr: float,
        weight_decay: float = 0.05,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.98),
        muon: bool = True,
    ) -> None:
        """`weight_decay` is for the matrices; `momentum` is Muon's, `betas` are AdamW's. Without `muon`, all AdamW."""
        trained = [(name, parameter) for name, parameter in named_parameters if parameter.requires_grad]
        self._names = {parameter: name for name, parameter in trained}
        matrices = [parameter for name, parameter in trained if is_matrix(name, parameter)]
        rest = [parameter for name, parameter in trained if not is_matrix(name, parameter)]
        self._parts: list[torch.optim.Optimizer] = []
        if matrices:
            decayed: torch.optim.Optimizer
            if muon:
                decayed = torch.optim.Muon(
                    matrices, lr=lr, weight_decay=weight_decay, momentum=momentum, adjust_lr_fn="match_rms_adamw"
                )
            else:
                decayed = torch.optim.AdamW(matrices, lr=lr, betas=betas, weight_decay=weight_decay, fused=True)
            self._parts.append(decayed)
        if rest:
            self._parts.append(torch.optim.AdamW(rest, lr=lr, betas=betas, weight_decay=0.0, fused=True))
        super().__init__([group for part in self._parts for group in part.param_groups], {"lr": lr})
        self._link()

    def _link(self) -> None:
        """Let this optimiser and its parts hold the very same groups and state."""
        self.param_groups = [group for part in self._parts for group in part.param_groups]
        self.state.clear()
        for part in self._parts:
            self.state.update(part.state)

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step of both parts."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self._parts:
            part.step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of both parts."""
        for part in self._parts:
            part.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """The parts' own state dicts, in order."""
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Inverse of `state_dict`."""
        for part, state in zip(self._parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._link()

    def tensors(self) -> dict[str, torch.Tensor]:
        """The state as `parameter name/state name` → tensor, for safetensors."""
        return {
            f"{self._names[parameter]}/{key}": torch.as_tensor(value).contiguous()
            for part in self._parts
            for group in part.param_groups
            for parameter in group["params"]
            for key, value in part.state[parameter].items()
        }

    def load_tensors(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Inverse of `tensors`; the parameters must be the same."""
        for part in self._parts:
            for group in part.param_groups:
                for parameter in group["params"]:
                    prefix = self._names[parameter] + "/"
                    found = {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}
                    if found:
                        device = parameter.device
                        part.state[parameter] = {key: t.to(device, copy=True) for key, t in found.items()}
        self._link()


def is_matrix(name: str, parameter: torch.nn.Parameter) -> bool:
    """Whether Muon trains it: a 2-D weight between hidden units, neither embedding nor head."""
    return parameter.ndim == 2 and "embed" not in name and "lm_head" not in name
