"""CPU time of a whole agent turn in the gateway: resolve, eight hooks, one tool over HTTP, two model calls, store, trace.

The real gateway process on SQLite before an engine and a tool server that answer at once; viewers have four turns each, in
turns with the raw pass-through, which does one HTTP exchange for each of the turn's five. Prints one JSON line: CPU ms a
turn over rounds, whole and streamed, its p50 and p99, and its ratio to the pass-through's. Exits 1 when either takes above 2 ms.
Run: python bench/gateway_turn.py [--rounds 5] [--turns 600]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench._gateway_world import HERE, Load, Process, free_port, upstream
from bench.harness_episode import CONDITIONS
from hat_harness.save import harness_files
from hat_harness.spec import Activation, Harness, Hook, Prompt, Tool

MOST_MS = 2.0
PER_VIEWER = 4


def harness() -> Harness:
    """One tool and the eight hooks of `harness_episode`."""
    schema = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
    hooks = (
        Hook.model_validate(
            {
                "id": f"hook_{n}",
                "event": at,
                "when": when,
                "action": action,
                "message": "m",
                "arguments": {"gate": "bye"},
            }
        )
        for n, (at, when, action) in enumerate(CONDITIONS)
    )
    return Harness(
        name="bench",
        sections=("rules", "tools"),
        prompts=(
            Prompt(id="rules", section="rules", text="you host a live room . answer in one line . close with bye"),
        ),
        tools=tuple(
            Tool(id=name, name=name, description=f"{name} of an item", parameters=schema)
            for name in ("get_item", "pay")
        ),
        hooks=tuple(hooks),
        activation=Activation(required=False),
    )


def gateway(up: str, folder: Path, more: list[str] | None = None) -> Process:
    """The gateway over the upstream, tools included."""
    port = free_port()
    for name, content in harness_files(harness()).items():
        path = folder / "harness" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    bindings = {"servers": {"room": {"http": up + "/tools/{tool}"}}, "tools": {"*": "room"}}
    (folder / "bindings.yaml").write_text(json.dumps(bindings))
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
    command += ["--harness", f"bench={folder / 'harness'}", "--bindings", str(folder / "bindings.yaml")]
    return Process([*command, *(more or [])], f"http://127.0.0.1:{port}", "/healthz")


def bodies(number: int, count: int, *, stream: bool) -> list[str]:
    """Requests of round `number`: every viewer says `PER_VIEWER` things, all viewers in turns."""
    viewers = max(1, count // PER_VIEWER)
    told = [{"role": "user", "content": "what is the price of the mug"}]
    return [
        json.dumps({"model": "bench", "user": f"v{number}-{stream}-{one}", "messages": told, "stream": stream})
        for one in range(viewers)
    ]


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=600)
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {"whole": [], "stream": [], "whole_16": [], "floor": []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        up = stack.enter_context(upstream())
        ours = stack.enter_context(gateway(up.url, folder))
        port = free_port()
        command = [sys.executable, str(HERE / "_gateway_floor.py"), up.url, str(port)]
        floor = stack.enter_context(Process(command, f"http://127.0.0.1:{port}", "/"))
        load = stack.enter_context(Load())
        plain = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
        for number in range(options.rounds + 1):
            for case, stream, clients in (("whole", False, 1), ("stream", True, 1), ("whole_16", False, 16)):
                asked = bodies(number * 100 + clients, options.turns, stream=stream)
                one = load.run(ours, "/v1/chat/completions", asked, clients, options.turns)
                if one["failed"]:
                    raise SystemExit(f"{one['failed']:.0f} turns failed")
                if number:
                    found[case].append(one)
            one = load.run(floor, "/v1/chat/completions", [plain], 1, options.turns)
            if number:
                found["floor"].append(one)
    return told(found)


def told(found: dict[str, list[dict[str, float]]]) -> int:
    """The line; 1 when a turn costs too much."""
    line: dict[str, object] = {}
    for case, rows in found.items():
        line[case] = {
            key: round(statistics.median(one[key] for one in rows), 3)
            for key in ("cpu_ms", "p50_ms", "p99_ms", "per_s")
        }
        line[f"{case}_range"] = [
            round(min(one["cpu_ms"] for one in rows), 3),
            round(max(one["cpu_ms"] for one in rows), 3),
        ]
    pairs = list(zip(found["whole"], found["floor"], strict=True))
    line["over_pass_through"] = round(statistics.median(mine["cpu_ms"] / base["cpu_ms"] for mine, base in pairs), 2)
    print(json.dumps(line))
    return int(max(statistics.median(one["cpu_ms"] for one in found[case]) for case in ("whole", "stream")) > MOST_MS)


if __name__ == "__main__":
    sys.exit(main())
