"""What drafting with an MTP head gains the dev engine, by concurrency and by depth of the model, and what bounds it.

The head is trained here, for some minutes, on what the model itself writes in live rooms (or comes with the model); other
rooms are measured, plain and speculative in turns, in one process without HTTP and then as streams over HTTP. A deeper
model is the same model with layers that add nothing: same tokens, same acceptance, but a pass that costs more, so that the
gain shows against the cost of the model. Prints one JSON line a case, with both definitions of acceptance and the accepted
length from which drafting pays. Exits 1 when no case gains 1.3 at C = 1.
Run: python bench/engine_mtp.py [--model FOLDER] [--steps 250] [--draft 3] [--rounds 5] [--depths 3,12,24] [--drawn]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from bench.engine_speed import MODEL, Server, conversations, window
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
        prompts = encoded(engine, conversations(200, seed=7) + conversations(100, seed=8, drawn=True))
        written = engine.complete(prompts, params)
    rows = [(prompt + request.tokens, len(prompt)) for prompt, request in zip(prompts, written, strict=True)]
    began = time.perf_counter()
    fit_head(folder, rows, steps=steps)
    print(f"head trained on {len(rows)} answers in {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return folder


def timed(engine: Engine, prompts: list[list[int]], clients: int) -> tuple[float, int]:
    """(wall seconds, tokens) of the prompts, `clients` at a time."""
    params = SamplingParams(max_new_tokens=TOKENS, temperature=0.0)
    began, tokens = time.perf_counter(), 0
    for start in range(0, len(prompts), clients):
        tokens += sum(len(request.tokens) for request in engine.complete(prompts[start : start + clients], params))
    return time.perf_counter() - began, tokens


def deepened(model: Path, folder: Path, layers: int) -> Path:
    """The model with layers on top that add nothing: what they project back is zero."""
    config = json.loads((model / "config.json").read_text())
    present = int(config["num_hidden_layers"])
    if layers <= present:
        return model
    shutil.copytree(model, folder)
    weights = load_file(model / "model.safetensors")
    for layer in range(present, layers):
        for name, value in list(weights.items()):
            if name.startswith("model.layers.0."):
                silent = name.endswith(("o_proj.weight", "down_proj.weight"))
                new = name.replace("model.layers.0.", f"model.layers.{layer}.")
                weights[new] = torch.zeros_like(value) if silent else value.clone()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config |= {"num_hidden_layers": layers, "layer_types": ["full_attention"] * layers}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def measure(model: Path, given: argparse.Namespace, clients: int) -> dict[str, Any]:
    """One line: the gain of one model at one concurrency."""
    params = SamplingParams(max_new_tokens=TOKENS, temperature=0.0)
    with Engine(options(model, 0)) as plain, Engine(options(model, given.draft)) as drafting:
        prompts = encoded(plain, conversations(given.prompts, seed=11, drawn=given.drawn))
        one, other = plain.complete(prompts, params), drafting.complete(prompts, params)
        stats = [request.stats for request in other if request.stats and request.stats.verified]
        verified, emitted = sum(s.verified for s in stats), sum(s.emitted for s in stats)
        ratios = []
        for _ in range(given.rounds):
            a, b = timed(plain, prompts, clients), timed(drafting, prompts, clients)
            ratios.append(b[1] / b[0] / (a[1] / a[0]))
    gain, length = statistics.median(ratios), emitted / verified
    return {
        "layers": read_folder(model).shape.layers,
        "c": clients,
        "speed_up": round(gain, 2),
        "prompts_with_equal_tokens": f"{sum(a.tokens == b.tokens for a, b in zip(one, other, strict=True))} of {len(prompts)}",
        "accept_length": round(length, 2),
        "sglang_accept_rate": round(sum(s.correct for s in stats) / (verified * given.draft), 3),
        "length_over_draft_tokens": round(length / (given.draft + 1), 3),
        "pays_from_accept_length": round(length / gain, 2),
    }


def over_http(model: Path, given: argparse.Namespace) -> dict[str, Any]:
    """One line: the gain at C = 1 for clients that stream."""
    steps = ["--speculative-num-steps", str(given.draft), "--speculative-num-draft-tokens", str(given.draft + 1)]
    flags = ["--dtype", "float32"]
    messages = conversations(given.prompts, seed=11, drawn=given.drawn)
    ratios = []
    with Server(model, flags) as plain, Server(model, [*flags, "--speculative-algorithm", "NEXTN", *steps]) as drafting:
        for index in range(given.rounds + 1):
            a, b = (asyncio.run(window(one, messages, 1, 3.0, ignore_eos=False)) for one in (plain, drafting))
            ratios += [b.tokens / b.seconds / (a.tokens / a.seconds)] if index else []  # the first warms up
    return {
        "layers": read_folder(model).shape.layers,
        "c": 1,
        "http": True,
        "speed_up": round(statistics.median(ratios), 2),
    }


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--draft", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--depths", default="3,12,24")
    parser.add_argument("--drawn", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    best = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        model = with_head(given.model, Path(scratch) / "model", given.steps)
        for depth in map(int, given.depths.split(",")):
            deep = deepened(model, Path(scratch) / f"deep-{depth}", depth)
            for clients in (1, 4) if deep == model else (1,):
                line = measure(deep, given, clients)
                print(json.dumps(line), flush=True)
                best = max(best, line["speed_up"] if clients == 1 else 0.0)
        line = over_http(model, given)
        print(json.dumps(line), flush=True)
        best = max(best, line["speed_up"])
    return 0 if best >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
