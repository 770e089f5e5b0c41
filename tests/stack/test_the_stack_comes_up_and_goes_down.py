"""`hat up` brings real processes up and says where they are; `hat down` leaves none; a failed start leaves none either."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from hat_serving.engine.__main__ import parser
from hat_serving.engine.options import EngineOptions
from hatstack.cli.failure import UsageError
from hatstack.stack import processes
from hatstack.stack.engine_flags import engine_flags, settable
from hatstack.stack.processes import StackError
from hatstack.stack.services import Plan, Service, services


class Engine(BaseHTTPRequestHandler):
    """Answers every chat completion with a greeting that passes the live room's hooks."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        last = body["messages"][-1]
        if last["role"] == "user":
            call = {
                "index": 0,
                "id": "c",
                "function": {"name": "use_skill", "arguments": json.dumps({"skill": "chillchat"})},
            }
            deltas = [{"tool_calls": [call]}]
        else:
            deltas = [{"content": "dear , so happy you are here . thanks for watching"}]
        finish = "tool_calls" if last["role"] == "user" else "stop"
        chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def engine() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def hat(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hatstack.cli.main", *words], capture_output=True, text=True, timeout=240
    )


def alive(pid: int) -> bool:
    return processes._born(pid) is not None


def test_up_chat_status_down(tmp_path: Path, engine: str) -> None:
    data = ("--data", str(tmp_path / "stack"))
    try:
        started = hat("up", "--engine", engine, "--without", "mlflow", *data, "--output", "json")
        assert started.returncode == 0, started.stderr
        listed = {one["name"]: one for one in json.loads(started.stdout)["services"]}
        assert list(listed) == ["tools", "console", "gateway", "canary"]
        again = hat("up", "--engine", engine, *data)
        assert (again.returncode, "runs already" in again.stderr) == (4, True)
        said = hat("chat", "hello", "--gateway", listed["gateway"]["url"], "--output", "json")
        assert said.returncode == 0, said.stderr
        assert json.loads(said.stdout)["skills"] == ["chillchat"]
        assert json.loads(said.stdout)["text"].endswith("thanks for watching")
        assert json.loads(said.stdout)["details"]["model_calls"] == 2
        chat = httpx.post(
            listed["console"]["url"] + "/api/v1/chat", json={"name": "live-commerce", "text": "hello"}, timeout=60
        )
        assert chat.json()["text"].endswith("thanks for watching")
        plan = {"name": "plain", "deployment": "live-commerce", "arms": [{"name": "self", "harness": "live-commerce"}]}
        (tmp_path / "plan.yaml").write_text(json.dumps(plan))
        there = ("--gateway", listed["gateway"]["url"], "--token-file", str(tmp_path / "stack/gateway/admin.token"))
        for words in (
            ("create", str(tmp_path / "plan.yaml")),
            ("start", "plain"),
            ("status", "plain"),
            ("stop", "plain"),
        ):
            done = hat("experiment", *words, *there, "--output", "json")
            assert done.returncode == 0, done.stderr
        assert [arm["name"] for arm in json.loads(done.stdout)["arms"]] == ["control", "self"]
        everything = hat("status", *data, "--output", "json")
        assert {one["state"] for one in json.loads(everything.stdout)["services"]} == {"up"}
        os.kill(listed["tools"]["pid"], signal.SIGKILL)
        broken = hat("status", *data)
        assert (broken.returncode, "tools not up" in broken.stderr) == (5, True)
    finally:
        ended = hat("down", *data)
    assert ended.returncode == 0, ended.stderr
    assert not any(alive(one["pid"]) for one in listed.values())
    assert hat("down", *data).stdout.strip() == "nothing runs"


def test_a_service_that_dies_takes_the_others_down_and_its_log_is_told(tmp_path: Path) -> None:
    ports = processes.free_ports()
    good = Service("tools", ports["tools"], (sys.executable, "-m", "http.server", str(ports["tools"])), "/")
    bad = Service(
        "engine", ports["engine"], (sys.executable, "-c", "print('no such model'); raise SystemExit(3)"), "/health"
    )
    with pytest.raises(StackError, match="no such model"):
        processes.start([good, bad], tmp_path)
    assert processes.status(tmp_path) == []
    assert not processes._taken(ports["tools"])


def test_what_was_not_started_here_is_never_ended(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        record = [{"name": "tools", "port": 1, "pid": other.pid, "born": 1, "log": ""}]
        (tmp_path / "stack.json").write_text(json.dumps(record))
        assert processes.stop(tmp_path) == []
        assert other.poll() is None
    finally:
        other.kill()
        other.wait(10)


def test_taken_ports_move_to_the_next_free_one() -> None:
    ports = processes.free_ports(lambda port: port in {8700, 8701, 8710})
    assert (ports["console"], ports["gateway"], ports["engine"]) == (8702, 8711, 8720)


def test_without_a_model_there_is_neither_engine_nor_gateway(tmp_path: Path) -> None:
    plan = Plan(tmp_path, "live-commerce", tmp_path, None, "sqlite:///x", tmp_path)
    assert [one.name for one in services(plan, processes.free_ports())] == ["tools", "mlflow", "console"]


def test_every_option_of_the_engine_is_reached_from_up(tmp_path: Path) -> None:
    def options(serving: str, *settings: str) -> EngineOptions:
        return EngineOptions.model_validate(vars(parser().parse_args(engine_flags(serving, settings, tmp_path))))

    plain, exact, fast = (options(name) for name in ("cpu-dev", "cpu-dev-exact", "cpu-dev-fast"))
    assert (plain.draft_tokens, exact.draft_tokens, fast.draft_tokens) == (0, 4, 4)
    assert (exact.speculative_accept_threshold_single, fast.speculative_accept_threshold_single) == (1.0, 0.5)
    assert (plain.tool_call_parser, plain.reasoning_parser, plain.enable_metrics) == ("qwen", "qwen3", True)
    values = {"dtype": "bfloat16", "reasoning-parser": "qwen3", "tool-call-parser": "qwen25", "api-key": "k"}
    values |= {"extra-metric-labels": '{"a": "b"}', "speculative-algorithm": "NEXTN", "served-model-name": "m"}
    for name in settable():
        field = name.replace("-", "_")
        default = EngineOptions.model_fields[field].default
        value = values.get(name) or ("true" if default is False else "1")
        several = {"speculative-num-draft-tokens": "4", "max-body-bytes": "2048", "chunked-prefill-size": "64"}
        given = several.get(name, value)
        found = getattr(options("cpu-dev", f"{name}={given}"), field)
        assert found == (given if isinstance(found, str) else json.loads(given)), name
    assert options("cpu-dev", "enable-metrics=false").enable_metrics is False
    for wrong in ("port=1", "threads=-1", "threads", "enable-metrics=1", "speculative-num-steps=2"):
        with pytest.raises(UsageError):
            options("cpu-dev-exact", wrong)
    (tmp_path / "model").mkdir()
    shown = hat(
        "up", "--model", str(tmp_path / "model"), "--serving", "cpu-dev-exact", "--engine-set", "threads=2", "--dry-run",
        "--output", "json",
    )  # fmt: skip
    engine = {one["name"]: one["command"] for one in json.loads(shown.stdout)["services"]}["engine"]
    assert engine[engine.index("--speculative-algorithm") + 1] == "NEXTN"
    assert engine[engine.index("--threads") + 1] == "2"
