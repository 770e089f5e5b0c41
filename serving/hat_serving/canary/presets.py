"""Gates by name: the PromQL of what usually decides a rollout, for engines that speak SGLang's or vLLM's metric names.

    errors       share of requests that the engine answers with 5xx, both arms compared sequentially
    first-token  99th percentile of the time to the first token, seconds
    acceptance   mean accepted length of the draft head, as a ratio to the stable arm's
    queue        requests that wait at the engine
    turns        share of the gateway's turns that fail
    tool-errors  share of tool calls that fail
    cost         tokens per turn, as a ratio to the stable arm's
    split        units arrive in the promised shares

Each takes one number where it has a bound (`first-token=1.5`). Engine gates tell arms apart by the label `predictor`,
which the chart's PodMonitor sets; gateway gates by `arm`. Not here: what a verdict is (gates).
"""

from __future__ import annotations

from typing import Any, Literal

from hat_serving.canary.errors import InvalidRolloutError
from hat_serving.canary.spec import Metric

Engine = Literal["sglang", "vllm"]
ENGINE_GATES = ("errors", "first-token", "acceptance", "queue")
GATEWAY_GATES = ("turns", "tool-errors", "cost", "split")
BOUNDS = {
    "errors": 0.01,
    "first-token": 2.0,
    "acceptance": 0.9,
    "queue": 20.0,
    "turns": 0.02,
    "tool-errors": 0.02,
    "cost": 1.25,
    "split": 0.001,
}
"""Default bound per gate: largest harm of a share, largest value, or least ratio."""

_NAMES: dict[Engine, dict[str, str]] = {
    "sglang": {
        "failed": 'sum(increase({__name__="sglang:http_responses_total",predictor="$arm",status_code=~"5.."}[$window]))',
        "answered": 'sum(increase({__name__="sglang:http_responses_total",predictor="$arm"}[$window]))',
        "first": "sglang:time_to_first_token_seconds_bucket",
        "accepted": 'avg(avg_over_time({__name__="sglang:spec_accept_length",predictor="%s"}[$window]))',
        "waiting": "sglang:num_queue_reqs",
    },
    "vllm": {
        "failed": 'sum(increase(http_requests_total{predictor="$arm",status="5xx"}[$window]))',
        "answered": 'sum(increase(http_requests_total{predictor="$arm"}[$window]))',
        "first": "vllm:time_to_first_token_seconds_bucket",
        "accepted": (
            '(1 + sum(increase({__name__="vllm:spec_decode_num_accepted_tokens_total",predictor="%s"}[$window]))'
            ' / sum(increase({__name__="vllm:spec_decode_num_drafts_total",predictor="%s"}[$window])))'
        ),
        "waiting": "vllm:num_requests_waiting",
    },
}
_TURNS = "hatstack_gateway_turns_total"


def gate(text: str, engine: Engine = "sglang", interval: str = "60s") -> dict[str, Any]:
    """The metric of `NAME` or `NAME=BOUND`, as it stands in a manifest. Raises InvalidRolloutError."""
    name, _, given = text.partition("=")
    if name not in BOUNDS:
        raise InvalidRolloutError(
            f"no gate is called {name[:40]!r}", place="--gate", cure=f"one of: {', '.join(BOUNDS)}"
        )
    try:
        bound = float(given) if given else BOUNDS[name]
    except ValueError:
        raise InvalidRolloutError(f"{given[:40]!r} is no number", place=f"--gate {name}", cure="NAME=1.5") from None
    made = {"name": name, "interval": interval, **_kind(name, bound, _NAMES[engine])}
    Metric.model_validate(made)
    return made


def _kind(name: str, bound: float, names: dict[str, str]) -> dict[str, Any]:
    match name:
        case "errors":
            return _share(f"{names['failed']} or vector(0)", names["answered"], bound)
        case "first-token":
            query = f'sum by (le) (rate({{__name__="{names["first"]}",predictor="$arm"}}[$window]))'
            return _threshold(f"histogram_quantile(0.99, {query})", {"atMost": bound}, {"atLeast": 2 * bound}, 5)
        case "acceptance":
            one, other = (names["accepted"].replace("%s", arm) for arm in ("$arm", "$stable"))
            return _threshold(f"{one} / {other}", {"atLeast": bound}, {"atMost": bound * 0.9}, 3)
        case "queue":
            query = f'avg(avg_over_time({{__name__="{names["waiting"]}",predictor="$arm"}}[$window]))'
            return _threshold(query, {"atMost": bound}, {"atLeast": 2 * bound}, 3)
        case "turns":
            failed = f'sum(increase({_TURNS}{{arm="$arm",outcome=~"error|failed|restart"}}[$window])) or vector(0)'
            return _share(failed, f'sum(increase({_TURNS}{{arm="$arm"}}[$window]))', bound)
        case "tool-errors":
            calls = "hatstack_gateway_tool_calls_total"
            failed = f'sum(increase({calls}{{arm="$arm",failure!=""}}[$window])) or vector(0)'
            return _share(failed, f'sum(increase({calls}{{arm="$arm"}}[$window]))', bound)
        case "cost":
            one, other = (
                f'sum(increase(hatstack_gateway_tokens_total{{arm="{arm}"}}[$window]))'
                f' / sum(increase({_TURNS}{{arm="{arm}"}}[$window]))'
                for arm in ("$arm", "$stable")
            )
            return _threshold(f"({one}) / ({other})", {"atMost": bound}, {"atLeast": bound * 1.2}, 3)
        case _:
            units = 'sum(increase(hatstack_gateway_exposed_units_total{arm="$arm"}[$window]))'
            return {"sampleRatio": {"units": units, "alpha": bound}, "minimumSample": 100}


def _share(events: str, total: str, margin: float) -> dict[str, Any]:
    return {"share": {"events": events, "total": total, "margin": margin}, "minimumSample": 200}


def _threshold(query: str, success: dict[str, float], failure: dict[str, float], count: int) -> dict[str, Any]:
    rule = {"query": query, "success": success, "failure": failure}
    return {"threshold": rule, "count": count, "failureLimit": 1}
