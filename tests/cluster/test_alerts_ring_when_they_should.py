"""Prometheus' own promtool takes the alerts, and each of them rings when its trouble is there, and not before."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.charts import rules

TURN = 'hatstack_gateway_turns_total{workspace="w",release="r",arm="a",outcome="%s"}'
FAST_ENOUGH = 'hatstack_gateway_first_text_seconds_bucket{workspace="w",arm="a",le="3.0"}'
ALL = 'hatstack_gateway_first_text_seconds_count{workspace="w",arm="a"}'
FALLBACKS = 'hatstack_gateway_arm_fallbacks_total{workspace="w",arm="a"}'
CANARY = 'hatstack_canary_%s{workspace="w",release="r"}'
QUEUE = '{__name__="sglang:num_queue_reqs",predictor="p"}'
ACCEPTED = '{__name__="sglang:spec_accept_length",predictor="p"}'
Series = dict[str, str]


def turns(failed: int) -> Series:
    """A hundred turns a minute, so many of them failed."""
    return {TURN % "ok": f"0+{100 - failed}x60", TURN % "failed": f"0+{failed}x60"}


def texts(slow: int) -> Series:
    return {FAST_ENOUGH: f"0+{100 - slow}x60", ALL: "0+100x60"}


def canary(desired: int, effective: int, clock: int) -> Series:
    names = ("desired_weight_percent", "effective_weight_percent", "clock_running_ratio")
    return {CANARY % name: f"{value}x60" for name, value in zip(names, (desired, effective, clock), strict=True)}


QUIET: list[tuple[str, Series]] = [
    ("40m", turns(5)),
    ("40m", texts(5)),
    ("10m", {'hatstack_gateway_refused_requests_total{reason="full"}': "0+3x60"}),
    ("30m", {"hatstack_gateway_dropped_traces_count": "7x60"}),
    ("30m", {**turns(0), FALLBACKS: "0+0.9x60"}),
    ("30m", {QUEUE: "19x60"}),
    ("40m", {ACCEPTED: "2.4x60"}),
    ("29m", canary(10, 10, 0)),
    ("40m", canary(10, 10, 1)),
    ("9m", canary(10, 0, 1)),
]
LOUD: list[tuple[str, Series, set[str]]] = [
    ("40m", turns(20), {"HatstackTurnsFailFast", "HatstackTurnsFailSlowly"}),
    ("40m", turns(14), {"HatstackTurnsFailSlowly"}),
    ("40m", texts(20), {"HatstackFirstTextSlowFast", "HatstackFirstTextSlowSteadily"}),
    ("40m", texts(14), {"HatstackFirstTextSlowSteadily"}),
    ("20m", {'hatstack_gateway_refused_requests_total{reason="full"}': "0+30x60"}, {"HatstackTurnsRefused"}),
    ("20m", {"hatstack_gateway_dropped_traces_count": "0+1x60"}, {"HatstackTracesDropped"}),
    ("30m", {**turns(0), FALLBACKS: "0+2x60"}, {"HatstackArmFallsBack"}),
    ("30m", {QUEUE: "30x60"}, {"SglangQueueGrows"}),
    ("40m", {ACCEPTED: "1x60"}, {"SglangDraftUseless"}),
    ("40m", canary(10, 10, 0), {"HatstackCanaryHeld"}),
    ("20m", canary(10, -1, 1), {"HatstackCanarySplitWrong"}),
]


def promtool(*argv: object) -> None:
    program = shutil.which("promtool")
    assert program, "promtool is missing: install Debian's package prometheus"
    words = [program, *map(str, argv)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_rings_for_its_own_trouble_and_not_before_it(tmp_path: Path) -> None:
    made = rules()["spec"]
    assert {name for _, _, names in LOUD for name in names} == {
        rule["alert"] for group in made["groups"] for rule in group["rules"]
    }
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(made))
    promtool("check", "rules", tmp_path / "rules.yaml")

    def scene(at: str, series: Series, names: set[str]) -> dict[str, Any]:
        ringing = 'group by (alertname) (ALERTS{alertstate="firing"})'
        wanted = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)]
        return {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [{"expr": ringing, "eval_time": at, "exp_samples": wanted}],
        }

    scenes = [*((at, series, set[str]()) for at, series in QUIET), *LOUD]
    tests = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [scene(*one) for one in scenes]}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
    promtool("test", "rules", tmp_path / "tests.yaml")
