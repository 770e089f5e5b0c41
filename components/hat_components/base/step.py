"""The base step: a tokenizer and a model that copies, looks up and acts under harnesses it has never seen.

Always holds: one config gives one model (same machine, threads, versions); a killed run goes on from its last
checkpoint to the same weights; the artifact appears whole. Inputs: `init` (a model folder to go on from) and
`trajectories`, both optional. Not here: the scenario's task (sft).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hat_components.base.config import Config
from hat_components.base.corpus import corpus_texts, corpus_words, trajectory_texts
from hat_components.base.given import hand_over
from hat_components.base.shipped import hand_out
from hat_components.data import digest_path, require_path
from hat_components.model.batches import FileRows, Source, Stream
from hat_components.model.codec import Codec
from hat_components.model.folder import Loaded, load_folder, threads
from hat_components.model.general import general_words, sources
from hat_components.model.qwen import build_model
from hat_components.model.rows import trajectory_rows
from hat_components.model.stages import Identity, Stage, earlier, run_stages
from hat_components.model.tokenizer import train_tokenizer
from hat_components.scenarios import load
from hat_components.step import Progress, StepResult


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Train and write the artifact `model`."""
    if config.shipped:
        return hand_out(config.shipped, config.shipped_digest, out, progress)
    if config.folder:
        return hand_over(Path(config.folder), config.folder_digest, out, progress)
    given = {name: digest_path(require_path(inputs, name)) for name in ("init", "trajectories") if name in inputs}
    identity = Identity("base", config, given)
    with threads(config.threads):
        done = earlier(out, identity, progress)
        if done is not None:
            return done
        loaded = load_folder(inputs["init"]) if "init" in inputs else _fresh(config, inputs)
        stages = _stages(config, loaded.codec, inputs, fresh="init" not in inputs)
        return run_stages(loaded, stages, identity, out, progress, config.dtype)


def _fresh(config: Config, inputs: Mapping[str, Path]) -> Loaded:
    scenario = load(config.scenario, config.scenario_settings) if config.scenario else None
    spoken = trajectory_texts(inputs, "trajectories", config.corpus_items) if "trajectories" in inputs else []
    words = corpus_words(scenario, config.seed, spoken)
    texts = corpus_texts(scenario, config.seed, config.corpus_items, words)
    tokenizer = train_tokenizer([*texts, *spoken], words, config.tokenizer)
    return Loaded(build_model(config.model, tokenizer, config.seed), Codec(tokenizer), "")


def _stages(config: Config, codec: Codec, inputs: Mapping[str, Path], fresh: bool) -> list[Stage]:
    words = general_words(codec)
    mixed = sources(config.shares, codec, words)
    if "trajectories" in inputs and config.trajectory_share:
        rows = FileRows(trajectory_rows(inputs, "trajectories", codec).rows, config.seed)
        whole = sum(source.share for source in mixed)
        share = whole * config.trajectory_share / (1 - config.trajectory_share)
        mixed.append(Source("trajectories", share, rows))

    def stream(name: str, parts: list[Source], batch_tokens: int) -> Stream:
        return Stream(
            parts, batch_tokens, f"{config.seed}/{name}", config.max_length, int(codec.tokenizer.pad_token_id)
        )

    def copying() -> Stream:
        return stream("copying", sources({"copy": 1.0}, codec, words), config.copying.batch_tokens)

    def lookup() -> Stream:
        return stream("lookup", sources({"lookup": 0.8, "copy": 0.2}, codec, words), config.lookup.batch_tokens)

    last = Stage("mixed", config.mixed, lambda: stream("mixed", mixed, config.mixed.batch_tokens))
    first = [Stage("copying", config.copying, copying), Stage("lookup", config.lookup, lookup)]
    return [*first, last] if fresh else [last]
