"""The latency replay: D_perf through live agent sessions against an engine, closed loop, at some concurrencies.

Always holds: each of C clients sends its next request when the one before is answered; warm-up requests are sent at the same
concurrency and not counted; a request counts as answered when its turn ended and no model call failed. Figures have the
definitions of the report catalogue. Not here: which requests (requests), pages (hat_components.paper).
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from hat_harness.drive import run_async
from hat_harness.events import ViewerMessage
from hat_harness.hooks import CompiledHooks, compile_hooks
from hat_harness.session import Session
from hat_harness.spec import Harness
from hat_harness.trace import turns
from hat_serving.loadtest.measured import percentile
from hat_serving.loadtest.requests import AgentRequest, RequestSet, Tools
from hat_serving.loadtest.timed import CallRecord, Endpoint, TimedModel

LIMIT_S = 15.0
"""A request answered within this is in time."""
SAMPLE_S = 0.1
"""How often the engine's metrics are looked at."""
SAMPLED = ("num_running_reqs", "num_queue_reqs", "spec_accept_length", "spec_accept_rate")


@dataclass(slots=True)
class RequestRecord:
    """One agent request. Seconds."""

    id: str
    wall: float
    outcome: str
    calls: list[CallRecord]

    @property
    def ok(self) -> bool:
        """The turn ended and no model call failed. What the reply is worth is the evaluation's."""
        return bool(self.outcome) and not any(call.failure for call in self.calls)


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles of something that was looked at during a run; None: the engine does not tell."""

    mean: float
    p50: float
    p95: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """From samples."""
        if not values:
            return None
        return cls(statistics.fmean(values), percentile(values, 0.5), percentile(values, 0.95))


@dataclass(frozen=True)
class Row:
    """One run at one concurrency."""

    model: str
    mtp: str
    """`on` or `off`."""
    concurrency: int
    run: int
    """Which run of the same cell, from 1."""
    requests: int
    wall_p50_s: float
    wall_p95_s: float
    ttft_p95_s: float
    """First token of the request's first model call."""
    decode_tokens_per_s: float
    """Arithmetic mean over model calls."""
    in_time: float
    """Share of the requests that were answered within `LIMIT_S`."""
    success: float
    """Share whose turn ended without a failed model call."""
    safe: float
    """Share that ended in the harness's safe reply: the model's answers did not pass the hooks."""
    calls_per_request: float
    tokens_in_per_call: float
    tokens_out_per_call: float
    seconds: float
    running: Spread | None = None
    queued: Spread | None = None
    accept_length: Spread | None = None
    """Tokens put out over verifications, the model's own included."""
    accept_rate_sglang: Spread | None = None
    """Kept drafts over (verifications x (draft tokens - 1))."""
    accept_rate_over_draft: Spread | None = None
    """Accepted length over draft tokens."""
    draft_tokens: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    endpoint: dict[str, Any] = field(default_factory=dict)
    """What the engine says of itself: version, model, settings of speculation."""


async def replay(
    requests: RequestSet,
    harness: Harness,
    endpoint: Endpoint,
    *,
    model: str,
    mtp: str,
    concurrency: int,
    run: int = 1,
) -> tuple[Row, list[RequestRecord]]:
    """One run: the warm-up, then the measured requests."""
    hooks = compile_hooks(harness)
    warm, measured = requests.requests[: requests.warm_up], requests.requests[requests.warm_up :]
    await _loop(warm, harness, hooks, endpoint, concurrency)
    watch = _Watch(endpoint)
    looking = asyncio.create_task(watch.look())
    began = time.perf_counter()
    records = await _loop(measured, harness, hooks, endpoint, concurrency)
    seconds = time.perf_counter() - began
    looking.cancel()
    with suppress(asyncio.CancelledError):
        await looking
    about = await described(endpoint)
    return row(
        records, watch.seen, about, model=model, mtp=mtp, concurrency=concurrency, run=run, seconds=seconds
    ), records


async def _loop(
    requests: Sequence[AgentRequest], harness: Harness, hooks: CompiledHooks, endpoint: Endpoint, clients: int
) -> list[RequestRecord]:
    """All requests in order, each sent when one of the clients is free; records in the order of the requests."""
    found: dict[int, RequestRecord] = {}
    waiting: Iterator[tuple[int, AgentRequest]] = iter(enumerate(requests))

    async def client() -> None:
        for number, request in waiting:
            found[number] = await _one(request, harness, hooks, endpoint)

    await asyncio.gather(*(client() for _ in range(clients)))
    return [found[number] for number in sorted(found)]


async def _one(request: AgentRequest, harness: Harness, hooks: CompiledHooks, endpoint: Endpoint) -> RequestRecord:
    session = Session(harness, session_id=request.id, room=request.room, hooks=hooks, history=request.history)
    model = TimedModel(endpoint)
    viewers = request.viewers or ("viewer",) * len(request.texts)
    began = time.perf_counter()
    await run_async(session, [ViewerMessage(request.texts, viewers)], model, Tools(request))
    wall = time.perf_counter() - began
    return RequestRecord(request.id, wall, turns(session.trace)[-1].outcome, model.calls)


def row(
    records: Sequence[RequestRecord],
    seen: dict[str, list[float]],
    about: dict[str, Any],
    *,
    model: str,
    mtp: str,
    concurrency: int,
    run: int,
    seconds: float,
) -> Row:
    """The figures of a run."""
    answered = [one for one in records if one.ok]
    calls = [call for one in records for call in one.calls if not call.failure]
    firsts = [one.calls[0].ttft for one in records if one.calls and one.calls[0].ttft]
    decodes = [call.decode for call in calls if call.decode]
    failures: dict[str, int] = {}
    for kind in (call.failure for one in records for call in one.calls if call.failure):
        failures[kind] = failures.get(kind, 0) + 1
    drafts = int(about.get("speculative_num_draft_tokens") or 0) if about.get("speculative_algorithm") else 0
    lengths = [value for value in seen.get("spec_accept_length", []) if value > 0] if drafts else []
    rates = [value for value in seen.get("spec_accept_rate", []) if value > 0] if drafts else []
    count = max(1, len(records))
    return Row(
        model=model,
        mtp=mtp,
        concurrency=concurrency,
        run=run,
        requests=len(records),
        wall_p50_s=percentile([one.wall for one in answered], 0.5),
        wall_p95_s=percentile([one.wall for one in answered], 0.95),
        ttft_p95_s=percentile(firsts, 0.95),
        decode_tokens_per_s=statistics.fmean(decodes) if decodes else 0.0,
        in_time=sum(one.wall <= LIMIT_S for one in answered) / count,
        success=len(answered) / count,
        safe=sum(one.outcome == "safe" for one in records) / count,
        calls_per_request=sum(len(one.calls) for one in records) / count,
        tokens_in_per_call=statistics.fmean([call.tokens_in for call in calls]) if calls else 0.0,
        tokens_out_per_call=statistics.fmean([call.tokens_out for call in calls]) if calls else 0.0,
        seconds=seconds,
        running=Spread.of(seen.get("num_running_reqs", [])),
        queued=Spread.of(seen.get("num_queue_reqs", [])),
        accept_length=Spread.of(lengths),
        accept_rate_sglang=Spread.of(rates),
        accept_rate_over_draft=Spread.of([value / drafts for value in lengths]) if drafts else None,
        draft_tokens=drafts,
        failures=failures,
        endpoint=about,
    )


class _Watch:
    """Looks at the engine's metrics while a run goes on; engines without SGLang's names leave it empty."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.seen: dict[str, list[float]] = {}

    async def look(self) -> None:
        """Until cancelled."""
        while True:
            for name, value in gauges(await self._endpoint.text("/metrics")).items():
                self.seen.setdefault(name, []).append(value)
            await asyncio.sleep(SAMPLE_S)


_LINE = re.compile(rf"^sglang:({'|'.join(SAMPLED)})(?:\{{[^}}]*\}})? (\S+)$", re.MULTILINE)


def gauges(text: str) -> dict[str, float]:
    """SGLang's gauges of interest in a Prometheus page; series of several workers are summed, lengths and rates meant."""
    found: dict[str, list[float]] = {}
    for name, value in _LINE.findall(text):
        with suppress(ValueError):
            found.setdefault(name, []).append(float(value))
    return {
        name: statistics.fmean(values) if name.startswith("spec") else sum(values) for name, values in found.items()
    }


ABOUT = (
    "version",
    "served_model_name",
    "dtype",
    "device",
    "frontend",
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_num_draft_tokens",
    "speculative_accept_threshold_single",
    "speculative_accept_threshold_acc",
)


async def described(endpoint: Endpoint) -> dict[str, Any]:
    """What the engine says of itself, where it speaks SGLang."""
    with suppress(ValueError):
        told = json.loads(await endpoint.text("/server_info") or await endpoint.text("/get_server_info") or "{}")
        if isinstance(told, dict):
            return {name: told[name] for name in ABOUT if told.get(name) is not None}
    return {}


def to_json(rows: Sequence[Row], requests: RequestSet, harness: str, machine: dict[str, Any]) -> dict[str, Any]:
    """`loadtest.json` of `hat loadtest replay`."""
    return {
        "format": "hatstack.loadtest/1",
        "kind": "replay",
        "requests": {
            "digest": requests.digest,
            "warm_up": requests.warm_up,
            "measured": len(requests.requests) - requests.warm_up,
        },
        "harness": harness,
        "limit_s": LIMIT_S,
        "machine": machine,
        "rows": [asdict(one) for one in rows],
    }
