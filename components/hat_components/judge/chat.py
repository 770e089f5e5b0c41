"""Asks an OpenAI-compatible endpoint for a judge: bounded, retried, counted, cached.

Always holds: whatever the server does becomes a `Completion` or a `Refusal` with a reason, never an exception; at most
`parallel` requests are in flight; once the budget is spent nothing more is sent; an answer from the cache costs nothing
and is the byte-same answer. A key never leaves the environment. Not here: what is asked (prompt), reading it (verdict).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hat_components.data import write_text
from hat_components.judge.verdict import Reason
from hat_components.step import InputError
from hat_harness.digest import decimals, digest_json

Structured = Literal["json_schema", "json_object", "none"]
_LADDER: tuple[Structured, ...] = ("json_schema", "json_object", "none")
_WAIT_MAX_S = 30.0


class EndpointConfig(BaseModel):
    """One model behind one endpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(pattern=r"^https?://")
    """Base URL up to and including `/v1`."""
    model: str = Field(min_length=1)
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; the key itself is never in a config."""
    temperature: float = Field(default=0.0, ge=0, le=2)
    max_tokens: int = Field(default=1024, ge=16)
    """Limit of one answer; twice that when an answer was cut off."""
    seed: int = 1
    structured: Structured = "json_schema"
    """How the answer's form is demanded; a server that refuses one is asked with the next weaker."""
    parallel: int = Field(default=4, ge=1, le=256)
    """Requests in flight."""
    attempts: int = Field(default=4, ge=1, le=10)
    """Tries of one request; only time-outs, 429 and 5xx are tried again."""
    backoff_s: float = Field(default=0.5, ge=0)
    """Wait before the second try, doubled each time; a server's Retry-After counts up to 30 s."""
    timeout_s: float = Field(default=60.0, gt=0)
    prompt_price: float = Field(default=0.0, ge=0)
    """Cost of a million prompt tokens, in whatever currency the budget is."""
    completion_price: float = Field(default=0.0, ge=0)
    """Cost of a million completion tokens."""


@dataclass
class Usage:
    """What judging took. Additions are made under the owner's lock."""

    requests: int = 0
    """Sent, tries included."""
    cached: int = 0
    """Answers that came from the cache."""
    retries: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    def add(self, other: Usage) -> None:
        """Count another's too."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True, slots=True)
class Completion:
    """One assistant message."""

    text: str
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    """OpenAI tool calls as they came."""
    cut_off: bool = False
    """The output ended at its token limit."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """There is no message, and why."""

    reason: Reason
    detail: str = ""


class Cache:
    """Answers by digest of the request, one small file each; None keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, key: str) -> dict[str, Any] | None:
        """The stored response body; a damaged file counts as absent."""
        if self._folder is None:
            return None
        try:
            value = json.loads(self._path(key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def put(self, key: str, body: Mapping[str, Any]) -> None:
        """Keep a response body."""
        if self._folder is not None:
            write_text(self._path(key), json.dumps(body, ensure_ascii=False))

    def _path(self, key: str) -> Path:
        assert self._folder is not None
        plain = key.removeprefix("sha256:")
        return self._folder / plain[:2] / f"{plain}.json"


@dataclass
class Budget:
    """What one run may spend over all members; None: no limit."""

    cost: float | None = None
    requests: int | None = None
    spent: Usage = field(default_factory=Usage)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> bool:
        """Count one request, where another may be sent. Answers in flight can exceed the cost, not the requests."""
        with self.lock:
            dear = self.cost is not None and self.spent.cost >= self.cost
            if dear or (self.requests is not None and self.spent.requests >= self.requests):
                return False
            self.spent.requests += 1
            return True


class Chat:
    """A client of one endpoint; use as a context manager. `pool` runs up to `parallel` cases side by side."""

    def __init__(
        self,
        config: EndpointConfig,
        *,
        cache: Cache | None = None,
        budget: Budget | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        import httpx

        key = os.environ.get(config.key_variable, "")
        if key and not key.isascii():
            raise InputError("the key is not plain text", place=config.key_variable, cure="check the variable")
        self.config = config
        self.usage = Usage()
        self.pool = ThreadPoolExecutor(config.parallel)
        self._cache = cache or Cache(None)
        self._budget = budget or Budget()
        self._sleep = sleep
        self._structured: Structured = config.structured
        self._gate = threading.Semaphore(config.parallel)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(timeout=config.timeout_s, headers=headers, follow_redirects=False)

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, *exc: object) -> None:
        self.pool.shutdown(cancel_futures=True)
        self._client.close()

    @property
    def weakened(self) -> bool:
        """The server would not hold answers to a schema as it was asked to."""
        return self._structured != self.config.structured

    def complete(
        self,
        messages: list[dict[str, Any]],
        *,
        schema: Mapping[str, Any] | None = None,
        tools: tuple[Mapping[str, Any], ...] = (),
        longer: bool = False,
    ) -> Completion | Refusal:
        """One assistant message. schema: what the answer must fit; tools: functions that it may call instead."""
        while True:
            structured = self._structured
            body = self._body(messages, schema, tools, longer, structured)
            key = digest_json(decimals({"url": self.config.url, "body": body}))
            known = self._cache.get(key)
            if known is not None:
                with self._budget.lock:
                    self._count(Usage(cached=1))
                return _read(known)
            sent = self._send(body)
            if isinstance(sent, dict):
                read = _read(sent)
                if isinstance(read, Completion):
                    self._cache.put(key, sent)
                return read
            if sent.detail != "HTTP 400" or schema is None or tools or structured == "none":
                return sent
            self._weaken(structured)

    def _body(
        self,
        messages: list[dict[str, Any]],
        schema: Mapping[str, Any] | None,
        tools: tuple[Mapping[str, Any], ...],
        longer: bool,
        structured: Structured,
    ) -> dict[str, Any]:
        config = self.config
        body: dict[str, Any] = {
            "model": config.model,
            "messages": messages,
            "temperature": config.temperature,
            "seed": config.seed,
            "max_tokens": config.max_tokens * (2 if longer else 1),
        }
        if tools:
            body["tools"] = list(tools)
        elif schema is not None and structured == "json_schema":
            wrapped = {"name": "verdict", "strict": True, "schema": dict(schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": wrapped}
        elif schema is not None and structured == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body

    def _weaken(self, tried: Structured) -> None:
        with self._budget.lock:
            if self._structured == tried:
                self._structured = _LADDER[_LADDER.index(tried) + 1]

    def _send(self, body: Mapping[str, Any]) -> dict[str, Any] | Refusal:
        last = Refusal("budget", "nothing may be sent")
        for attempt in range(self.config.attempts):
            if not self._budget.take():
                return Refusal("budget", "the budget of this run is spent")
            with self._gate:
                result, wait = self._once(body)
            with self._budget.lock:
                used = _used(result, self.config) if isinstance(result, dict) else Usage()
                used.retries = int(attempt > 0)
                self._count(used)
                self.usage.requests += 1
            if isinstance(result, dict):
                return result
            last = result
            if wait is None:
                return last
            if attempt + 1 < self.config.attempts:
                self._sleep(min(_WAIT_MAX_S, max(wait, self.config.backoff_s * 2**attempt)))
        return last

    def _once(self, body: Mapping[str, Any]) -> tuple[dict[str, Any] | Refusal, float | None]:
        """The response, or a refusal with the server's wish how long to wait; None: another try cannot help."""
        import httpx

        try:
            response = self._client.post(self.config.url.rstrip("/") + "/chat/completions", json=body)
        except httpx.TimeoutException:
            return Refusal("timeout", f"no answer within {self.config.timeout_s:g} s"), 0.0
        except httpx.HTTPError as error:
            return Refusal("unavailable", f"{type(error).__name__}: {error}"[:200]), 0.0
        status = response.status_code
        if status == 429:
            return Refusal("rate_limit", "HTTP 429"), _seconds(response.headers.get("retry-after"))
        if status >= 500 or status == 408:
            reason: Reason = "timeout" if status in (408, 504) else "server"
            return Refusal(reason, f"HTTP {status}"), _seconds(response.headers.get("retry-after"))
        if status != 200:
            return Refusal("server", f"HTTP {status}"), None
        try:
            value = response.json()
        except ValueError:
            return Refusal("malformed", "the response is not JSON"), 0.0
        return (value, None) if isinstance(value, dict) else (Refusal("malformed", "the response is no object"), 0.0)

    def _count(self, used: Usage) -> None:
        self.usage.add(used)
        self._budget.spent.add(used)


def _seconds(header: str | None) -> float:
    try:
        return max(0.0, float(header)) if header else 0.0
    except ValueError:
        return 0.0


def _used(body: Mapping[str, Any], config: EndpointConfig) -> Usage:
    usage = body.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    prompt, completion = (_whole(usage.get(name)) for name in ("prompt_tokens", "completion_tokens"))
    cost = (prompt * config.prompt_price + completion * config.completion_price) / 1e6
    return Usage(prompt_tokens=prompt, completion_tokens=completion, cost=cost)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _read(body: Mapping[str, Any]) -> Completion | Refusal:
    try:
        choice = body["choices"][0]
        message = choice["message"]
        content, finish = message.get("content") or "", choice.get("finish_reason")
        calls = tuple(call for call in message.get("tool_calls") or () if isinstance(call["function"]["name"], str))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        return Refusal("malformed", f"the response has no message ({type(error).__name__})")
    if message.get("refusal") or finish == "content_filter":
        return Refusal("refused", str(message.get("refusal") or finish)[:200])
    if not isinstance(content, str):
        return Refusal("malformed", "the content is no text")
    return Completion(content, calls, finish == "length")
