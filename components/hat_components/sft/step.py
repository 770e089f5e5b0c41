"""The sft step: supervised training of a base model on the trajectories of one arm.

Always holds: exactly the tokens that the agent writes are supervised; one config and its inputs give one model (same
machine, threads, versions), also after a kill; the artifact appears whole. Inputs: `base` (a model folder) and either
`trajectories` (a dataset, tagged for training) or `stream` and `harness` (fresh draws). Not here: how trajectories are
made (augment, collect).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hat_components.data import digest_path, require_path
from hat_components.model.batches import Draw, FileRows, Source, Stream
from hat_components.model.codec import Codec
from hat_components.model.folder import load_folder, threads
from hat_components.model.general import general_words, sources, words_in
from hat_components.model.rows import trajectory_rows
from hat_components.model.stages import Identity, Stage, earlier, run_stages
from hat_components.scenarios import load
from hat_components.sft.config import Config
from hat_components.sft.fresh import fresh_rows, read_spec
from hat_components.step import Progress, StepResult


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Train and write the artifact `model`."""
    names = ("base", "stream", "harness") if "stream" in inputs else ("base", "trajectories")
    given = {name: digest_path(require_path(inputs, name)) for name in names}
    identity = Identity("sft", config, given)
    with threads(config.threads):
        done = earlier(out, identity, progress)
        if done is not None:
            return done
        loaded = load_folder(inputs["base"])
        if config.freeze_embedding:
            loaded.model.get_input_embeddings().weight.requires_grad_(False)
        parts = _parts(config, inputs, loaded.codec, progress)
        pad = int(loaded.codec.tokenizer.pad_token_id)
        stream = Stream(parts, config.fit.batch_tokens, f"{config.seed}/sft", config.max_length, pad)
        result = run_stages(loaded, [Stage("sft", config.fit, lambda: stream)], identity, out, progress, config.dtype)
    if stream.cut:
        progress.warning(f"{stream.cut} rows were cut off at {config.max_length} tokens")
    return result


def _parts(config: Config, inputs: Mapping[str, Path], codec: Codec, progress: Progress) -> list[Source]:
    drawn: FileRows | Draw
    if "stream" in inputs:
        drawn = fresh_rows(read_spec(inputs["stream"], config.arm), inputs["harness"], codec)
    else:
        found = trajectory_rows(inputs, "trajectories", codec, config.arm)
        if found.skipped:
            progress.warning(f"{found.skipped} trajectories have no assistant message and were left out")
        drawn = FileRows(found.rows, config.seed)
    parts = [Source("trajectories", 1 - config.replay_share, drawn)]
    if config.replay_share:
        words = general_words(codec, _held_out(config))
        whole = sum(config.replay.values()) or 1.0
        shares = {kind: config.replay_share * share / whole for kind, share in config.replay.items()}
        parts += sources(shares, codec, words)
    return parts


def _held_out(config: Config) -> set[str]:
    """Words of the scenario's held-out pool that are in no training draw."""
    if not config.scenario:
        return set()
    scenario = load(config.scenario, config.scenario_settings)
    return words_in(scenario.vocabulary(True)) - words_in(scenario.vocabulary(False))
