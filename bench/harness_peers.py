"""The agent episode beside LangChain, the OpenAI Agents SDK, pydantic-ai and a hand-written loop, interleaved.

Each framework runs in a process and environment of its own, in turns, so that drift of the machine hits all alike. The
peers' environments lie outside the repository (`$XDG_CACHE_HOME/hatstack/peers`, made by uv at the first run). Prints one
JSON object: median CPU ms an episode, its range over rounds, and the median of per-round ratios to ours with hooks off. A row
`-kept` is the same peer while it keeps what happened, as our session always does: LangChain in its `InMemorySaver`, the
OpenAI SDK with its tracing on and a processor that lists the spans.
Exits 1 when ours is not at least ten times cheaper than every peer.
Run: python bench/harness_peers.py [--rounds 5] [--episodes 300]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

PEERS = {
    "langchain": ("langchain==1.5.2", "langgraph==1.2.24"),
    "langchain-kept": (),
    "openai-agents": ("openai-agents==0.24.0",),
    "openai-agents-kept": (),
    "pydantic-ai": ("pydantic-ai-slim==2.68.0",),
}
"""Row → what its environment holds; a row `-kept` uses that of the row without."""
OURS = ("floor", "hatstack", "hatstack-8-hooks")
WORKER = Path(__file__).with_name("_peer_worker.py")
AT_LEAST = 10.0
"""How many times cheaper than a peer an episode must be."""


def environment(name: str) -> Path:
    """The Python of a peer's environment, made when it is not there."""
    name = name.removesuffix("-kept")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hatstack" / "peers" / name
    python = cache / "bin" / "python"
    if not python.exists():
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        subprocess.run([uv, "venv", "-q", "-p", version, str(cache)], check=True)
        # Without compiled files imports cost twice as much, which is not what is measured.
        install = [uv, "pip", "install", "-q", "--compile-bytecode", "-p", str(python), *PEERS[name]]
        subprocess.run(install, check=True)
    return python


def episode(name: str, python: Path, episodes: int) -> dict[str, float]:
    """One measurement in a fresh process."""
    env = {**os.environ, "LANGSMITH_TRACING": "false"}
    done = subprocess.run(
        [str(python), str(WORKER), name, str(episodes)],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        timeout=600,
    )
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Measures, prints, judges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=300)
    options = parser.parse_args()
    pythons = {name: Path(sys.executable) for name in OURS} | {name: environment(name) for name in PEERS}
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in pythons}
    for _ in range(options.rounds):
        for name, python in pythons.items():
            count = options.episodes * (1 if name in PEERS else 10)
            rows[name].append(episode(name, python, count))
    report = {}
    for name, found in rows.items():
        times = [row["cpu_ms"] for row in found]
        ratios = [mine["cpu_ms"] / ours["cpu_ms"] for mine, ours in zip(found, rows["hatstack"], strict=True)]
        report[name] = {
            "cpu_ms": round(statistics.median(times), 4),
            "range": [round(min(times), 4), round(max(times), 4)],
            "times_ours": round(statistics.median(ratios), 3),
            "peak_mb": round(statistics.median(row["peak_mb"] for row in found)),
        }
    print(json.dumps({"rounds": options.rounds, "episodes": options.episodes, "frameworks": report}, indent=2))
    return 0 if all(report[name]["times_ours"] >= AT_LEAST for name in PEERS) else 1


if __name__ == "__main__":
    sys.exit(main())
