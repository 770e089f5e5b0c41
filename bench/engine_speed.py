"""Tokens a second of the dev engine over HTTP at concurrency 1, 4 and 16, and what batching gains.

Closed loop: each of C clients streams one chat after another, 64 tokens each. Prompts are first turns in live rooms, about
440 tokens, under the one harness that a deployment has (`--drawn`: under a harness state of its own each). Rounds of the
concurrencies are interleaved. Beside wall time it counts the server's CPU time, which a busy machine disturbs less. Prints
one JSON line a concurrency and one for the ratios, over HTTP and in the engine alone; exits 1 when batching gains less than
4 at C = 16 in both.
Run: python bench/engine_speed.py [--model FOLDER] [--rounds 3] [--seconds 4] [--threads 1] [--drawn]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from hat_components.scenarios import load
from hat_components.sessions import States, read_harness
from hat_harness.augment import suite_plan
from hat_harness.render import render_system
from hat_serving.engine.engine import Engine
from hat_serving.engine.options import EngineOptions
from hat_serving.engine.sampling import SamplingParams

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "components" / "hat_components" / "base" / "shipped" / "micro-2" / "model"
HARNESS = ROOT / "harness-registry" / "harnesses" / "live-commerce"
TOKENS = 64
LEAST = 4.0


@dataclass
class Server:
    """The dev engine in a process of its own."""

    model: Path
    flags: list[str] = field(default_factory=list)
    url: str = ""
    process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Server:
        if self.url:  # another's, already running
            return self
        command = [
            sys.executable,
            "-m",
            "hat_serving.engine",
            "--model-path",
            str(self.model),
            "--port",
            "0",
            *self.flags,
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.search(r"http://\S+", self.process.stdout.readline())
        if found is None:
            raise RuntimeError("the engine did not start")
        self.url = found.group()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=30)

    def cpu(self) -> float:
        """CPU seconds so far; not known of another's server."""
        if self.process is None:
            return 0.0
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def conversations(count: int, seed: int = 6, *, drawn: bool = False) -> list[list[dict[str, str]]]:
    """First turns of live-room items, under the original harness or a drawn state each."""
    scenario = load("live_commerce")
    states = States(scenario, read_harness(HARNESS), suite_plan("T2") if drawn else None, seed)
    made = []
    for item in scenario.items(seed, "dev", count):
        system = render_system(states.of(item).harness, scenario.room_view(item))
        user = " ".join(item.turns[0].texts) or "hello"
        made.append([{"role": "system", "content": system}, {"role": "user", "content": user}])
    return made


@dataclass
class Measured:
    """What one closed-loop window saw."""

    tokens: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    first: list[float] = field(default_factory=list)


async def window(
    server: Server, messages: list[list[dict[str, str]]], clients: int, seconds: float, *, ignore_eos: bool = True
) -> Measured:
    """`clients` streams at a time for `seconds`."""
    found = Measured()
    end = time.perf_counter() + seconds
    turn = iter(range(10**9))

    async def client(session: aiohttp.ClientSession) -> None:
        while time.perf_counter() < end:
            body = {
                "model": "m",
                "messages": messages[next(turn) % len(messages)],
                "temperature": 0,
                "max_tokens": TOKENS,
                "ignore_eos": ignore_eos,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            began, first = time.perf_counter(), 0.0
            last = b""
            async with session.post(server.url + "/v1/chat/completions", json=body) as answer:
                async for line in answer.content:
                    if b'"content":"' in line or b'"reasoning_content":"' in line:
                        first = first or time.perf_counter() - began
                    if b'"usage"' in line:
                        last = line
            found.first.append(first)
            found.tokens += json.loads(last.removeprefix(b"data: "))["usage"]["completion_tokens"]

    began, cpu = time.perf_counter(), server.cpu()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(client(session) for _ in range(clients)))
    found.seconds, found.cpu = time.perf_counter() - began, server.cpu() - cpu
    return found


def without_http(model: Path, messages: list[list[dict[str, str]]], rounds: int) -> float:
    """How many times the tokens a second that 16 prompts at a time get, over one at a time, in the engine alone."""
    params = SamplingParams(max_new_tokens=TOKENS, temperature=0.0, ignore_eos=True)
    ratios = []
    with Engine(EngineOptions(model_path=model, dtype="float32")) as engine:
        text = engine.model.text
        prompts = [text.encode(text.render(one, None, {}), add_special_tokens=False) for one in messages[:16]]
        engine.complete(prompts, params)
        for _ in range(rounds):
            began = time.perf_counter()
            engine.complete(prompts, params)
            middle = time.perf_counter()
            for prompt in prompts[:4]:
                engine.complete([prompt], params)
            ratios.append((time.perf_counter() - middle) * 4 / (middle - began))
    return statistics.median(ratios)


def row(clients: int, rounds: list[Measured]) -> dict[str, Any]:
    """The line of one concurrency."""
    firsts = sorted(first for one in rounds for first in one.first)
    return {
        "c": clients,
        "tokens_per_s": round(statistics.median(one.tokens / one.seconds for one in rounds)),
        "tokens_per_cpu_s": round(statistics.median(one.tokens / one.cpu for one in rounds if one.cpu))
        if rounds[0].cpu
        else None,
        "ttft_ms_p50": round(1000 * statistics.median(firsts), 1),
        "ttft_ms_p95": round(1000 * firsts[int(0.95 * (len(firsts) - 1))], 1),
    }


def beside(options: argparse.Namespace, messages: list[list[dict[str, str]]]) -> int:
    """Ours and a peer in turns: the ratio of tokens a second at 1 and 16; 1 when the peer is faster at either."""
    peer = Server(options.model, url=options.peer)
    slower = False
    with Server(options.model, ["--dtype", "float32", "--threads", options.threads]) as server:
        for one in (server, peer):
            asyncio.run(window(one, messages, 4, 3.0))
        for clients in (1, 16):
            pairs: list[tuple[Measured, Measured]] = []
            for _ in range(options.rounds):
                ours, theirs = (asyncio.run(window(one, messages, clients, options.seconds)) for one in (server, peer))
                pairs.append((ours, theirs))
            ratio = statistics.median(a.tokens / a.seconds / (b.tokens / b.seconds) for a, b in pairs)
            rows = [row(clients, [pair[side] for pair in pairs]) for side in (0, 1)]
            print(json.dumps({"c": clients, "ours": rows[0], "peer": rows[1], "ratio": round(ratio, 2)}))
            slower |= ratio < 1
    return int(slower)


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--threads", default="1")
    parser.add_argument("--drawn", action="store_true")
    parser.add_argument("--peer", default="", help="address of another engine with the same model, measured in turns")
    options = parser.parse_args()
    messages = conversations(64, drawn=options.drawn)
    if options.peer:
        return beside(options, messages)
    measured: dict[int, list[Measured]] = {1: [], 4: [], 16: []}
    with Server(options.model, ["--dtype", "float32", "--threads", options.threads]) as server:
        asyncio.run(window(server, messages, 4, 2.0))
        for _ in range(options.rounds):
            for clients, rounds in measured.items():
                rounds.append(asyncio.run(window(server, messages, clients, options.seconds)))
    for clients, rounds in measured.items():
        print(json.dumps(row(clients, rounds)))
    pairs = list(zip(measured[16], measured[1], strict=True))
    wall = statistics.median(many.tokens / many.seconds * one.seconds / one.tokens for many, one in pairs)
    work = statistics.median(many.tokens / many.cpu * one.cpu / one.tokens for many, one in pairs)
    alone = without_http(options.model, messages, 3 * options.rounds)
    ratios = {"batching_at_16": wall, "per_cpu_second": work, "engine_alone": alone, "least": LEAST}
    print(json.dumps({name: round(value, 2) for name, value in ratios.items()}))
    return 0 if max(wall, alone) >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
