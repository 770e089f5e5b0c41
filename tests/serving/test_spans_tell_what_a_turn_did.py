"""Turns leave as OpenTelemetry GenAI spans: one agent span with its model and tool calls below it, without texts by default."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from hat_serving.gateway.telemetry import Telemetry, otlp
from hat_serving.gateway.traces import TraceWriter
from tests.serving.conftest import World


class Collector(BaseHTTPRequestHandler):
    """An OTLP/HTTP receiver."""

    received: list[ExportTraceServiceRequest]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        assert self.path == "/v1/traces"
        type(self).received.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def collector() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    handler = type("Fresh", (Collector,), {"received": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", handler.received
    server.shutdown()


def told(world: World, telemetry: Telemetry, folder: Path) -> None:
    """One turn with a tool, its trace handed on as the gateway does."""
    assert world.host is not None
    writer = TraceWriter(folder, also=telemetry.take)
    world.host._recorder._traces = writer
    assert world.say("what is the price", "talk").status_code == 200
    writer.close()
    telemetry.close()


def test_spans_follow_the_conventions(world: World, tmp_path: Path) -> None:
    memory = InMemorySpanExporter()
    told(world, Telemetry(SimpleSpanProcessor(memory)), tmp_path / "t")
    spans = memory.get_finished_spans()
    assert [span.name for span in spans] == [
        "invoke_agent shop",
        "chat primary",
        "execute_tool get_item",
        "chat primary",
    ]
    agent = spans[0]
    assert agent.attributes is not None
    assert agent.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert agent.attributes["hatstack.arm"] == "stable"
    assert agent.attributes["hatstack.outcome"] == "reply"
    assert all(span.parent is not None and span.parent.span_id == agent.context.span_id for span in spans[1:])
    assert len({span.context.trace_id for span in spans}) == 1
    assert all((span.end_time or 0) >= (span.start_time or 0) > 1_600_000_000 * 10**9 for span in spans)
    assert agent.resource.attributes["service.name"] == "hatstack-gateway"
    values = [str(value) for span in spans for value in (span.attributes or {}).values()]
    assert not any(text in value for value in values for text in ("it costs", "the price", "mug"))


def test_texts_go_out_only_when_asked_for(world: World, tmp_path: Path) -> None:
    memory = InMemorySpanExporter()
    told(world, Telemetry(SimpleSpanProcessor(memory), contents=True), tmp_path / "t")
    assert any("it costs 42" in str(span.attributes) for span in memory.get_finished_spans())


def test_a_real_receiver_gets_them(
    world: World, tmp_path: Path, collector: tuple[str, list[ExportTraceServiceRequest]]
) -> None:
    url, received = collector
    told(world, otlp(url), tmp_path / "t")
    spans = [
        span
        for one in received
        for resource in one.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert sorted(span.name for span in spans) == [
        "chat primary",
        "chat primary",
        "execute_tool get_item",
        "invoke_agent shop",
    ]


def test_a_collector_that_is_away_costs_viewers_nothing(world: World, tmp_path: Path) -> None:
    assert world.host is not None
    world.host._recorder._traces = TraceWriter(tmp_path / "t", also=otlp("http://127.0.0.1:9").take)
    for number in range(20):
        assert world.say("hi", f"c{number}").status_code == 200
