"""The rl step: a model plays sessions under sampled harness states and learns from how they compare.

GRPO with GDPO's normalisation (arXiv 2402.03300, 2601.05242). Always holds: rollouts come from the same Session that
serves; what was sampled, token for token, is what is trained; one config and its inputs give one model (same machine,
threads, versions), also after a kill; the artifact appears whole. Inputs: `start` (a model folder) and `harness`.
Not here: rollouts by a served engine; this step samples with the model in process, on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hat_components.data import digest_path, require_path
from hat_components.model.course import Pace, checkpoints_of, finish
from hat_components.model.folder import load_folder, threads
from hat_components.model.stages import Identity, earlier
from hat_components.rl.config import Config
from hat_components.rl.course import Course
from hat_components.rl.rollouts import Player
from hat_components.step import Progress, StepResult


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Optimise and write the artifact `model`."""
    given = {name: digest_path(require_path(inputs, name)) for name in ("start", "harness")}
    identity = Identity("rl", config, given)
    with threads(config.threads):
        if config.large:
            from hat_components.large.rl import train

            return train(config, config.large, inputs, identity, out, progress)
        done = earlier(out, identity, progress)
        if done is not None:
            return done
        loaded = load_folder(inputs["start"])
        if config.freeze_embedding:
            loaded.model.get_input_embeddings().weight.requires_grad_(False)
        player = Player(config, Path(inputs["harness"]), loaded.codec, loaded.model)
        checkpoints = checkpoints_of(out, identity, Pace.of(config))
        course = Course(loaded.model, player, config, progress, checkpoints, loaded.codec.tokenizer)
        _train(course)
        course.score_end()
        return finish(course, loaded, identity, out, progress, config.dtype)


def _train(course: Course) -> None:
    if course.config.trainer == "trl":
        from hat_components.rl.trl_loop import run_trl

        run_trl(course)
    else:
        from hat_components.rl.plain import run_plain

        run_plain(course)
