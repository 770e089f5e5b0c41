"""What drafting with an MTP head gains the dev engine, at concurrency 1, 2, 4 and 8, and what bounds it.

The head is trained here, for some minutes, on what the model itself writes to live-room prompts (or given with the
model); other prompts are measured, plain and speculative interleaved in one process, no HTTP between. Prints one JSON line
a concurrency with both definitions of acceptance, and one with what a pass costs; exits 1 when C = 1 gains less than 1.3.
Run: python bench/engine_mtp.py [--model FOLDER] [--steps 250] [--draft 3] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from bench.engine_speed import MODEL, conversations
from hat_serving.engine.engine import Engine
from hat_serving.engine.folder import read_folder
from hat_serving.engine.options import EngineOptions
from hat_serving.engine.sampling import SamplingParams
from tests.engine.models import fit_head

TOKENS = 64
LEAST = 1.3


def options(model: Path, draft: int) -> EngineOptions:
    """Plain for 0 drafts."""
    spec: dict[str, Any] = {"model_path": model, "dtype": "float32", "cache_tokens": 400_000}
    if draft:
        spec |= {
            "speculative_algorithm": "NEXTN",
            "speculative_num_steps": draft,
            "speculative_num_draft_tokens": draft + 1,
        }
    return EngineOptions.model_validate(spec)


def encoded(engine: Engine, messages: list[list[dict[str, str]]]) -> list[list[int]]:
    """Prompts as the chat route encodes them."""
    text = engine.model.text
    return [text.encode(text.render(one, None, {}), add_special_tokens=False) for one in messages]


def with_head(model: Path, folder: Path, steps: int) -> Path:
    """The model with a head: its own, or one trained on what it writes."""
    shutil.copytree(model, folder)
    if read_folder(model).has_mtp:
        return folder
    params = SamplingParams(max_new_tokens=TOKENS, temperature=0.0)
    with Engine(options(model, 0)) as engine:
        prompts = encoded(engine, conversations(200, seed=7, drawn=True))
        written = engine.complete(prompts, params)
    rows = [(prompt + request.tokens, len(prompt)) for prompt, request in zip(prompts, written, strict=True)]
    began = time.perf_counter()
    fit_head(folder, rows, steps=steps)
    print(f"head trained on {len(rows)} answers in {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return folder


def timed(engine: Engine, prompts: list[list[int]], clients: int) -> tuple[float, float, int]:
    """(wall seconds, CPU seconds, tokens) of the prompts, `clients` at a time."""
    params = SamplingParams(max_new_tokens=TOKENS, temperature=0.0)
    wall, work, tokens = time.perf_counter(), time.process_time(), 0
    for start in range(0, len(prompts), clients):
        tokens += sum(len(request.tokens) for request in engine.complete(prompts[start : start + clients], params))
    return time.perf_counter() - wall, time.process_time() - work, tokens


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--draft", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=16)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        model = with_head(given.model, Path(scratch) / "model", given.steps)
        with Engine(options(model, 0)) as plain, Engine(options(model, given.draft)) as drafting:
            prompts = encoded(plain, conversations(given.prompts, seed=11, drawn=True))
            params = SamplingParams(max_new_tokens=TOKENS, temperature=0.0)
            one, other = plain.complete(prompts, params), drafting.complete(prompts, params)
            same = sum(a.tokens == b.tokens for a, b in zip(one, other, strict=True))
            stats = [request.stats for request in other if request.stats and request.stats.verified]
            verified, emitted = sum(s.verified for s in stats), sum(s.emitted for s in stats)
            correct = sum(s.correct for s in stats)
            gains = {}
            for clients in (1, 2, 4, 8):
                ratios, work = [], []
                for _ in range(given.rounds):
                    a, b = timed(plain, prompts, clients), timed(drafting, prompts, clients)
                    ratios.append(b[2] / b[0] / (a[2] / a[0]))
                    work.append(b[2] / b[1] / (a[2] / a[1]))
                gains[clients] = statistics.median(ratios)
                line = {
                    "c": clients,
                    "speed_up": round(gains[clients], 2),
                    "per_cpu_second": round(statistics.median(work), 2),
                }
                print(json.dumps(line))
    print(
        json.dumps(
            {
                "prompts_with_equal_tokens": f"{same} of {len(prompts)}",
                "accept_length": round(emitted / verified, 2),
                "sglang_accept_rate": round(correct / (verified * given.draft), 3),
                "length_over_draft_tokens": round(emitted / verified / (given.draft + 1), 3),
                "least": LEAST,
            }
        )
    )
    return 0 if gains[1] >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
