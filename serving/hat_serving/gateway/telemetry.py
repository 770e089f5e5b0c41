"""Traces as OpenTelemetry GenAI spans to a collector, through the SDK's batching processor: bounded, off the request path.

Always holds: a span carries no text of viewers or tools unless the operator asks for contents; ids follow from the session, so
that a repeated export is the same spans; when the collector is away spans are dropped by the SDK and viewers notice nothing.
Not here: which spans a trace has (hat_harness.export).
"""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from hat_harness.export import Span, to_spans
from hat_harness.trace import Trace

SERVICE = "hatstack-gateway"


class Telemetry:
    """Turns traces into spans. `contents` puts texts into attributes too."""

    def __init__(self, processor: SpanProcessor, *, workspace: str = "default", contents: bool = False) -> None:
        self._processor = processor
        self._contents = contents
        self._resource = Resource.create({"service.name": SERVICE, "hatstack.workspace": workspace})
        self._scope = InstrumentationScope("hatstack.gateway")

    def take(self, trace: Trace, labels: Mapping[str, str]) -> None:
        """Queue the spans of a trace; `labels` (arm, release) go on every one."""
        for span in to_spans(trace, contents=self._contents):
            self._processor.on_end(self._readable(span, labels))

    def close(self) -> None:
        """Send what is queued and stop."""
        self._processor.shutdown()

    def _readable(self, span: Span, labels: Mapping[str, str]) -> ReadableSpan:
        parent = _context(span["trace_id"], span["parent_id"]) if span["parent_id"] else None
        return ReadableSpan(
            span["name"],
            _context(span["trace_id"], span["span_id"]),
            parent,
            self._resource,
            {**span["attributes"], **{f"hatstack.{key}": value for key, value in labels.items()}},
            kind=SpanKind[span["kind"]],
            status=Status(StatusCode[span["status"]]),
            start_time=span["start_ns"],
            end_time=span["end_ns"],
            instrumentation_scope=self._scope,
        )


def otlp(endpoint: str, *, contents: bool = False) -> Telemetry:
    """Telemetry to an OTLP/HTTP collector: its base address, or that of `/v1/traces`."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    url = endpoint if endpoint.endswith("/v1/traces") else endpoint.rstrip("/") + "/v1/traces"
    return Telemetry(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=5)), contents=contents)


def _context(trace: str, span: str) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
