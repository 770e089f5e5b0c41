"""The gateway as a proxy beside a raw ASGI pass-through, LiteLLM and two Rust routers, over an upstream that answers at once.

All servers are up and measured in turns, one worker each, so that drift of the machine hits all alike. CPU time is the
server's process tree, from the scheduler. Ours checks a bearer token, counts, and writes a usage record; the pass-through
and the routers do not. Prints one JSON line a server (medians over rounds) and the ratios; exits 1 when ours is under 25 times
LiteLLM's requests/s at 16, above twice the pass-through's CPU (JSON or 34 chunks), or adds over 1 ms at the median.
Peers' environments lie outside the repository (`$XDG_CACHE_HOME/hatstack/peers`, made at the first run).
Run: python bench/gateway_proxy.py [--rounds 5] [--without litellm,smg,sglang-router]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench._gateway_world import HERE, Load, Process, free_port, peer_bin, upstream

ROOT = HERE.parent
BODY = {"model": "m", "messages": [{"role": "user", "content": "hello there"}], "max_tokens": 32}
PLAIN, STREAM = json.dumps(BODY), json.dumps({**BODY, "stream": True})
TOKEN = "sk-" + hashlib.sha256(b"bench").hexdigest()
CASES = {
    "json": (PLAIN, 1, 600),
    "json_16": (PLAIN, 16, 1500),
    "stream": (STREAM, 1, 200),
    "stream_16": (STREAM, 16, 400),
}
"""Name → (body, concurrency, requests)."""
SLOW = {"litellm": 0.07}
"""Share of the requests that a server gets which would take minutes for all of them."""
LEAST_RATE, MOST_CPU, MOST_ADDED_MS = 25.0, 2.0, 1.0
Server = tuple[Process, str]


def ours(up: str, folder: Path) -> Server:
    """The gateway, with a token, metrics and usage records."""
    port = free_port()
    (folder / "hashes").write_text(hashlib.sha256(TOKEN.encode()).hexdigest())
    harness = ROOT / "harness-registry" / "harnesses" / "react-baseline"
    command = [
        sys.executable,
        "-m",
        "hat_serving.gateway",
        "--data",
        str(folder / "data"),
        "--engine",
        up,
        "--port",
        str(port),
    ]
    command += ["--harness", f"bench={harness}", "--token-hashes", str(folder / "hashes"), "--pass-through"]
    return Process(command, f"http://127.0.0.1:{port}", "/healthz"), "/engines/primary/v1/chat/completions"


def floor(up: str, _folder: Path) -> Server:
    """The raw ASGI pass-through."""
    port = free_port()
    command = [sys.executable, str(HERE / "_gateway_floor.py"), up, str(port)]
    return Process(command, f"http://127.0.0.1:{port}", "/"), "/v1/chat/completions"


def litellm(up: str, folder: Path) -> Server:
    """LiteLLM's proxy with a master key, no database, no callback."""
    port = free_port()
    model = {"model_name": "m", "litellm_params": {"model": "openai/m", "api_base": up + "/v1", "api_key": "x"}}
    (folder / "litellm.json").write_text(json.dumps({"model_list": [model], "general_settings": {"master_key": TOKEN}}))
    command = [str(peer_bin("litellm", "litellm")), "--config", str(folder / "litellm.json")]
    command += ["--num_workers", "1", "--host", "127.0.0.1", "--port", str(port)]
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False", "NO_DOCS": "True"}
    return Process(command, f"http://127.0.0.1:{port}", "/health/liveliness", env), "/v1/chat/completions"


def smg(up: str, _folder: Path) -> Server:
    """The router in Rust that succeeds sglang-router."""
    port, metrics = free_port(), free_port()
    command = [str(peer_bin("smg", "smg")), "launch", "--worker-urls", up, "--policy", "round_robin"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics)]
    return Process(command, f"http://127.0.0.1:{port}", "/health"), "/v1/chat/completions"


def sglang_router(up: str, _folder: Path) -> Server:
    """The router in Rust of SGLang's earlier releases."""
    port, metrics = free_port(), free_port()
    command = [str(peer_bin("sglang-router", "python")), "-m", "sglang_router.launch_router", "--worker-urls", up]
    command += [
        "--policy",
        "round_robin",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--prometheus-port",
        str(metrics),
    ]
    return Process(command, f"http://127.0.0.1:{port}", "/health"), "/v1/chat/completions"


SERVERS = {"hatstack": ours, "pass-through": floor, "smg": smg, "sglang-router": sglang_router, "litellm": litellm}


def rounds(servers: dict[str, Server], count: int) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Server → case → one measurement a round."""
    found: dict[str, dict[str, list[dict[str, float]]]] = {name: {case: [] for case in CASES} for name in servers}
    with Load() as load:
        for number in range(count + 1):
            for case, (body, clients, requests) in CASES.items():
                for name, (server, path) in servers.items():
                    asked = max(clients, int(requests * SLOW.get(name, 1.0) * (1 if number else 0.2)))
                    one = load.run(server, path, [body], clients, asked, {"authorization": f"Bearer {TOKEN}"})
                    if one["failed"]:
                        raise SystemExit(f"{name}: {one['failed']:.0f} of {asked} requests failed ({case})")
                    if number:  # the first round warms up
                        found[name][case].append(one)
    return found


def told(name: str, cases: dict[str, list[dict[str, float]]], direct: dict[str, float]) -> dict[str, Any]:
    """One server's line."""
    middle = {
        case: {key: statistics.median(one[key] for one in rows) for key in rows[0]} for case, rows in cases.items()
    }
    cpu = {
        case: [round(min(one["cpu_ms"] for one in rows), 3), round(max(one["cpu_ms"] for one in rows), 3)]
        for case, rows in cases.items()
    }
    return {
        "server": name,
        "cpu_ms": {case: round(one["cpu_ms"], 3) for case, one in middle.items()},
        "cpu_ms_range": cpu,
        "p50_ms": {case: round(one["p50_ms"], 2) for case, one in middle.items()},
        "p99_ms": {case: round(one["p99_ms"], 2) for case, one in middle.items()},
        "added_p50_ms": round(middle["json"]["p50_ms"] - direct["p50_ms"], 3),
        "per_s": {case: round(one["per_s"]) for case, one in middle.items()},
        "rss_mb": round(middle["json"]["rss_mb"]),
    }


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without", default="", help="servers to leave out, with commas")
    options = parser.parse_args()
    chosen = {name: make for name, make in SERVERS.items() if name not in options.without.split(",")}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        up = stack.enter_context(upstream())
        made = {name: make(up.url, folder) for name, make in chosen.items()}
        for server, _ in made.values():
            stack.enter_context(server)
        with Load() as load:
            direct = load.run(up, "/v1/chat/completions", [PLAIN], 1, 3000)
        found = rounds(made, options.rounds)
    lines = {name: told(name, cases, direct) for name, cases in found.items()}
    for line in lines.values():
        print(json.dumps(line))
    return judged(found, lines)


def judged(found: dict[str, dict[str, list[dict[str, float]]]], lines: dict[str, dict[str, Any]]) -> int:
    """The ratios to the goals, of the rounds' pairs; 1 when one is missed."""

    def ratio(peer: str, case: str, key: str) -> float:
        pairs = zip(found["hatstack"][case], found[peer][case], strict=True)
        return round(statistics.median(mine[key] / theirs[key] for mine, theirs in pairs), 2)

    ratios = {f"cpu_over_pass_through_{case}": ratio("pass-through", case, "cpu_ms") for case in ("json", "stream")}
    missed = [value > MOST_CPU for value in ratios.values()]
    missed.append(lines["hatstack"]["added_p50_ms"] > MOST_ADDED_MS)
    if "litellm" in found:
        ratios["requests_over_litellm_16"] = ratio("litellm", "json_16", "per_s")
        ratios["cpu_under_litellm"] = round(1 / ratio("litellm", "json", "cpu_ms"), 1)
        missed.append(ratios["requests_over_litellm_16"] < LEAST_RATE)
    print(json.dumps({"ratios": ratios, "added_p50_ms": lines["hatstack"]["added_p50_ms"]}))
    return int(any(missed))


if __name__ == "__main__":
    sys.exit(main())
