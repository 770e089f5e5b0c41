"""Prometheus metrics of the gateway; labels workspace, release, arm, harness (12 hex), never a room or a viewer."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LABELS = ("workspace", "release", "arm", "harness")
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 7.5, 10, 15, 30)


class Metrics:
    """One set per gateway, in a collector registry of its own so that tests do not share it."""

    def __init__(self) -> None:
        self.collector = CollectorRegistry()
        self.turns = Counter(
            "hatstack_gateway_turns_total", "Turns by outcome", (*LABELS, "outcome"), registry=self.collector
        )
        self.turn_seconds = Histogram(
            "hatstack_gateway_turn_seconds", "Whole turn", LABELS, buckets=SECONDS, registry=self.collector
        )
        self.first_text_seconds = Histogram(
            "hatstack_gateway_first_text_seconds",
            "To the first shown text",
            LABELS,
            buckets=SECONDS,
            registry=self.collector,
        )
        self.model_calls = Counter("hatstack_gateway_model_calls_total", "Model calls", LABELS, registry=self.collector)
        self.tool_calls = Counter(
            "hatstack_gateway_tool_calls_total", "Tool calls by failure", (*LABELS, "failure"), registry=self.collector
        )
        self.tokens = Counter(
            "hatstack_gateway_tokens_total", "Tokens by direction", (*LABELS, "direction"), registry=self.collector
        )
        self.open_turns = Gauge("hatstack_gateway_open_turns_count", "Turns in progress", registry=self.collector)
        self.refused = Counter(
            "hatstack_gateway_refused_requests_total",
            "Requests not admitted, by reason",
            ("reason",),
            registry=self.collector,
        )
        self.dropped_traces = Gauge(
            "hatstack_gateway_dropped_traces_count", "Traces shed by the full queue", registry=self.collector
        )
        self.fallbacks = Counter(
            "hatstack_gateway_arm_fallbacks_total",
            "Turns served by another arm than assigned",
            LABELS,
            registry=self.collector,
        )
        self.exposed = Counter(
            "hatstack_gateway_exposed_units_total",
            "Units that met their assigned arm for the first time under a split",
            LABELS,
            registry=self.collector,
        )
        self.moves = Counter(
            "hatstack_gateway_arm_moves_total",
            "Running conversations that changed arms, by reason",
            (*LABELS, "reason"),
            registry=self.collector,
        )
        self.shadows = Counter(
            "hatstack_gateway_shadow_turns_total",
            "Copies of turns that a shadow arm answered, by outcome",
            (*LABELS, "outcome"),
            registry=self.collector,
        )
