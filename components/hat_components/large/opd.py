"""Distillation of a given model: TRL's DistillationTrainer over our prompts or sessions, sampled with the model as it is.

Always holds: prompts, items and random numbers of step n follow from the seed and n alone; every process has its part
of the same rows. Not here: prompts and sessions (hat_components.opd).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trl import DistillationConfig, DistillationTrainer

from hat_components.large.load import load_large, trainable
from hat_components.large.run import Reporter, Watched, finish, newest, rank, run, steady, together, world
from hat_components.large.settings import Large
from hat_components.model.anymodel import AnyModel
from hat_components.model.codec import Codec
from hat_components.model.folder import Loaded, load_folder
from hat_components.model.stages import Identity
from hat_components.opd.config import Config
from hat_components.opd.prompts import Prompts, words_of
from hat_components.opd.sessions import Sessions
from hat_components.rl.rows import FlatRow
from hat_components.step import InputError, Progress

Draw = Callable[[int, Any], list[FlatRow]]
"""(step from 0, model) → the rows of that step, of all processes."""


class RowTrainer(Watched, DistillationTrainer):  # type: ignore[misc]  # TRL has no types
    """DistillationTrainer whose completions are ours. A prompt is the number of a row."""

    def __init__(self, draw: Draw, **given: Any) -> None:
        self._draw = draw
        super().__init__(**given)

    def _generate(self, prompts: Sequence[str]) -> Any:
        drawn = self._draw(self.state.global_step, self.accelerator.unwrap_model(self.model_wrapped))
        rows = share(drawn, prompts, self.state.global_step * len(drawn))
        for name, value in curves(drawn).items():
            self.reporter.tell(name, value, self.state.global_step + 1)
        masks = [list(row.mask) for row in rows]
        whole = all(all(mask) for mask in masks)
        return (
            [list(row.prompt) for row in rows],
            [list(row.completion) for row in rows],
            None if whole else masks,
            None,
            [],
        )


def share(drawn: Sequence[FlatRow], prompts: Sequence[str], first: int) -> Sequence[FlatRow]:
    """This process's part of a step's rows; TRL must have asked for just these numbers."""
    begin = rank() * len(prompts)
    if list(prompts) != [str(first + begin + i) for i in range(len(prompts))] or len(prompts) * world() != len(drawn):
        raise RuntimeError(f"TRL asks for the rows {list(prompts)[:4]}, the step has {first} to {first + len(drawn)}")
    return drawn[begin : begin + len(prompts)]


def curves(rows: Sequence[FlatRow]) -> dict[str, float]:
    """Tokens a row, and the sampled tokens' mean surprise."""
    count = max(1, sum(row.sampled() for row in rows))
    return {"tokens": count / len(rows), "entropy": -sum(sum(row.logprobs) for row in rows) / count}


@together
def train(
    config: Config, large: Large, inputs: Mapping[str, Path], identity: Identity, out: Path, progress: Progress
) -> None:
    """Distil `teacher` into `start` and write the artifact `model`."""
    from datasets import Dataset

    start = Path(inputs["start"])
    loaded, teacher = load_large(start, large), load_folder(Path(inputs["teacher"]), large.dtype)
    same_words(loaded.codec, teacher.codec, Path(inputs["teacher"]))
    reporter = Reporter("opd", identity, progress)
    folder = out / "checkpoints" / "opd"
    resumed = newest(folder, identity)
    trainer = RowTrainer(
        _draw(config, large, loaded, inputs),
        model=trainable(loaded.model, large, config.seed, config.freeze_embedding),
        teacher_model=teacher.model.eval().requires_grad_(False),
        args=_arguments(config, large, folder),
        train_dataset=Dataset.from_dict({"prompt": [str(number) for number in range(config.steps * config.batch)]}),
        processing_class=loaded.codec.tokenizer,
        callbacks=[reporter],
    )
    state = run(trainer, reporter, resumed)
    finish(trainer, state, reporter, identity, start, out, large, config.dtype)


def same_words(ours: Codec, theirs: Codec, place: Path) -> None:
    """Raise InputError where a token would mean another word, or a conversation would be written otherwise."""

    def spelled(codec: Codec) -> tuple[str, object]:
        backend: Any = codec.tokenizer.backend_tokenizer
        return backend.to_str(), codec.tokenizer.chat_template

    if spelled(ours) != spelled(theirs):
        raise InputError(
            "student and teacher have other vocabularies or chat templates: the same token would mean another word",
            place=str(place),
            cure="give the base that the student was trained from",
        )


def _draw(config: Config, large: Large, loaded: Loaded, inputs: Mapping[str, Path]) -> Draw:
    if config.play:
        sessions = Sessions(config, config.play, Path(inputs["harness"]), loaded.codec, loaded.model, AnyModel)
        return sessions.rows
    prompts = Prompts(config.prompts, loaded.codec, words_of(config, loaded.codec), config.seed)
    longest = int(loaded.model.config.max_position_embeddings) - config.reply_tokens
    policy = AnyModel(
        loaded.model, loaded.codec, temperature=config.temperature, seed=config.seed, rows=large.sampled_at_once
    )

    def written(step: int, model: Any) -> list[FlatRow]:
        policy.update(model)
        asked = prompts.of(step, config.batch, longest)
        drawn = policy.sample(asked, config.reply_tokens, key=f"opd/{step}")
        return [
            FlatRow(prompt, one.ids, (1,) * len(one.ids), one.logprobs)
            for prompt, one in zip(asked, drawn, strict=True)
        ]

    return written


def _arguments(config: Config, large: Large, folder: Path) -> DistillationConfig:
    common, _ = steady(config, large, folder, config.batch, "batch")
    return DistillationConfig(
        **common,
        shuffle_dataset=False,
        beta=config.divergence,
        temperature=config.temperature,
        max_completion_length=config.reply_tokens,
    )
