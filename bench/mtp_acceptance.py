"""What the dev engine accepts of a fitted draft head on held-out sessions of its model, by every rule that there is.

The model plays held-out sessions (other items and harness states than the head was fitted on), greedily; each of its calls
is then asked again: plain, with drafts that are verified exactly (greedy, and sampled at temperature 1), and sampled with
lossy thresholds. Prints one JSON line a rule: accept length of 1 + drafts, both definitions of the rate, and in how many
calls the tokens are those without drafts; beside it what the step mtp counts on the same sessions. Exits 1 when greedy
drafting changes a token, or the length is below `--least`.
Run: python -m bench mtp_acceptance -- --model FOLDER [--seed 1] [--sessions 40] [--states original] [--least 2.5]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bench.engine_mtp import options
from hat_components.model.folder import load_folder
from hat_components.mtp.acceptance import spans_of
from hat_components.mtp.config import Config
from hat_components.mtp.fit import measure
from hat_components.mtp.head import DraftHead
from hat_components.mtp.step import play
from hat_components.mtp.tensors import check_head, read_head
from hat_serving.engine.engine import Engine
from hat_serving.engine.sampling import SamplingParams

HARNESS = Path(__file__).resolve().parents[1] / "harness-registry" / "harnesses" / "live-commerce"
CALL_TOKENS = 96
RULES = {"sampled, exact": (1.0, 1.0), "sampled, thresholds 0.5 and 0.7": (0.5, 0.7)}
"""Rule → SGLang's `speculative_accept_threshold_single` and `_acc`; the second are those that were published."""


def asked(
    model: Path,
    prompts: Sequence[list[int]],
    draft: int,
    temperature: float,
    seed: int,
    thresholds: tuple[float, float] = (1.0, 1.0),
) -> list[Any]:
    """The finished requests."""
    names = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
    chosen = options(model, draft).model_copy(update=dict(zip(names, thresholds, strict=True)))
    params = SamplingParams(max_new_tokens=CALL_TOKENS, temperature=temperature, sampling_seed=seed)
    with Engine(chosen) as engine:
        return engine.complete(prompts, params)


def told(rule: str, plain: Sequence[Any], drafted: Sequence[Any], draft: int) -> dict[str, Any]:
    """One line."""
    stats = [request.stats for request in drafted if request.stats and request.stats.verified]
    verified, emitted = sum(one.verified for one in stats), sum(one.emitted for one in stats)
    equal = sum(one.tokens == other.tokens for one, other in zip(plain, drafted, strict=True))
    return {
        "rule": rule,
        "accept_length": round(emitted / verified, 3),
        "sglang_accept_rate": round(sum(one.correct for one in stats) / (verified * draft), 3),
        "length_over_draft_tokens": round(emitted / verified / (draft + 1), 3),
        "calls_with_equal_tokens": f"{equal} of {len(plain)}",
    }


def main() -> int:
    """Play, ask by every rule, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="a model folder with a draft head")
    parser.add_argument("--seed", type=int, default=1, help="that the head was fitted with")
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--states", choices=("augmented", "original"), default="augmented", help="of the harness")
    parser.add_argument("--draft", type=int, default=3)
    parser.add_argument("--least", type=float, default=2.5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    loaded = load_folder(given.model)
    policy = loaded.model.eval().requires_grad_(False)
    head, tensors = DraftHead(policy.config), read_head(given.model)
    check_head(tensors, head.shapes(), given.model)
    head.take(tensors)
    config = Config(seed=given.seed, states=given.states, call_tokens=CALL_TOKENS)
    inputs = {"start": given.model, "harness": HARNESS}
    rows = play(config, inputs, loaded.codec, policy, given.sessions, greedy=True)
    counted = measure(policy, head, rows, given.draft)
    print(json.dumps({"rule": "greedy, counted", "sessions": len(rows), **counted.metrics()}), flush=True)
    prompts = [list(row.ids[:first]) for row in rows for first, _ in spans_of(len(row.prompt), row.mask)]
    plain = asked(given.model, prompts, 0, 0.0, given.seed)
    greedy = told("greedy", plain, asked(given.model, prompts, given.draft, 0.0, given.seed), given.draft)
    print(json.dumps(greedy), flush=True)
    sampled = asked(given.model, prompts, 0, 1.0, given.seed)
    for rule, thresholds in RULES.items():
        found = asked(given.model, prompts, given.draft, 1.0, given.seed, thresholds)
        print(json.dumps(told(rule, sampled, found, given.draft)), flush=True)
    kept = greedy["calls_with_equal_tokens"] == f"{len(prompts)} of {len(prompts)}"
    return int(not kept or greedy["accept_length"] < given.least)


if __name__ == "__main__":
    sys.exit(main())
