"""What a measurement may say:

Too little data waits, harm fails, and safety needs the whole interval inside the margin.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlparse

import pytest

from hat_serving.canary.errors import InvalidRolloutError, MetricsError
from hat_serving.canary.gates import Counts, judge_ratio, judge_share, judge_threshold
from hat_serving.canary.metrics import Prometheus, QueryMetrics, fill
from hat_serving.canary.spec import Metric, RolloutSpec, parse_duration, read_spec

BASE: dict[str, Any] = {
    "release": "r2",
    "baseline": "r1",
    "target": {"backend": "gateway", "url": "http://gateway", "deployment": "chat"},
    "steps": [{"setWeight": 10}],
    "prometheus": {"url": "http://prometheus"},
}


def threshold(**more: Any) -> Metric:
    rule = {"query": "q", "success": {"atMost": 2.0}, "failure": {"atLeast": 4.0}, "sampleQuery": "n"}
    return Metric.model_validate({"name": "latency", "threshold": rule, **more})


def share(**rule: Any) -> Metric:
    return Metric.model_validate(
        {"name": "errors", "minimumSample": 50, "share": {"events": "e", "total": "t", "margin": 0.05, **rule}}
    )


def said(metric: Metric, canary: tuple[float, float], stable: tuple[float, float]) -> str:
    assert metric.share is not None
    return judge_share(metric, metric.share, Counts(*canary), Counts(*stable)).verdict


@pytest.mark.parametrize(
    ("value", "sample", "verdict"),
    [
        (None, 500, "waiting"),
        (1.0, 10, "waiting"),
        (1.0, None, "waiting"),
        (1.0, 500, "success"),
        (3.0, 500, "inconclusive"),
        (5.0, 500, "failure"),
    ],
)
def test_a_threshold_waits_for_its_sample(value: float | None, sample: float | None, verdict: str) -> None:
    metric = threshold(minimumSample=100)
    assert metric.threshold is not None
    assert judge_threshold(metric, metric.threshold, value, sample).verdict == verdict


def test_a_share_is_decided_by_its_interval() -> None:
    assert said(share(), (1, 20), (100, 10_000)) == "waiting"
    assert said(share(), (1200, 4000), (400, 4000)) == "failure"
    assert said(share(), (400, 40_000), (400, 40_000)) == "success"
    assert said(share(), (30, 300), (20, 300)) == "waiting"


def test_no_event_at_all_is_concluded_only_once_enough_units_have_none() -> None:
    assert said(share(), (0, 60), (0, 60)) == "waiting"
    assert said(share(), (0, 5000), (0, 5000)) == "success"


@pytest.mark.parametrize(
    ("canary", "stable", "verdict"),
    [((60, 60), (0, 60), "failure"), ((60, 60), (60, 60), "success"), ((0, 60), (60, 60), "success")],
)
def test_shares_at_their_bounds_are_judged(canary: tuple[int, int], stable: tuple[int, int], verdict: str) -> None:
    metric = Metric.model_validate({"name": "m", "share": {"events": "e", "total": "t", "margin": 0.3}})
    assert metric.share is not None
    assert judge_share(metric, metric.share, Counts(*canary), Counts(*stable)).verdict == verdict


def test_for_a_share_of_good_answers_less_is_harm() -> None:
    better = share(better="higher")
    assert said(better, (2000, 4000), (3600, 4000)) == "failure"
    assert said(better, (39_600, 40_000), (39_600, 40_000)) == "success"


def false_alarm(source: random.Random, rate: float, looks: int) -> bool:
    canary = stable = 0
    for look in range(1, looks + 1):
        canary += sum(source.random() < rate for _ in range(100))
        stable += sum(source.random() < rate for _ in range(100))
        if said(share(), (canary, 100 * look), (stable, 100 * look)) == "failure":
            return True
    return False


def test_peeking_does_not_raise_the_rate_of_false_alarms() -> None:
    source = random.Random(7)
    alarms = sum(false_alarm(source, 0.1, 15) for _ in range(200))
    assert alarms <= 200 * 0.05


def test_units_that_arrive_in_the_wrong_shares_are_noticed() -> None:
    metric = Metric.model_validate({"name": "ratio", "sampleRatio": {"units": "u"}})
    assert metric.sample_ratio is not None
    assert judge_ratio(metric, metric.sample_ratio, 1000, 9000, 10).verdict == "success"
    assert judge_ratio(metric, metric.sample_ratio, 1600, 8400, 10).verdict == "failure"
    assert judge_ratio(metric, metric.sample_ratio, 0, 0, 10).verdict == "waiting"
    assert judge_ratio(metric, metric.sample_ratio, 100, 0, 100).verdict == "waiting"


def test_templates_fill_only_their_own_names() -> None:
    spec = read_spec(BASE)
    text = fill('rate(x{arm="$arm",r="$release",b="$baseline",p=~"a$"}[$window]) $other', spec, "canary", 90.7)
    assert text == 'rate(x{arm="canary",r="r2",b="r1",p=~"a$"}[90s]) $other'


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("0.5s", 0.5), (7, 7)])
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "m", "1d", "-5s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


def test_a_wrong_spec_lists_every_problem() -> None:
    raw = {**BASE, "steps": [{"pause": {}}, {"setWeight": 5, "pause": {}}], "typo": 1}
    with pytest.raises(InvalidRolloutError) as caught:
        read_spec(raw)
    assert "steps.1" in str(caught.value)
    assert "typo" in str(caught.value)


class Answers(BaseHTTPRequestHandler):
    """The wire format of Prometheus' HTTP API; the real server is asked in the cluster tests."""

    bodies: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        (expression,) = parse_qs(urlparse(self.path).query)["query"]
        body = json.dumps(self.bodies[expression]).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def prometheus() -> Iterator[Prometheus]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Prometheus(f"http://127.0.0.1:{server.server_port}", timeout=5)
    server.shutdown()
    thread.join()
    server.server_close()


def vector(*values: str) -> dict[str, Any]:
    return {
        "status": "success",
        "data": {"resultType": "vector", "result": [{"metric": {}, "value": [0, v]} for v in values]},
    }


def test_answers_of_prometheus_become_one_number_or_a_reason(prometheus: Prometheus) -> None:
    Answers.bodies = {
        "one": vector("2.5"),
        "none": vector(),
        "nan": vector("NaN"),
        "two": vector("1", "2"),
        "scalar": {"status": "success", "data": {"resultType": "scalar", "result": [0, "3"]}},
        "bad": {"status": "error", "error": "parse error"},
    }
    assert prometheus.query("one") == 2.5
    assert prometheus.query("scalar") == 3
    assert prometheus.query("none") is None
    assert prometheus.query("nan") is None
    with pytest.raises(MetricsError, match="2 series"):
        prometheus.query("two")
    with pytest.raises(MetricsError, match="parse error"):
        prometheus.query("bad")


def test_an_unreachable_server_is_an_error_and_not_a_success() -> None:
    spec: RolloutSpec = read_spec(
        {**BASE, "metrics": [{"name": "m", "threshold": {"query": "q", "success": {"atMost": 1}}}]}
    )
    (measured,) = QueryMetrics(Prometheus("http://127.0.0.1:9", timeout=1)).measure(spec, ["m"], 60, 10)
    assert measured.verdict == "error"
    assert measured.value is None


class Known:
    """Evidence by (subject, type)."""

    def __init__(self, **content: object) -> None:
        self.content = content

    def newest(self, subject: str, kind: str) -> dict[str, Any] | None:
        found = self.content.get(subject)
        return {"suites": {"live": found}} if kind == "evaluation" and found is not None else None


@pytest.mark.parametrize(
    ("against", "known", "verdict"),
    [
        ("bound", {"r2": {"effectiveness": {"mean": 0.9}}}, "success"),
        ("bound", {"r2": {"effectiveness": 0.5}}, "failure"),
        ("bound", {"r2": {"effectiveness": 0.75}}, "inconclusive"),
        ("bound", {}, "waiting"),
        ("bound", {"r2": {"other": 1}}, "waiting"),
        ("bound", {"r2": {"effectiveness": "good"}}, "error"),
        ("baseline", {"r2": {"effectiveness": 0.9}}, "waiting"),
        ("baseline", {"r2": {"effectiveness": 0.9}, "r1": {"effectiveness": 0.05}}, "success"),
        ("baseline", {"r2": {"effectiveness": 0.9}, "r1": {"effectiveness": 0.5}}, "failure"),
    ],
)
def test_judged_quality_is_asked_of_the_registry(against: str, known: dict[str, object], verdict: str) -> None:
    rule = {
        "path": "suites.live.effectiveness",
        "against": against,
        "success": {"atLeast": 0.8},
        "failure": {"atMost": 0.6},
    }
    raw = {
        "release": "r2", "baseline": "r1",
        "target": {"backend": "gateway", "url": "http://g", "deployment": "live", "harness": "h"},
        "steps": [{"setWeight": 5}], "metrics": [{"name": "judged", "evidence": rule}], "registry": {"url": "http://r"},
    }  # fmt: skip
    (found,) = QueryMetrics(None, Known(**known)).measure(read_spec(raw), ["judged"], 60.0, 5)
    assert found.verdict == verdict
