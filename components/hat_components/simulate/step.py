"""The simulate step: one dataset of items for each set, disjoint by content.

Always holds: the same config gives the same bytes, unless it asks for fresh items; no two sets share an item by
content, nor does a set hold one twice (test is drawn first, so that a bigger training set never changes the test set).
Not here: trajectories (augment).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hat_components.data import Dataset, DatasetWriter, Purpose, digest_item
from hat_components.scenarios import load
from hat_components.simulate.config import Config
from hat_components.step import InputError, Progress, StepResult
from hat_scenarios.base import Item, Scenario, ScenarioError, Split

ORDER: tuple[Split, ...] = ("test", "dev", "calibration", "evolve", "train")
PURPOSES: Mapping[Split, Purpose] = {
    "train": "training",
    "dev": "evaluation",
    "test": "evaluation",
    "calibration": "calibration",
    "evolve": "evolution",
}
_PATIENCE = 20
"""Draws per wanted item after which a scenario counts as too small."""


def run(config: Config, inputs: Mapping[str, Path], out: Path, progress: Progress) -> StepResult:
    """Draw every set with a count above 0 into `items_<set>`."""
    if config.fresh:
        config = config.model_copy(update={"seed": int(time.time() // 60)})
    seen: set[str] = set()
    manifests: dict[str, Dataset] = {}
    intents: dict[str, dict[str, int]] = {}
    wanted: dict[Split, int] = {split: getattr(config, split) for split in ORDER}
    total = sum(wanted.values())
    for split in ORDER:
        if not wanted[split]:
            continue
        settings = config.train_settings if split == "train" else config.settings
        scenario = load(config.scenario, settings)
        name = f"items_{split}"
        mix: Counter[str] = Counter()
        with DatasetWriter(out / name, kind="items", splits=[split]) as writer:
            for item in _distinct(scenario, config, split, wanted[split], seen):
                writer.write(split, item)
                mix.update(turn.intent for turn in item.turns)
            facts: dict[str, Any] = {"scenario": config.scenario, "settings": settings, "turns": config.turns}
            manifests[name] = writer.finish(
                name=f"{config.scenario.replace('_', '-')}-{split}",
                purpose=PURPOSES[split],
                seed=config.seed,
                facts={**facts, "intents": dict(sorted(mix.items()))},
            )
        intents[split] = dict(mix.most_common())
        progress.artifact(name, out / name)
        progress.progress(sum(manifest.count for manifest in manifests.values()), total, split)
    return StepResult(
        artifacts={name: name for name in manifests},
        digests={name: manifest.digest for name, manifest in manifests.items()},
        metrics={name: float(manifest.count) for name, manifest in manifests.items()},
        notes={"scenario": config.scenario, "intents": intents, "seed": config.seed},
    )


def _distinct(scenario: Scenario, config: Config, split: Split, count: int, seen: set[str]) -> Iterator[Item]:
    """`count` items whose content is in no set drawn before; adds them to `seen`."""
    try:
        drawn = scenario.items(config.seed, split, count * _PATIENCE, config.turns)
        found = 0
        for item in drawn:
            digest = digest_item(item)
            if digest in seen:
                continue
            seen.add(digest)
            found += 1
            yield item
            if found == count:
                return
    except ScenarioError as error:
        raise InputError(error.message, place=error.place or config.scenario, cure=error.cure) from error
    raise InputError(
        f"the scenario has only {found} distinct items for {split}, {count} are asked for",
        place=config.scenario,
        cure="ask for fewer items or more turns",
    )
