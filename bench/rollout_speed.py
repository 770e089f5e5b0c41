"""Rollouts of the micro model per second, and its sampler against transformers' `generate` on the same prompts.

Run: `python bench/rollout_speed.py MODEL_FOLDER HARNESS_FOLDER [items] [float32|bfloat16]`. A rollout is one comment
answered, about three model calls. Prints rollouts per CPU second and the interleaved ratio to `generate`; exits 1 when
that ratio is below 1.2 (one call; over the turns of a session kept caches add to it).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from hat_components.model.generate import MicroModel
from hat_components.model.qwen import load_model
from hat_components.scenarios import load
from hat_components.sessions import States, play_scored, read_harness
from hat_harness.augment import suite_plan
from hat_harness.render import render_system

LEAST = 1.2
NEW = 24


def rollouts(model: MicroModel, harness_folder: Path, count: int) -> float:
    """Comments per CPU second over `count` items of three comments under fresh states."""
    scenario = load("live_commerce")
    states = States(scenario, read_harness(harness_folder), suite_plan("T2"), 5)
    cases = [(item, states.of(item)) for item in scenario.items(5, "dev", count)]
    began = time.process_time()
    turns = sum(len(played.scores) for played in play_scored(scenario, cases, model))
    return turns / (time.process_time() - began)


def prompts(model: MicroModel, harness_folder: Path, count: int) -> list[list[int]]:
    """First prompts of `count` items."""
    scenario = load("live_commerce")
    states = States(scenario, read_harness(harness_folder), suite_plan("T2"), 6)
    found = []
    for item in scenario.items(6, "dev", count):
        system = render_system(states.of(item).harness, scenario.room_view(item))
        user = " ".join(item.turns[0].texts) or "hello"
        found.append(
            model.codec.encode_prefix([{"role": "system", "content": system}, {"role": "user", "content": user}])
        )
    return found


def generate(model: torch.nn.Module, drawn: Sequence[Sequence[int]], pad: int, eos: int) -> float:
    """Seconds of transformers' greedy generate on one left-padded batch."""
    width = max(map(len, drawn))
    ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in drawn])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in drawn])
    began = time.perf_counter()
    with torch.no_grad():
        model.generate(  # type: ignore[operator]  # transformers adds it
            input_ids=ids, attention_mask=mask, max_new_tokens=NEW, do_sample=False, eos_token_id=eos, pad_token_id=pad
        )
    return time.perf_counter() - began


def main() -> int:
    """Run and compare."""
    folder, harness = Path(sys.argv[1]), Path(sys.argv[2])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 40
    precision = "bfloat16" if "bfloat16" in sys.argv else "float32"
    micro = MicroModel.from_folder(folder, precision=precision)
    reference = load_model(folder).eval()
    print(f"{rollouts(micro, harness, count):.1f} rollouts per CPU second ({precision})")
    drawn = prompts(micro, harness, 32)
    ratios = []
    for _ in range(3):
        began = time.perf_counter()
        micro.sample(drawn, NEW)
        own = time.perf_counter() - began
        ratios.append(generate(reference, drawn, int(micro.codec.tokenizer.pad_token_id), micro.codec.eos) / own)
    ratio = statistics.median(ratios)
    print(f"{ratio:.1f} times as fast as transformers' generate")
    return int(ratio < LEAST)


if __name__ == "__main__":
    sys.exit(main())
