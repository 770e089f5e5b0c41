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
from typing import Any, Protocol
from urllib.parse import urlencode

from hat_serving.canary.errors import MetricsError
from hat_serving.canary.gates import Counts, judge_ratio, judge_share, judge_threshold
from hat_serving.canary.spec import Judged, Metric, RolloutSpec, Threshold
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


class EvidenceSource(Protocol):
    """Something that knows what was found out about a digest."""

    def newest(self, subject: str, kind: str) -> dict[str, Any] | None:
        """Content of the newest evidence of that type; None: there is none yet. Raises MetricsError."""


class RegistryEvidence:
    """The registry's API. `token`: of an account that may read; empty where the registry is open."""

    def __init__(self, url: str, timeout: float = 10.0, token: str = "") -> None:
        self._url, self._timeout, self._token = url.rstrip("/"), timeout, token

    def newest(self, subject: str, kind: str) -> dict[str, Any] | None:
        """By subject, the newest first."""
        import urllib3

        place = f"{self._url}/api/v1/evidence"
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        url = f"{place}?{urlencode({'subject': subject})}"
        try:
            answer = urllib3.request("GET", url, headers=headers, timeout=self._timeout, retries=False)
            body = json.loads(answer.data)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise MetricsError(f"no usable answer: {error}", place=place) from error
        if answer.status >= 400:
            raise MetricsError(str(body.get("title", f"status {answer.status}")), place=place)
        return next((dict(one["content"]) for one in body["items"] if one["type"] == kind), None)


class QueryMetrics:
    """Measurements from queries and evidence."""

    def __init__(self, source: QuerySource | None, evidence: EvidenceSource | None = None) -> None:
        self._source, self._evidence = source, evidence

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
        if metric.evidence is not None:
            return self._judged(spec, metric, metric.evidence)

        def ask(expression: str, arm: str) -> float | None:
            if self._source is None:
                raise MetricsError("no Prometheus is named", place="spec.prometheus")
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

    def _judged(self, spec: RolloutSpec, metric: Metric, rule: Judged) -> Measurement:
        """The release's number, or its difference to the baseline's, against the bounds."""
        if self._evidence is None:
            raise MetricsError("no registry is named", place="spec.registry")
        value = _at(self._evidence.newest(spec.release, rule.type), rule.path)
        if value is not None and rule.against == "baseline":
            other = _at(self._evidence.newest(spec.baseline, rule.type), rule.path)
            value = None if other is None else value - other
        bounds = Threshold(query="evidence", success=rule.success, failure=rule.failure)
        return judge_threshold(metric.model_copy(update={"minimum_sample": 0}), bounds, value, None)


def _at(content: dict[str, Any] | None, path: str) -> float | None:
    """The number at a path of keys; None where there is none yet."""
    found: Any = content
    for key in path.split("."):
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    if isinstance(found, dict) and "mean" in found:
        found = found["mean"]
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise MetricsError(f"{path} is a {type(found).__name__}, not a number", place="evidence")
    return float(found)


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
