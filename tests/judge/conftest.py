"""Sessions to judge, judges to judge them, and an endpoint on loopback that answers as a test wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hat_components.judge.rubric import parse_rubric
from hat_components.judge.spec import Judge, build_judge
from hat_components.judge.subject import Subject, subjects_of_trace
from hat_components.scenarios import load
from hat_harness.load import load_harness
from hat_harness.spec import Harness
from hat_harness.trace import Trace
from hat_scenarios.base import Item
from hat_scenarios.play import play_expert

Body = dict[str, Any]
Reply = dict[str, Any] | tuple[int, dict[str, str], Any]
"""A response body, or (status, headers, body or raw text)."""

RUBRIC = """---
name: toy
---
A shop.

# accuracy
Is it true?

- **right** (1): every fact has a source. [正确, correct]
- **wrong** (0): some fact has none. [错误]

# effectiveness
Does it help?

- **met** (1): it answers. [达成]
- **unmet** (0): it does not. [未达成]
"""


@dataclass
class Endpoint:
    """An OpenAI-compatible endpoint that answers with `answer(body, number of the request)`."""

    answer: Callable[[Body, int], Reply]
    bodies: list[Body] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    most_at_once: int = 0
    url: str = ""
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, body: Body, headers: dict[str, str]) -> Reply:
        with self._lock:
            self.bodies.append(body)
            self.headers.append(headers)
            number = len(self.bodies)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            return self.answer(body, number)
        finally:
            with self._lock:
                self._now -= 1


def _handler(endpoint: Endpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            reply = endpoint.take(body, {key.lower(): value for key, value in self.headers.items()})
            status, headers, content = reply if isinstance(reply, tuple) else (200, {}, reply)
            data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            return

    return Handler


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[Body, int], Reply]], Endpoint]]:
    """Starts endpoints; all of them stop with the test."""
    servers: list[ThreadingHTTPServer] = []

    def start(answer: Callable[[Body, int], Reply]) -> Endpoint:
        endpoint = Endpoint(answer)
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(endpoint))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        servers.append(server)
        endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        return endpoint

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def said(content: str, *, finish: str = "stop", calls: list[Body] | None = None, tokens: int = 10) -> Body:
    """A chat completion."""
    message: Body = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"c{k}",
                "type": "function",
                "function": {"name": one["name"], "arguments": json.dumps(one["arguments"])},
            }
            for k, one in enumerate(calls)
        ]
    usage = {"prompt_tokens": 100, "completion_tokens": tokens}
    return {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}


def code_of(body: Body) -> str:
    """The case code that the judge's instructions demand."""
    return str(body["messages"][0]["content"]).rsplit('The value of "case" is ', 1)[1][:8]


def verdict(body: Body, accuracy: str = "right", effectiveness: str = "met", code: str | None = None) -> str:
    """A well-formed verdict for the case of `body`."""
    labels = {"accuracy": accuracy, "effectiveness": effectiveness}
    verdicts = {name: {"rationale": "because", "label": label} for name, label in labels.items()}
    return json.dumps({"case": code_of(body) if code is None else code, "verdicts": verdicts}, ensure_ascii=False)


def endpoint_member(url: str, name: str = "m1", evidence: str = "prompt", **settings: Any) -> Body:
    """Fields of an endpoint member."""
    ask_again = settings.pop("ask_again", 1)
    return {
        "type": "endpoint",
        "name": name,
        "evidence": evidence,
        "ask_again": ask_again,
        "endpoint": {"url": url, "model": "judge-model", "backoff_s": 0.0, "timeout_s": 5.0, **settings},
    }


def toy_judge(members: list[Body], **fields: Any) -> Judge:
    """A judge over the toy rubric."""
    return build_judge({"name": "toy", "rubric": parse_rubric(RUBRIC), "members": members, **fields})


@pytest.fixture(scope="session")
def harness(repository: Path) -> Harness:
    """The live-commerce harness."""
    return load_harness(repository / "harness-registry" / "harnesses" / "live-commerce")


@pytest.fixture(scope="session")
def played(harness: Harness) -> list[tuple[Item, Trace]]:
    """Sessions of the scripted expert."""
    scenario = load("live_commerce")
    items = list(scenario.items(5, "calibration", 40, 3))
    return list(zip(items, play_expert(scenario, [(harness, item) for item in items]), strict=True))


@pytest.fixture(scope="session")
def subjects(played: list[tuple[Item, Trace]]) -> list[Subject]:
    """Every turn of those sessions, with a made-up truth in which a third is wrong."""
    found = []
    for item, trace in played:
        for subject in subjects_of_trace(trace, item.id):
            bad = len(found) % 3 == 0
            truth = {"accuracy": "wrong" if bad else "right", "effectiveness": "unmet" if bad else "met"}
            found.append(subject.model_copy(update={"truth": truth, "intent": item.turns[subject.turn - 1].intent}))
    return found
