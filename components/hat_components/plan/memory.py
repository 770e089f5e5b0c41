"""Memory of each stage on one GPU, by component, and whether it fits.

What is counted, n the GPUs that share the state (FSDP2 full shard, mixed precision as accelerate sets it; 1 in stage mtp,
which is not sharded):

    weights     full: 4 bytes a parameter / n (the copy that the optimiser moves)   LoRA: 2 bytes / n, adapters 4 / n
    gradients   4 bytes a trained parameter / n
    optimiser   8 bytes a trained parameter / n (Adam's two moments)
    gathered    two layers and the embedding in 16 bits, where n > 1; else the 16-bit copies of what is trained
    activations the input of each layer, and one layer computed again (without checkpointing: every layer)
    logits      a chunk in 32 bits, three times: logits, log-softmax, gradient
    teacher     2 bytes a parameter / n: of opd; of rl (for a KL term) when everything is trained, under LoRA it is the model
                without its adapters
    rollouts    key, value and linear state of the sessions that are sampled side by side
    reserve     1 GiB of CUDA context and libraries, and 5 % of the sum for fragmentation

Weights, gradients, optimiser, teacher and rollouts equal what torch allocates for small models of the classes (tested);
activations and logits are estimates, and no GPU has been measured. Not here: time, other parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from hat_components.plan.config import TrainPlan
from hat_components.plan.shape import Shape

GIB: Final = 2.0**30
Stage = Literal["sft", "opd", "rl", "mtp"]
STAGES: Final[tuple[Stage, ...]] = ("sft", "opd", "rl", "mtp")


@dataclass(frozen=True)
class Need:
    """One stage on one GPU."""

    stage: Stage
    parts: dict[str, float]
    """Component → GiB."""
    limit: float
    """GiB that the GPU has."""

    @property
    def total(self) -> float:
        """GiB in all."""
        return sum(self.parts.values())

    @property
    def fits(self) -> bool:
        """Whether it stays within the GPU."""
        return self.total <= self.limit


def needs(plan: TrainPlan, shape: Shape) -> tuple[Need, ...]:
    """Every stage's memory."""
    return tuple(Need(stage, _parts(plan, shape, stage), plan.gpu.memory_gib) for stage in STAGES)


def _parts(plan: TrainPlan, shape: Shape, stage: Stage) -> dict[str, float]:
    gpus, batch = 1 if stage == "mtp" else plan.gpu.count, plan.batch
    full = plan.method.kind == "full" and stage != "mtp"
    # The draft head is one layer of the model and is trained whole; the model below it is frozen.
    trained = shape.total if full else shape.largest_layer if stage == "mtp" else shape.adapters
    frozen = 0 if full else shape.total
    tokens = batch.rows * batch.sequence
    kept = tokens * shape.hidden * 2 * shape.layers + tokens * shape.layer_bytes_per_token
    if not batch.checkpointing:
        kept = tokens * shape.layer_bytes_per_token * shape.layers
    sessions = plan.rollouts.sessions * (
        plan.rollouts.tokens * shape.kv_bytes_per_token + shape.state_bytes_per_session
    )
    found = {
        "weights": (4 * trained + 2 * frozen) / gpus,
        "gradients": 4 * trained / gpus,
        "optimiser": 8 * trained / gpus,
        "gathered": 2 * (2 * shape.largest_layer + shape.embedding) if gpus > 1 else 2 * trained if full else 0,
        "activations": kept,
        "logits": 3 * 4 * batch.rows * min(batch.sequence, batch.logits_chunk) * shape.vocab,
        "teacher": 2 * shape.total / gpus if stage == "opd" or (stage == "rl" and full) else 0,
        "rollouts": sessions if stage in ("rl", "opd") else 0,
    }
    found = {name: value / GIB for name, value in found.items()}
    return {**found, "reserve": 1.0 + 0.05 * sum(found.values())}


def least_gpus(plan: TrainPlan, shape: Shape, most: int = 1024) -> int | None:
    """The smallest power of two of GPUs on which every stage fits; None when even `most` do not help."""
    count = 1
    while count <= most:
        gpu = plan.gpu.model_copy(update={"count": count})
        if all(need.fits for need in needs(plan.model_copy(update={"gpu": gpu}), shape)):
            return count
        count *= 2
    return None


def advice(plan: TrainPlan, shape: Shape) -> str:
    """What to change where a stage does not fit."""
    wanted = least_gpus(plan, shape)
    worst = max((need for need in needs(plan, shape)), key=lambda need: need.total)
    part = max((name for name in worst.parts if name != "reserve"), key=worst.parts.__getitem__)
    change = {
        "activations": "a shorter sequence or checkpointing",
        "logits": "a smaller logits_chunk",
        "rollouts": "fewer sessions side by side",
    }.get(part, "method lora" if plan.method.kind == "full" else "more GPUs")
    more = f"{wanted} GPUs" if wanted else f"no number of GPUs is enough: {change}"
    return f"{more}; most of it is {part}: {change}" if wanted else more


def with_changes(plan: TrainPlan, *, gpus: int | None, method: str | None, sequence: int | None) -> TrainPlan:
    """The plan with what the command line changed."""
    update: dict[str, object] = {}
    if gpus is not None:
        update["gpu"] = plan.gpu.model_copy(update={"count": gpus})
    if method is not None:
        update["method"] = plan.method.model_copy(update={"kind": method})
    if sequence is not None:
        update["batch"] = plan.batch.model_copy(update={"sequence": sequence})
    return TrainPlan.model_validate(plan.model_copy(update=update).model_dump(by_alias=True))
