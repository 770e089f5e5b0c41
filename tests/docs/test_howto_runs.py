"""Every block of the how-to pages runs as it stands, with the real command line, a real MCP server and a real endpoint."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.registry.test_mcp_tools_are_frozen_and_compared import http, tool

DOCS = Path(__file__).resolve().parents[2] / "docs"
ORDER = {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}


def blocks(page: str) -> list[str]:
    """The bash blocks of a page, in order."""
    return re.findall(r"^```bash\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


class Model(BaseHTTPRequestHandler):
    """Calls the first tool with the last number of the question, whatever the tool and parameter are called."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        function = body["tools"][0]["function"]
        numbers = re.findall(r"\d+", body["messages"][-1]["content"])
        names = list(function["parameters"].get("properties", {}))
        arguments = {names[0]: int(numbers[-1])} if names and numbers else {}
        call = {
            "id": "a",
            "type": "function",
            "function": {"name": function["name"], "arguments": json.dumps(arguments)},
        }
        message = {"role": "assistant", "content": "", "tool_calls": [call]}
        data = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    thread.join(10)


def test_bring_your_own_harness_and_logs(tmp_path: Path, endpoint: str) -> None:
    offered = [tool("get_order", inputSchema=ORDER, annotations={"readOnlyHint": True}), tool("fs/read")]
    found = blocks("howto-own-harness.md")
    assert len(found) == 6
    script = "set -euo pipefail\n" + "\n".join(f"echo '== {n}'\n{text}" for n, text in enumerate(found, 1))
    with http(*offered) as address:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        env = {**os.environ, "PATH": path, "TOOLS": address, "ENDPOINT": endpoint}
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False
        )
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-3000:]
    for told in ("no tool Bash(git:*)", "fs/read: the model calls it", "front matter: not YAML"):
        assert told in done.stderr
    assert "Never promise a date" in done.stdout
    assert "rules.md" in done.stdout
    assert "skill refunds renamed" in done.stdout
    evaluation = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())
    scores = {suite["id"]: suite["scores"]["exact"]["mean"] for suite in evaluation["suites"]}
    assert set(scores) == {"calls", "calls-t2", "t5", "t5-t2"}
    assert scores["calls"] == 1.0
    assert "customer-" not in (tmp_path / "data" / "held_out").joinpath("held_out.jsonl").read_text()
