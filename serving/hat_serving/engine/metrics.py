"""Prometheus metrics under SGLang's names and labels, so that dashboards and canary gates read both engines alike.

Always holds: a name that SGLang 0.5.23 has is of SGLang's type, with its labels and buckets; extra labels are on all but
the HTTP metrics, as there. What has no meaning on one CPU process (ranks) has SGLang's value for one GPU. Not here: the
rate by the published report's definition is under a name of our own. Not here: when to observe (app).
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hat_serving.engine.engine import Engine
from hat_serving.engine.request import Progress, Request

_SHORT = (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6)
_TOKEN_TIME = (*_SHORT, 0.8, 1, 2, 4, 6, 8)
_FIRST = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_WHOLE = (*_FIRST, 600, 1200, 1800, 2400)
_COUNTS = (
    *(100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10_000, 12_500, 15_000),
    *(17_500, 20_000, 22_500, 25_000, 27_500, 30_000, 35_000, 40_000, 60_000, 80_000, 100_000, 200_000, 300_000),
    *(400_000, 600_000, 800_000, 1_000_000, 1_100_000),
)
_QUEUE = (
    *(0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100),
    *(200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000),
)


class Metrics:
    """All metrics of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.registry = CollectorRegistry()
        extra = engine.options.extra_metric_labels
        self._base = {"engine_type": "unified", "model_name": engine.options.name, **extra}
        self._ranks = {**self._base, "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
        names, streamed = list(self._base), [*self._base, "is_streaming"]
        registry = self.registry

        def histogram(name: str, text: str, labels: Iterable[str], buckets: Iterable[float]) -> Histogram:
            return Histogram(f"sglang:{name}", text, list(labels), registry=registry, buckets=tuple(buckets))

        def counter(name: str, text: str, labels: Iterable[str]) -> Counter:
            return Counter(f"sglang:{name}", text, list(labels), registry=registry)

        self._first = histogram("time_to_first_token_seconds", "Time to first token.", streamed, _FIRST)
        self._whole = histogram("e2e_request_latency_seconds", "End-to-end latency.", streamed, _WHOLE)
        self._each = histogram(
            "request_time_per_output_token_seconds", "Mean time per output token.", streamed, _TOKEN_TIME
        )
        self._between = histogram("inter_token_latency_seconds", "Time between tokens.", names, _TOKEN_TIME)
        self._prompt = histogram("prompt_tokens_histogram", "Prompt lengths.", names, _COUNTS)
        self._uncached = histogram("uncached_prompt_tokens_histogram", "Uncached prompt lengths.", names, _COUNTS)
        self._generated = histogram("generation_tokens_histogram", "Answer lengths.", names, _COUNTS)
        self._queue = histogram("queue_time_seconds", "Time in the queue.", self._ranks, _QUEUE)
        self._prompts = counter("prompt_tokens_total", "Prefill tokens processed.", streamed)
        self._tokens = counter("generation_tokens_total", "Generation tokens processed.", streamed)
        self._requests = counter("num_requests_total", "Requests processed.", streamed)
        self._cached = counter("cached_tokens_total", "Cached prompt tokens.", [*names, "cache_source"])
        self._aborted = counter("num_aborted_requests_total", "Requests aborted.", names)
        self._verified = counter("spec_verify_calls_total", "Speculative verifications.", names)
        self.http_requests = counter("http_requests_total", "HTTP requests.", ("endpoint", "method"))
        self.http_responses = counter("http_responses_total", "HTTP responses.", ("endpoint", "status_code", "method"))
        self.http_active = Gauge(
            "sglang:http_requests_active", "HTTP requests under way.", ("endpoint", "method"), registry=registry
        )
        registry.register(_Now(engine, self._ranks))

    def render(self) -> bytes:
        """The text of `/metrics`."""
        lines = generate_latest(self.registry).splitlines(keepends=True)
        return b"".join(line for line in lines if b"_created" not in line.partition(b"{")[0])  # SGLang has none

    def observe(self, request: Request, progress: Progress) -> None:
        """Account for a finished request."""
        times, base = request.times, self._base
        streamed = {**base, "is_streaming": str(request.stream).lower()}
        if (progress.finish or {}).get("type") == "abort":
            self._aborted.labels(**base).inc()
        self._requests.labels(**streamed).inc()
        self._prompts.labels(**streamed).inc(len(request.prompt))
        self._tokens.labels(**streamed).inc(progress.completion_tokens)
        self._whole.labels(**streamed).observe(times.finished - times.arrived)
        self._prompt.labels(**base).observe(len(request.prompt))
        self._uncached.labels(**base).observe(len(request.prompt) - request.cached)
        self._generated.labels(**base).observe(progress.completion_tokens)
        if request.cached:
            self._cached.labels(**base, cache_source="device").inc(request.cached)
        if times.started:
            self._queue.labels(**self._ranks).observe(max(times.started - times.arrived, 0.0))
        if times.first:
            self._first.labels(**streamed).observe(times.first - times.arrived)
            later = progress.completion_tokens - 1
            if later > 0:
                mean = (times.finished - times.first) / later
                self._each.labels(**streamed).observe(mean)
                between = self._between.labels(**base)
                for _ in range(later if request.stream else 0):  # SGLang sees the tokens of streams alone
                    between.observe(mean)
        if request.stats is not None:
            self._verified.labels(**base).inc(request.stats.verified)


class _Now:
    """The engine's state at the moment of a scrape."""

    def __init__(self, engine: Engine, labels: dict[str, str]) -> None:
        self._engine, self._labels = engine, labels

    def collect(self) -> Iterable[Metric]:
        """Gauges and totals, read from the engine's counters."""
        counters, options = self._engine.scheduler.counters, self._engine.options
        capacity = options.max_running_requests * self._engine.context
        recent = list(counters.recent)
        prompts = sum(prompt for prompt, _ in recent)
        values: dict[str, float] = {
            "num_running_reqs": counters.running,
            "num_queue_reqs": counters.waiting,
            "num_grammar_queue_reqs": 0,
            "num_used_tokens": counters.row_tokens,
            "token_usage": counters.row_tokens / capacity,
            "full_token_usage": counters.row_tokens / capacity,
            "gen_throughput": counters.throughput if counters.running else 0.0,
            "cache_hit_rate": sum(cached for _, cached in recent) / prompts if prompts else 0.0,
            "max_total_num_tokens": capacity,
            "kv_available_tokens": capacity - counters.row_tokens,
            "kv_evictable_tokens": counters.kept_tokens,
            "kv_used_tokens": counters.row_tokens,
            "context_len": self._engine.context,
            "page_size": 1,
            "utilization": counters.running / options.max_running_requests,
            "spec_accept_length": counters.accept_length,
            "spec_accept_rate": counters.accept_rate,
            "spec_num_steps": options.speculative_num_steps if options.speculative_algorithm else 0,
            "spec_num_draft_tokens": options.draft_tokens,
        }
        for name, value in values.items():
            yield self._gauge(f"sglang:{name}", value)
        over = counters.accept_length / options.draft_tokens if options.draft_tokens else 0.0
        yield self._gauge("hatstack_engine_spec_accept_length_over_draft_tokens", over)
        total = CounterMetricFamily("sglang:realtime_tokens", "Tokens by kind of work.", labels=[*self._labels, "mode"])
        work = {
            "prefill_compute": counters.prompt_tokens - counters.cached_tokens,
            "prefill_cache": counters.cached_tokens,
            "decode": counters.generated_tokens,
        }
        for mode, count in work.items():
            total.add_metric([*self._labels.values(), mode], count)
        yield total

    def _gauge(self, name: str, value: float) -> Metric:
        gauge = GaugeMetricFamily(name, f"{name.split(':')[-1].replace('_', ' ')}.", labels=list(self._labels))
        gauge.add_metric(list(self._labels.values()), value)
        return gauge
