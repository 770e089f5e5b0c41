"""The rl step: a model plays sessions under sampled harness states and learns from how they compare.

GRPO with GDPO's normalisation (arXiv 2402.03300, 2601.05242). Always holds: rollouts come from the same Session that
serves; what was sampled, token for token, is what is trained; one config and its inputs give one model (same machine,
threads, versions), also after a kill; the artifact appears whole. Inputs: `start` (a model folder) and `harness`.
Not here: rollouts by a served engine; this step samples with the model in process, on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hat_components.data import digest_path, require_path
from hat_components.model.checkpoint import Checkpoints
from hat_components.model.folder import load_folder, save_folder, threads
from hat_components.model.stages import MODEL, Identity, earlier
from hat_components.model.train import TrainingError
from hat_components.rl.config import Config
from hat_components.rl.course import Course
from hat_components.rl.rollouts import Player
from hat_components.step import Progress, StepResult


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Optimise and write the artifact `model`."""
    given = {name: digest_path(require_path(inputs, name)) for name in ("start", "harness")}
    identity = Identity("rl", config, given)
    with threads(config.threads):
        done = earlier(out, identity, progress)
        if done is not None:
            return done
        loaded = load_folder(inputs["start"])
        if config.freeze_embedding:
            loaded.model.get_input_embeddings().weight.requires_grad_(False)
        checkpoints = Checkpoints(out / "checkpoints" / "rl", identity.digest()) if config.checkpoint_every else None
        player = Player(config, Path(inputs["harness"]), loaded.codec, loaded.model)
        course = Course(loaded.model, player, config, progress, checkpoints, loaded.codec.tokenizer)
        _train(course)
        training = _training(course, identity)
        save_folder(out / MODEL, loaded.model, loaded.codec, training, config.dtype)
        if checkpoints:
            checkpoints.clear()
    result = earlier(out, identity, progress)
    assert result is not None
    return result


def _train(course: Course) -> None:
    if course.config.trainer == "trl":
        from hat_components.rl.trl_loop import run_trl

        run_trl(course)
    else:
        from hat_components.rl.plain import run_plain

        run_plain(course)
    course.model.eval()
    for name, parameter in course.model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise TrainingError(f"the weight {name} is not finite after training", place="rl")


def _training(course: Course, identity: Identity) -> dict[str, Any]:
    facts = {name: round(value, 6) for name, value in course.means().items()}
    return {
        **identity.record(),
        "identity": identity.digest(),
        "parameters": sum(parameter.numel() for parameter in course.model.parameters()),
        "stages": {"rl": {"steps": course.steps, **facts}},
    }
