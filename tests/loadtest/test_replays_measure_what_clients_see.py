"""A replay sends the same requests in a closed loop, measures what clients see, and its report shows it by cell."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hat_components.paper.catalogue import render
from hat_components.paper.sources import Source, Sources
from hat_harness.events import ToolRequest
from hat_harness.load import load_harness
from hat_scenarios.live_commerce import LiveCommerce
from hat_scenarios.play import play_expert
from hat_serving.errors import SettingsError
from hat_serving.loadtest.replay import Row, Spread, gauges, replay, to_json
from hat_serving.loadtest.requests import RequestSet, Tools, recorded, simulated
from hat_serving.loadtest.timed import CallRecord, Endpoint, has_token

HARNESS = load_harness(Path(__file__).resolve().parents[2] / "harness-registry" / "harnesses" / "live-commerce")


class Engine:
    """Answers at once in two pieces; tells SGLang's gauges; counts how many requests are open."""

    def __init__(self) -> None:
        self.url = ""
        self.open = self.most = 0
        self.asked: list[dict[str, Any]] = []
        self.broken = False

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        if self.broken:
            return web.Response(status=500, text="boom")
        self.open += 1
        self.most = max(self.most, self.open)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        pieces: list[Any] = [{"role": "assistant", "content": ""}, {"content": "hello "}, {"content": "there"}]
        for delta in pieces:
            await answer.write(b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n")
            await asyncio.sleep(0.005)
        usage = {"prompt_tokens": 100, "completion_tokens": 11}
        last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
        await answer.write(b"data: " + json.dumps(last).encode() + b"\n\ndata: [DONE]\n\n")
        self.open -= 1
        return answer

    async def metrics(self, _: web.Request) -> web.Response:
        told = 'sglang:num_running_reqs{a="b"} 2.0\nsglang:num_queue_reqs 1.0\nsglang:spec_accept_length 3.0\n'
        return web.Response(text=told + "sglang:spec_accept_rate 0.66\n")

    async def info(self, _: web.Request) -> web.Response:
        told = {"version": "0.5.23", "speculative_algorithm": "NEXTN", "speculative_num_draft_tokens": 4}
        return web.json_response({**told, "api_key": "secret"})


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", made.chat)
    app.router.add_get("/metrics", made.metrics)
    app.router.add_get("/server_info", made.info)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


async def one_run(engine: Engine, requests: RequestSet, clients: int = 2) -> Row:
    async with Endpoint(engine.url, "m") as endpoint:
        row, _ = await replay(requests, HARNESS, endpoint, model="trained", mtp="on", concurrency=clients)
    return row


def test_the_same_seed_draws_the_same_requests_to_the_byte(tmp_path: Path) -> None:
    first, again, other = simulated(HARNESS, 1, 22), simulated(HARNESS, 1, 22), simulated(HARNESS, 2, 22)
    assert first.digest == again.digest != other.digest
    assert (first.warm_up, len(first.requests)) == (2, 22)
    assert simulated(HARNESS, 1, 110).warm_up == 10
    first.save(tmp_path / "a" / "requests.json")
    assert RequestSet.read(tmp_path / "a" / "requests.json") == first
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(SettingsError, match="no set of requests"):
        RequestSet.read(tmp_path / "bad.json")


def test_requests_of_recorded_traces_answer_as_recorded_and_no_more() -> None:
    scenario = LiveCommerce()
    cases = [(HARNESS, item) for item in scenario.items(5, "dev", 6, 2)]
    traces = play_expert(scenario, cases)
    drawn = recorded(traces, 1, 6)
    assert drawn == recorded(list(reversed(traces)), 1, 6)
    with_tools = [one for one in recorded(traces, 3, 8).requests if one.answers]
    assert with_tools
    call = with_tools[0].answers[0]
    tools = Tools(with_tools[0])
    assert tools.call("s", ToolRequest("c", call.tool, call.arguments)).content == call.content
    assert tools.call("s", ToolRequest("c", call.tool, {"item": "nothing"})).failure == "server"
    with pytest.raises(SettingsError, match="viewer turns"):
        recorded(traces, 1, 1000)


async def test_a_run_measures_calls_load_and_speculation(engine: Engine) -> None:
    row = await one_run(engine, simulated(HARNESS, 1, 33), clients=3)
    assert (row.requests, row.concurrency) == (30, 3)
    assert engine.most == 3
    assert row.tokens_in_per_call == 100
    assert row.tokens_out_per_call == 11
    assert 0 < row.ttft_p95_s < row.wall_p50_s <= row.wall_p95_s
    assert 100 < row.decode_tokens_per_s < 10 / 0.005
    assert row.calls_per_request >= 1
    assert row.running == Spread(2.0, 2.0, 2.0)
    assert row.accept_length == Spread(3.0, 3.0, 3.0)
    assert row.accept_rate_over_draft == Spread(0.75, 0.75, 0.75)
    assert "api_key" not in row.endpoint


async def test_a_broken_engine_is_no_success(engine: Engine) -> None:
    engine.broken = True
    row = await one_run(engine, simulated(HARNESS, 1, 11), clients=1)
    assert (row.success, row.in_time, row.decode_tokens_per_s) == (0.0, 0.0, 0.0)
    assert row.failures["server" if "server" in row.failures else "unavailable"] >= 10


def test_a_token_is_text_reasoning_or_a_call_and_not_a_role() -> None:
    def piece(delta: dict[str, Any]) -> bytes:
        return b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"

    assert not has_token(piece({"role": "assistant", "content": ""}))
    assert not has_token(b"data: [DONE]\n\n: ping\n\ndata: {broken\n\n")
    assert has_token(piece({"content": "a"}))
    assert has_token(piece({"reasoning_content": "a"}))
    assert has_token(piece({"tool_calls": [{"index": 0}]}))
    assert CallRecord(ttft=1.0, seconds=2.0, tokens_out=11).decode == 10
    assert CallRecord(ttft=1.0, seconds=1.0, tokens_out=11).decode == 0


def test_gauges_of_several_workers_are_summed_and_rates_meant() -> None:
    text = 'sglang:num_running_reqs{w="1"} 2\nsglang:num_running_reqs{w="2"} 3\n'
    text += 'sglang:spec_accept_length{w="1"} 2\nsglang:spec_accept_length{w="2"} 4\nother 1\n'
    assert gauges(text) == {"num_running_reqs": 5.0, "spec_accept_length": 3.0}


def cell(mtp: str, clients: int, run: int, decode: float) -> Row:
    spread = Spread(1.0, 1.0, 2.0)
    return Row(
        "trained",
        mtp,
        clients,
        run,
        100,
        1.0 * run,
        2.0,
        0.1,
        decode,
        1.0,
        0.99,
        0.0,
        3.0,
        500.0,
        20.0,
        9.0,
        running=spread,
    )


def test_reports_show_means_of_runs_and_speed_ups_of_the_same_cell(tmp_path: Path) -> None:
    rows = [cell("off", 1, 1, 100.0), cell("on", 1, 1, 150.0), *(cell("on", 4, run, 80.0) for run in (1, 2, 3))]
    path = tmp_path / "loadtest.json"
    path.write_text(json.dumps(to_json(rows, simulated(HARNESS, 1, 11), "sha256:" + "0" * 64, {})))
    sources = Sources([Source("loadtest", path, 1.0, "r")])
    shown = {ident: render(ident, sources) for ident in ("t7", "t17", "t18", "t20")}
    assert all(one.state == "made" for one in shown.values()), shown
    assert [row["Speed-up"] for row in shown["t7"].rows] == ["—", "1.50"]
    four = shown["t17"].rows[-1]
    assert (four["C"], four["Runs"], four["Wall P50, s"], four["Speed-up"]) == ("4", "3", "2.000", "—")
    assert shown["t18"].rows[0]["Calls a request"] == "3.00"
    assert shown["t20"].rows[0]["P95"] == "2.00"
    assert render("t7", Sources()).state == "missing"


def test_the_online_comparison_is_relative_to_the_control(tmp_path: Path) -> None:
    value = {"delta": 2.0, "low": 1.5, "high": None, "p": 1.0, "n": 10, "level": 0.95, "state": "ok"}
    arms = [{"name": name, "weight": 50, "units": 100, "value": value, "safe_rate": 0.5} for name in ("stable", "hat")]
    guard = {"metric": "safe_rate", "margin": 0.1, "state": "clear", **value, "delta": -0.05, "low": -0.1, "high": 0.0}
    contrast = {"arm": "hat", "primary": {**value, "delta": 0.1, "low": 0.02, "high": 0.3}, "guardrails": [guard]}
    result = {
        "metric": "gmv",
        "units": 200,
        "arms": arms,
        "contrasts": [contrast],
        "decision": {"text_en": "Keep arm hat."},
    }
    path = tmp_path / "experiment.json"
    path.write_text(json.dumps({"name": "first", "state": "running", "result": result, "spec": {}}))
    shown = render("t11", Sources([Source("experiment", path, 1.0, "r")]))
    assert [row["Relative change, %"] for row in shown.rows] == ["+5.0", "−10.0"]
    assert shown.rows[0]["95 % interval, %"] == "[+1.0, +15.0]"
    assert "Keep arm hat." in shown.section.lead


def test_quality_is_compared_over_the_suites_that_both_arms_have(tmp_path: Path) -> None:
    folders = []
    for mtp, mean in (("off", 0.9), ("on", 0.95)):
        scores = {
            name: {"mean": mean, "low": mean - 0.05, "high": mean + 0.05}
            for name in ("accuracy", "effectiveness", "average")
        }
        suite = {"id": "t1", "title": "T1", "kind": "scenario", "headline": "average", "scores": scores, "items": []}
        body = {
            "format": "hatstack.evaluation/1", "arm": f"trained-mtp-{mtp}", "policy": "endpoint", "harness": "sha256:0",
            "dataset": "sha256:0", "config": "sha256:0", "seeds": "dev", "suites": [suite],
        }  # fmt: skip
        folder = tmp_path / mtp
        folder.mkdir()
        (folder / "evaluation.json").write_text(json.dumps(body))
        folders.append(folder)
    shown = render("t16", Sources.scan([tmp_path]))
    assert shown.state == "made", shown.broken
    assert [(row["MTP"], row["Accuracy"]) for row in shown.rows] == [
        ("off", "90.0 [85.0, 95.0]"),
        ("on", "95.0 [90.0, 100.0]"),
    ]
