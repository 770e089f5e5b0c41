"""One viewer's request to the gateway and what was measured of it, over `http.client`.

Always holds: `Asker.ask` never raises for what the network or the gateway does; the record says what happened, with the
gateway's own words for an error. Standard library alone, so that it works under gevent's patched sockets and under plain
threads alike. Not here: who asks what when (users), percentiles (measured).
"""

from __future__ import annotations

import http.client
import json
import os
import select
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(slots=True)
class TurnRecord:
    """One turn of one viewer. Times are seconds; 0 where there was nothing to time."""

    viewer: int
    conversation: str
    """The viewer's own name of the conversation; not the gateway's pseudonym."""
    number: int
    """Turns of the conversation that had been acknowledged before, plus one."""
    intent: str
    at: float
    """Start, Unix time."""
    wall: float = 0.0
    ttft: float = 0.0
    """To the first shown text; of a request that is not streamed, to its answer."""
    gaps: tuple[float, ...] = ()
    """Between pieces of shown text."""
    status: int = 0
    """HTTP status; 0 when the connection failed."""
    error: str = ""
    """Why it failed; "" for a reply or silence."""
    arm: str = ""
    release: str = ""
    harness: str = ""
    outcome: str = ""
    """Of room messages: reply, refuse, safe or silence."""
    turn: int = -1
    """The gateway's number of the turn, where it tells."""
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def ok(self) -> bool:
        """A reply, a refusal or silence came back."""
        return not self.error

    def line(self) -> str:
        """As one JSON line."""
        return json.dumps(asdict(self))


class Asker:
    """One viewer's connection. HATSTACK_TOKEN is sent as bearer token where it is set."""

    def __init__(self, url: str, model: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port
        self._secure = parts.scheme == "https"
        self._base = parts.path.rstrip("/")
        self._model = model
        self._timeout = timeout_s
        self._open: http.client.HTTPConnection | None = None

    def chat(self, record: TurnRecord, texts: tuple[str, ...], viewer: str, *, stream: bool) -> TurnRecord:
        """A comment over chat completions."""
        body: dict[str, Any] = {
            "model": self._model,
            "user": viewer,
            "messages": [{"role": "user", "content": text} for text in texts],
        }
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        headers = {"X-Hatstack-Conversation": record.conversation}
        return self._timed(record, "/v1/chat/completions", body, headers)

    def room(self, record: TurnRecord, room: str, body: Mapping[str, Any]) -> TurnRecord:
        """A comment or an event over the room's route."""
        return self._timed(record, f"/v1/rooms/{room}/messages", {"model": self._model, **body}, {})

    def close(self) -> None:
        """Give the connection up."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _timed(self, record: TurnRecord, path: str, body: Any, headers: Mapping[str, str]) -> TurnRecord:
        began = time.perf_counter()
        record.at = time.time()
        try:
            self._ask(record, path, json.dumps(body).encode(), headers, began)
        except (OSError, http.client.HTTPException, ValueError) as error:
            record.error = f"{type(error).__name__}: {error}"[:200]
            self.close()
        record.wall = time.perf_counter() - began
        if not record.ttft and not record.error:
            record.ttft = record.wall
        return record

    def _ask(self, record: TurnRecord, path: str, body: bytes, headers: Mapping[str, str], began: float) -> None:
        token = os.environ.get("HATSTACK_TOKEN", "")
        sent = {"Content-Type": "application/json", **headers}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        answer = self._send(path, body, sent)
        record.status = answer.status
        record.arm = answer.getheader("x-hatstack-arm", "")
        if answer.status == 200 and answer.getheader("content-type", "").startswith("text/event-stream"):
            self._stream(record, answer, began)
            return
        content = answer.read()
        if answer.status == 204:
            record.outcome = "silence"
        elif answer.status == 200:
            _take(record, json.loads(content))
        else:
            record.error = _told(content, answer.status)

    def _send(self, path: str, body: bytes, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        """Over the kept connection, opened anew if the gateway closed it while it was idle; nothing is sent twice."""
        kept = self._open
        if kept is not None and (kept.sock is None or select.select([kept.sock], [], [], 0)[0]):
            self.close()
        if self._open is None:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            self._open = kind(self._host, self._port, timeout=self._timeout)
        self._open.request("POST", self._base + path, body, dict(headers))
        return self._open.getresponse()

    def _stream(self, record: TurnRecord, answer: http.client.HTTPResponse, began: float) -> None:
        last, gaps, done = 0.0, [], False
        for line in answer:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                done = True
                continue
            event = json.loads(data)
            if event.get("error"):
                record.error = _told(data, record.status)
            if any((choice.get("delta") or {}).get("content") for choice in event.get("choices") or ()):
                now = time.perf_counter() - began
                if last:
                    gaps.append(now - last)
                else:
                    record.ttft = now
                last = now
            _take(record, event)
        record.gaps = tuple(gaps)
        if not done and not record.error:
            record.error = "the stream ended early"


def _take(record: TurnRecord, body: Mapping[str, Any]) -> None:
    """What an answer, or a chunk of one, says of itself."""
    usage = body.get("usage") or {}
    record.tokens_in = usage.get("prompt_tokens") or record.tokens_in
    record.tokens_out = usage.get("completion_tokens") or record.tokens_out
    record.release = body.get("release") or record.release
    record.harness = body.get("harness") or record.harness
    record.outcome = body.get("outcome") or record.outcome
    if isinstance(body.get("turn"), int):
        record.turn = body["turn"]
        return
    kind, _, rest = str(body.get("id") or "").partition("-")
    _, dash, number = rest.rpartition("-")
    if kind == "chatcmpl" and dash and number.isdecimal():
        record.turn = int(number)


def _told(content: bytes, status: int) -> str:
    try:
        error = json.loads(content)["error"]
        return f"{status} {error.get('kind') or error.get('type')}: {error.get('message')}"[:200]
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{status} {content[:80].decode(errors='replace')}"
