"""`python3 -m sglang.launch_server`: answers every request with its pod's name and the model it was given.

Speaks the paths that probes and routes use (/health, /v1/models, /v1/chat/completions, /metrics).
`HATSTACK_FAIL=status:share` makes it answer that share of the chat requests with that status, in a fixed rhythm.
Nothing is generated here.
"""

from __future__ import annotations

import argparse
import http.server
import itertools
import json
import os
import socket
import threading
from pathlib import Path

COUNTS: dict[str, int] = {"200": 0, "500": 0}
LOCK = threading.Lock()
TURN = itertools.count(1)


def source(model_path: str) -> str:
    """The URI that the storage initializer noted."""
    note = Path(model_path) / "source.json"
    return str(json.loads(note.read_text())["uri"]) if note.exists() else model_path


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    options: argparse.Namespace

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/metrics":
            extra = "".join(f',{key}="{value}"' for key, value in json.loads(self.options.extra_metric_labels).items())
            lines = [f'sglang:http_responses_total{{status_code="{k}"{extra}}} {n}' for k, n in sorted(COUNTS.items())]
            self._send(200, "\n".join([*lines, ""]).encode(), "text/plain")
            return
        status = self._status()
        name = self.options.served_model_name
        if self.path == "/v1/models":
            body: object = {"object": "list", "data": [{"id": name, "object": "model"}]}
        else:
            body = {
                "pod": socket.gethostname(),
                "source": source(self.options.model_path),
                "model": name,
                "path": self.path,
            }
        self._send(status, json.dumps(body).encode(), "application/json")

    do_POST = do_GET  # noqa: N815  # the name that http.server calls

    def _status(self) -> int:
        if "chat/completions" not in self.path:
            return 200
        wanted, _, share = os.environ.get("HATSTACK_FAIL", "").partition(":")
        with LOCK:
            turn = next(TURN)
            before, after = int((turn - 1) * float(share or 0)), int(turn * float(share or 0))
            status = int(wanted) if after > before else 200
            COUNTS[str(status)] = COUNTS.get(str(status), 0) + 1
        return status

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def main() -> None:
    """Serves until it is told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--served-model-name", default="model")
    parser.add_argument("--extra-metric-labels", default="{}")
    Handler.options, _ = parser.parse_known_args()
    server = http.server.ThreadingHTTPServer((Handler.options.host, Handler.options.port), Handler)
    server.serve_forever()


if __name__ == "__main__":
    main()
