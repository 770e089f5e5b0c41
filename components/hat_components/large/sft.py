"""SFT of a given model: TRL's SFTTrainer over the stream of the sft step, packed or padded.

Always holds: the loss is the mean over the supervised tokens of a step, however it is cut into sequences and processes.
Not here: rows and mixture (hat_components.sft, model.batches).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from trl import SFTConfig, SFTTrainer

from hat_components.large.load import load_large, trainable
from hat_components.large.packing import PackedStream, Sequences, can_pack
from hat_components.large.run import Reporter, Watched, arguments, finish, newest, run, together, world
from hat_components.large.settings import Large
from hat_components.model.batches import Stream
from hat_components.model.stages import Identity
from hat_components.sft.config import Config
from hat_components.sft.parts import parts_of
from hat_components.step import InputError, Progress


class StreamTrainer(Watched, SFTTrainer):  # type: ignore[misc]  # TRL has no types
    """SFTTrainer whose data loader is a stream that knows where it stands."""

    def __init__(self, sequences: Sequences, **given: Any) -> None:
        self._sequences = sequences
        super().__init__(**given)

    def get_train_dataloader(self) -> torch.utils.data.DataLoader[dict[str, Any]]:
        """Whole batches as they come; no prefetching, so that the stream stands where training stands."""
        return torch.utils.data.DataLoader(self._sequences, batch_size=None)


@together
def train(
    config: Config, large: Large, inputs: Mapping[str, Path], identity: Identity, out: Path, progress: Progress
) -> None:
    """Train `base` and write the artifact `model`."""
    from datasets import Dataset

    start = Path(inputs["base"])
    loaded = load_large(start, large)
    sources = parts_of(config, inputs, loaded.codec, progress)
    pad = loaded.codec.tokenizer.pad_token_id
    packs = large.packing and can_pack(loaded.model.config)
    if large.packing and not packs:
        progress.warning("rows are padded, not packed: linear attention needs fla and causal_conv1d on a GPU to pack")
    stream = (PackedStream if packs else Stream)(
        sources,
        config.max_length * (1 if packs else large.rows),
        f"{config.seed}/sft",
        config.max_length,
        loaded.codec.eos if pad is None else int(pad),
    )
    linear = "linear_attention" in (getattr(loaded.model.config, "layer_types", None) or ())
    sequences = Sequences(stream, linear)
    reporter = Reporter("sft", identity, progress, lambda: sequences.position)
    folder = out / "checkpoints" / "sft"
    resumed = newest(folder, identity)
    if resumed is not None:
        stream.restore(resumed[1]["position"])
    trainer = StreamTrainer(
        sequences,
        model=trainable(loaded.model, large, config.seed, config.freeze_embedding),
        args=_arguments(config, large, folder, bool(getattr(loaded.model.config, "num_experts", 0)), packs),
        train_dataset=Dataset.from_dict({"input_ids": [[0]], "labels": [[0]]}),
        processing_class=loaded.codec.tokenizer,
        callbacks=[reporter],
    )
    state = run(trainer, reporter, resumed)
    if stream.cut:
        progress.warning(f"{stream.cut} rows were cut off at {config.max_length} tokens")
    finish(trainer, state, reporter, identity, start, out, large, config.dtype)


def _arguments(config: Config, large: Large, folder: Path, experts: bool, packs: bool) -> SFTConfig:
    fit = config.fit
    held = config.max_length * (1 if packs else large.rows) * world()
    if fit.batch_tokens % held:
        raise InputError(
            f"a step of {fit.batch_tokens} tokens is no multiple of the {held} that {world()} processes hold at a time",
            place="fit.batch_tokens",
            cure="give a multiple",
        )
    common = arguments(
        large,
        folder,
        steps=-(-fit.tokens // fit.batch_tokens),
        rows=1,  # a batch comes whole from the stream
        passes=fit.batch_tokens // held,
        learning_rate=fit.learning_rate,
        schedule=fit.schedule,
        warmup=fit.warmup_steps,
        decay=fit.weight_decay,
        clip=fit.clip,
        every=fit.checkpoint_every,
        seed=config.seed,
    )
    return SFTConfig(
        **common,
        ignore_data_skip=True,  # the stream stands where the checkpoint says
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
        router_aux_loss_coef=large.router_loss if experts else None,
    )
