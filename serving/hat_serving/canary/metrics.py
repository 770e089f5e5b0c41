"""Measures a rollout's metrics: fills the query templates, asks Prometheus, hands the numbers to the gates.

A query that cannot be answered is the verdict "error", never an exception: the machine counts it. `$window` is the
time since the step's clock started, so that nothing from before the split was in force is measured. Not here: what a
number means (gates).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlencode

from hat_serving.canary.errors import MetricsError
from hat_serving.canary.gates import Counts, judge_ratio, judge_share, judge_threshold
from hat_serving.canary.spec import Metric, RolloutSpec
from hat_serving.canary.state import Measurement

_PLACE = re.compile(r"\$(arm|stable|window|release|baseline)\b")


class MetricSource(Protocol):
    """Where measurements come from."""

    def measure(self, spec: RolloutSpec, names: Sequence[str], window: float, percent: int) -> tuple[Measurement, ...]:
        """One measurement per name over the last `window` seconds, while the canary gets `percent`."""


class QuerySource(Protocol):
    """Something that answers PromQL."""

    def query(self, expression: str) -> float | None:
        """The one number that an expression gives now; None: no data. Raises MetricsError."""


class Prometheus:
    """The HTTP API of Prometheus, or of anything that speaks it."""

    def __init__(self, url: str, timeout: float = 10.0) -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout

    def query(self, expression: str) -> float | None:
        """Instant query. An empty answer or NaN is None;

        More than one series is an error, because it hides a choice.
        """
        import urllib3

        place = f"{self._url}/api/v1/query"
        try:
            answer = urllib3.request(
                "GET", f"{place}?{urlencode({'query': expression})}", timeout=self._timeout, retries=False
            )
            body = json.loads(answer.data)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise MetricsError(f"no usable answer: {error}", place=place) from error
        if body.get("status") != "success":
            raise MetricsError(str(body.get("error", f"status {answer.status}")), place=expression)
        return _number(body["data"], expression)


class QueryMetrics:
    """Measurements from queries."""

    def __init__(self, source: QuerySource) -> None:
        self._source = source

    def measure(self, spec: RolloutSpec, names: Sequence[str], window: float, percent: int) -> tuple[Measurement, ...]:
        """One measurement per name; a failed query is the verdict "error"."""
        found = []
        for name in names:
            try:
                found.append(self._one(spec, spec.metric(name), window, percent))
            except MetricsError as error:
                found.append(Measurement(name, "error", None, str(error)))
        return tuple(found)

    def _one(self, spec: RolloutSpec, metric: Metric, window: float, percent: int) -> Measurement:
        def ask(expression: str, arm: str) -> float | None:
            return self._source.query(fill(expression, spec, arm, window))

        canary, stable = spec.arms.canary, spec.arms.stable
        if (threshold := metric.threshold) is not None:
            sample = ask(threshold.sample_query, canary) if threshold.sample_query else None
            return judge_threshold(metric, threshold, ask(threshold.query, canary), sample)
        if (share := metric.share) is not None:
            numbers = [ask(query, arm) for arm in (canary, stable) for query in (share.events, share.total)]
            if any(number is None for number in numbers):
                return Measurement(
                    metric.name, "waiting", None, "a query has no data; `or vector(0)` says that none means 0"
                )
            events, total, base_events, base_total = (number or 0.0 for number in numbers)
            return judge_share(metric, share, Counts(events, total), Counts(base_events, base_total))
        assert metric.sample_ratio is not None
        units = [ask(metric.sample_ratio.units, arm) or 0.0 for arm in (canary, stable)]
        return judge_ratio(metric, metric.sample_ratio, units[0], units[1], percent)


def fill(expression: str, spec: RolloutSpec, arm: str, window: float) -> str:
    """The query with `$arm`, `$stable`, `$window`, `$release` and `$baseline` filled in; any other `$` stays."""
    names = {"arm": arm, "stable": spec.arms.stable, "release": spec.release, "baseline": spec.baseline}
    values = names | {"window": f"{max(int(window), 1)}s"}
    return _PLACE.sub(lambda match: values[match.group(1)], expression)


def _number(data: dict[str, object], expression: str) -> float | None:
    kind, result = data.get("resultType"), data.get("result")
    if kind == "scalar" and isinstance(result, list):
        value = float(result[1])
        return None if math.isnan(value) else value
    if kind != "vector" or not isinstance(result, list):
        raise MetricsError(f"the answer is a {kind}, not one number", place=expression, cure="wrap it in sum(…)")
    if len(result) > 1:
        raise MetricsError(f"{len(result)} series where one is needed", place=expression, cure="wrap it in sum(…)")
    if not result:
        return None
    value = float(result[0]["value"][1])
    return None if math.isnan(value) else value
