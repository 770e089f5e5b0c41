"""The sft step: supervised training of a base model on the trajectories of one arm.

Always holds: exactly the tokens that the agent writes are supervised; one config and its inputs give one model (same
machine, threads, versions), also after a kill; the artifact appears whole. A config with a section `large` trains a given
model (hat_components.large). Inputs: `base` (a model folder) and either
`trajectories` (a dataset, tagged for training) or `stream` and `harness` (fresh draws). Not here: how trajectories are
made (augment, collect).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hat_components.data import digest_path, require_path
from hat_components.model.batches import Stream
from hat_components.model.folder import load_folder, threads
from hat_components.model.stages import Identity, Stage, earlier, run_stages
from hat_components.sft.config import Config
from hat_components.sft.parts import parts_of
from hat_components.step import Progress, StepResult


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Train and write the artifact `model`."""
    names = ("base", "stream", "harness") if "stream" in inputs else ("base", "trajectories")
    given = {name: digest_path(require_path(inputs, name)) for name in names}
    identity = Identity("sft", config, given)
    with threads(config.threads):
        if config.large:
            from hat_components.large.sft import train

            return train(config, config.large, inputs, identity, out, progress)
        done = earlier(out, identity, progress)
        if done is not None:
            return done
        loaded = load_folder(inputs["base"])
        if config.freeze_embedding:
            loaded.model.get_input_embeddings().weight.requires_grad_(False)
        parts = parts_of(config, inputs, loaded.codec, progress)
        pad = int(loaded.codec.tokenizer.pad_token_id)
        stream = Stream(parts, config.fit.batch_tokens, f"{config.seed}/sft", config.max_length, pad)
        result = run_stages(loaded, [Stage("sft", config.fit, lambda: stream)], identity, out, progress, config.dtype)
    if stream.cut:
        progress.warning(f"{stream.cut} rows were cut off at {config.max_length} tokens")
    return result
