"""Promotion, abort and urgent rollback under 50 viewers: what failed, what was lost, which conversations moved and why.

The real gateway process on SQLite under Locust; meanwhile, over the admin API: a canary at 30 %, at 100 %, promoted; a second
canary at 50 %, aborted; the first harness put back as an urgent promotion. Every move is held to the contract. With
`--model FOLDER` the dev engine serves that model (default: the shipped base); with `--instant` an engine that answers at once.
Prints one JSON line; exits 1 when a turn failed or was lost, or a conversation moved that may not.
Run: python bench/gateway_moves.py [--model FOLDER | --instant] [--users 50] [--each 250]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench._gateway_world import HERE, Process, free_port, upstream
from bench.engine_speed import MODEL
from bench.gateway_turn import harness as bench_harness
from hat_harness.load import load_harness
from hat_harness.save import harness_files
from hat_harness.spec import Harness, Prompt
from hat_serving.loadtest.measured import LoadResult
from hat_serving.loadtest.moves import Operation, Verdict, judged
from hat_serving.loadtest.plan import LoadPlan
from hat_serving.loadtest.run import RunningLoad
from hat_serving.loadtest.serve import dev_engine

ROOT = HERE.parent
LIVE = ROOT / "harness-registry" / "harnesses" / "live-commerce"


@dataclass
class Admin:
    """The admin API of one gateway, as operations with their times."""

    url: str
    token: str
    name: str

    def send(self, method: str, path: str, body: Any = None) -> Any:
        """One call; what it answers."""
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"{self.url}/admin/v1/deployments/{self.name}{path}"
        answer = httpx.request(method, url, json=body, headers=headers, timeout=30)
        if answer.status_code >= 300:
            raise SystemExit(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        return answer.json() if answer.content else None

    def operate(self, kind: Any, arm: str, method: str, path: str, body: Any = None) -> Operation:
        """One operation, and a wait until every replica obeys it."""
        asked = time.time()
        self.send(method, path, body)
        while self.send("GET", "")["effective"] is None:
            threading.Event().wait(0.05)
        return Operation(kind, arm, asked, time.time())

    def weigh(self, arm: str, percent: float) -> Operation:
        """A new weight of an arm."""
        return self.operate("weights", arm, "PUT", "/weights", {"weights": {arm: percent}})


def variant(given: Harness, number: int) -> Harness:
    """The same rules in other words: another digest."""
    note = Prompt(
        id=f"note_{number}", section=given.prompts[0].section, text=f"this is edition {number} of the rules ."
    )
    return given.model_copy(update={"prompts": (*given.prompts, note), "name": f"edition-{number}"})


def gateway(stack: ExitStack, folder: Path, engine: str, base: Harness, tools: str) -> Process:
    """The gateway with three editions of a harness."""
    port = free_port()
    command = [sys.executable, "-m", "hat_serving.gateway", "--data", str(folder / "data"), "--engine", engine]
    command += ["--port", str(port), "--bindings", str(folder / "bindings.yaml")]
    for name, made in (("shop", base), ("second", variant(base, 2)), ("third", variant(base, 3))):
        for path, content in harness_files(made).items():
            file = folder / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        command += ["--harness", f"{name}={folder / name}"]
    server = {"mcp": tools} if tools.endswith("/mcp") else {"http": tools}
    (folder / "bindings.yaml").write_text(json.dumps({"servers": {"room": server}, "tools": {"*": "room"}}))
    return stack.enter_context(Process(command, f"http://127.0.0.1:{port}", "/healthz"))


def steer(admin: Admin, pause: Callable[[], None]) -> list[Operation]:
    """The operations, each followed by a pause."""
    made: list[Operation] = []

    def step(*operations: Operation) -> None:
        made.extend(operations)
        pause()

    admin.send("PUT", "/arms/canary", {"harness": "second"})
    step(admin.weigh("canary", 30))
    step(admin.weigh("canary", 100))
    step(admin.operate("promote", "canary", "POST", "/arms/canary/promote"))
    admin.send("PUT", "/arms/next", {"harness": "third"})
    step(admin.weigh("next", 50))
    step(admin.operate("abort", "next", "POST", "/arms/next/abort"))
    admin.send("PUT", "/arms/back", {"harness": "shop"})
    made.append(admin.weigh("back", 100))
    step(admin.operate("urgent", "back", "POST", "/arms/back/promote", {"urgent": True}))
    return made


def under_load(admin: Admin, plan: LoadPlan, folder: Path, each: int) -> tuple[LoadResult, Verdict]:
    """A load with the operations made meanwhile, `each` turns apart however fast the machine is, and the verdict."""
    with RunningLoad(plan, folder) as load:

        def pause() -> None:
            wanted = len(load.so_far()) + each
            until = time.monotonic() + plan.duration_s
            while len(load.so_far()) < wanted and time.monotonic() < until:
                threading.Event().wait(0.2)

        pause()
        operations = steer(admin, pause)
        load.stop()
    result = load.result()
    return result, judged(result, operations)


def main() -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--instant", action="store_true", help="an engine that answers at once")
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--each", type=int, default=250, help="turns between two operations")
    parser.add_argument("--most", type=float, default=240.0, help="seconds after which the load ends")
    parser.add_argument("--think", type=float, default=1.0)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if options.instant:
            up = stack.enter_context(upstream())
            running = gateway(stack, folder, up.url, bench_harness(), up.url + "/tools/{tool}")
        else:
            engine = stack.enter_context(dev_engine(options.model, mtp=False))
            port = free_port()
            tools = [sys.executable, "-m", "hat_scenarios.live_commerce.server", str(LIVE), "--port", str(port)]
            room = stack.enter_context(Process(tools, f"http://127.0.0.1:{port}", "/mcp"))
            running = gateway(stack, folder, engine, load_harness(LIVE), room.url + "/mcp")
        admin = Admin(running.url, (folder / "data" / "admin.token").read_text().strip(), "shop")
        plan = LoadPlan(
            url=running.url,
            model="shop",
            users=options.users,
            duration_s=options.most,
            think_s=options.think,
            route="room",
        )
        result, verdict = under_load(admin, plan, folder / "load", options.each)
        told = admin.send("GET", "")
    line = {
        "users": options.users, "turns": verdict.turns, "failed": verdict.failed, "errors": result.errors,
        "lost": verdict.lost, "moves": verdict.moves, "gateway_says": told["moves"],
        "violations": len(verdict.violations), "first_violations": verdict.violations[:3],
        "outcomes": {kind: sum(turn.outcome == kind for turn in result.turns) for kind in ("reply", "refuse", "silence", "safe")},
        "wall_p50_s": round(result.whole.wall_p50_s, 3), "wall_p95_s": round(result.whole.wall_p95_s, 3),
    }  # fmt: skip
    print(json.dumps(line))
    return int(not verdict.clean)


if __name__ == "__main__":
    sys.exit(main())
