"""The opd step: a trained model is drawn back towards a teacher on general prompts that it answers itself, or in sessions.

Always holds: student and teacher have one vocabulary and one chat template, or the step refuses; one config and its
inputs give one model (same machine, threads, versions), also after a kill; the artifact appears whole. Inputs: `start`
(the student), `teacher` (its original base), unless the config names an endpoint, and `harness` where the student plays
sessions. Not here: rewards (rl).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hat_components.data import digest_path, require_path
from hat_components.model.codec import Codec
from hat_components.model.course import Pace, checkpoints_of, finish
from hat_components.model.folder import load_folder, threads
from hat_components.model.stages import Identity, earlier
from hat_components.model.tokenizer import tokenizer_digest
from hat_components.opd.config import Config
from hat_components.opd.course import Course, Teacher, run_plain
from hat_components.opd.prompts import Prompts, words_of
from hat_components.opd.sessions import Sessions
from hat_components.opd.teacher import ServedTeacher
from hat_components.step import InputError, Progress, StepResult

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Distil and write the artifact `model`."""
    names = ("start", *(() if config.endpoint else ("teacher",)), *(("harness",) if config.play else ()))
    if config.endpoint and "teacher" in inputs:
        raise InputError("both an endpoint and the input 'teacher' were given", place="inputs", cure="give one")
    identity = Identity("opd", config, {name: digest_path(require_path(inputs, name)) for name in names})
    with threads(config.threads):
        if config.large:
            from hat_components.large.opd import train

            return train(config, config.large, inputs, identity, out, progress)
        done = earlier(out, identity, progress)
        if done is not None:
            return done
        loaded = load_folder(inputs["start"])
        if config.freeze_embedding:
            loaded.model.get_input_embeddings().weight.requires_grad_(False)
        prompts: Prompts | Sessions
        if config.play:
            prompts = Sessions(config, config.play, Path(inputs["harness"]), loaded.codec, loaded.model)
        else:
            prompts = Prompts(config.prompts, loaded.codec, words_of(config, loaded.codec), config.seed)
        checkpoints = checkpoints_of(out, identity, Pace.of(config))
        with _teacher(config, inputs, loaded.codec) as teacher:
            course = Course(loaded.model, teacher, loaded.codec, prompts, config, progress, checkpoints)
            if config.trainer == "trl":
                from hat_components.opd.trl_loop import run_trl

                run_trl(course)
            else:
                run_plain(course)
        return finish(course, loaded, identity, out, progress, config.dtype)


@contextmanager
def _teacher(config: Config, inputs: Mapping[str, Path], codec: Codec) -> Iterator[PreTrainedModel | Teacher]:
    if config.endpoint:
        with ServedTeacher(config.endpoint) as served:
            served.check_vocabulary(codec)
            yield served
        return
    folder = Path(inputs["teacher"])
    if tokenizer_digest(folder) != tokenizer_digest(Path(inputs["start"])):
        raise InputError(
            "student and teacher have other vocabularies or chat templates: the same token would mean another word",
            place=str(folder),
            cure="give the base that the student was trained from",
        )
    yield load_folder(folder).model.eval().requires_grad_(False)
