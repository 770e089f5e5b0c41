"""What SFT trains on: the arm's trajectories, from a dataset or drawn fresh, mixed with general data by tokens.

Always holds: shares count tokens; held-out words of the scenario never come up. Not here: loops (model, large).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hat_components.model.batches import Draw, FileRows, Source
from hat_components.model.codec import Codec
from hat_components.model.general import general_words, sources, words_in
from hat_components.model.rows import trajectory_rows
from hat_components.scenarios import load
from hat_components.sft.config import Config
from hat_components.sft.fresh import fresh_rows, read_spec
from hat_components.step import Progress


def parts_of(config: Config, inputs: Mapping[str, Path], codec: Codec, progress: Progress) -> list[Source]:
    """The mixture that is trained on: trajectories of the arm, and general data that must not be forgotten."""
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
