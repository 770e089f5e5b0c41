"""No request takes more than its share: bodies, queue and rows are bounded, and who goes away frees its row."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hat_serving.engine.options import EngineOptions
from hat_serving.engine.server import RunningServer
from tests.engine.asking import GREEDY

LONG = {"input_ids": [5, 6, 7], "sampling_params": {"temperature": 0, "max_new_tokens": 1900, "ignore_eos": True}}


@pytest.fixture(scope="module")
def server(random_folder: Path) -> Iterator[RunningServer]:
    options = EngineOptions(
        model_path=random_folder,
        port=0,
        max_running_requests=2,
        max_queued_requests=2,
        max_body_bytes=200_000,
        enable_metrics=True,
        tool_call_parser="qwen",
        reasoning_parser="qwen3",
    )
    with RunningServer(options) as running:
        yield running


async def eventually(server: RunningServer, running: int, waiting: int = 0) -> None:
    """Wait for the engine to have just these at work; the test's time-out decides when to give up."""
    counters = server.engine.scheduler.counters
    while (counters.running, counters.waiting) != (running, waiting):
        await asyncio.sleep(0.01)


async def test_a_client_that_goes_frees_its_row(server: RunningServer) -> None:
    async with aiohttp.ClientSession() as client:
        for body in ({**LONG, "stream": True}, LONG):
            task = asyncio.ensure_future(_read(client, server.url + "/generate", body))
            await eventually(server, 1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await eventually(server, 0)
            assert server.engine.scheduler.counters.row_tokens == 0
    assert len(server.engine.complete([[5, 6]], server_params())[0].tokens) == 4


async def test_a_full_queue_answers_503(server: RunningServer) -> None:
    async with aiohttp.ClientSession() as client:
        tasks = [asyncio.ensure_future(_read(client, server.url + "/generate", LONG)) for _ in range(4)]
        await eventually(server, 2, 2)
        async with client.post(server.url + "/v1/completions", json={"model": "m", "prompt": "a"}) as answer:
            assert answer.status == 503
            assert (await answer.json())["message"] == "The request queue is full."
        async with client.post(server.url + "/abort_request", json={"abort_all": True}) as answer:
            assert answer.status == 200
        ended = [json.loads(text)["meta_info"]["finish_reason"]["type"] for text in await asyncio.gather(*tasks)]
        assert ended == ["abort"] * 4
        await eventually(server, 0)


async def test_one_request_is_aborted_by_its_id(server: RunningServer) -> None:
    async with aiohttp.ClientSession() as client:
        one = asyncio.ensure_future(_read(client, server.url + "/generate", {**LONG, "rid": "one"}))
        await eventually(server, 1)
        async with client.post(server.url + "/abort_request", json={"rid": "other"}):
            pass
        assert not one.done()
        async with client.post(server.url + "/abort_request", json={"rid": "one"}):
            pass
        assert json.loads(await one)["meta_info"]["finish_reason"]["type"] == "abort"


async def test_a_pause_holds_and_goes_on(server: RunningServer) -> None:
    async with aiohttp.ClientSession() as client:
        async with client.post(server.url + "/pause_generation", json={"mode": "in_place"}) as answer:
            assert answer.status == 200
        body = {"input_ids": [5, 6, 7], "sampling_params": GREEDY}
        held = asyncio.ensure_future(_read(client, server.url + "/generate", body))
        await eventually(server, 0, 1)
        async with client.post(server.url + "/continue_generation", json={}):
            pass
        assert len(json.loads(await held)["output_ids"]) == 8


def test_long_bodies_and_wrong_media_are_refused(server: RunningServer) -> None:
    long = httpx.post(server.url + "/generate", content=b'{"text": "' + b"a" * 300_000 + b'"}', headers=JSON)
    assert (long.status_code, long.json()["code"]) == (413, 413)
    media = httpx.post(server.url + "/v1/chat/completions", content=b"{}", headers={"content-type": "text/plain"})
    assert media.status_code == 400
    assert httpx.get(server.url + "/generate").status_code == 405


JSON = {"content-type": "application/json"}

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
FIELDS = {
    "/generate": (
        "text",
        "input_ids",
        "sampling_params",
        "return_logprob",
        "top_logprobs_num",
        "token_ids_logprob",
        "rid",
    ),
    "/v1/chat/completions": (
        "messages",
        "tools",
        "tool_choice",
        "stop",
        "logit_bias",
        "n",
        "temperature",
        "seed",
        "model",
    ),
    "/v1/completions": ("prompt", "logprobs", "stop", "n", "top_k", "min_tokens", "echo", "stream_options"),
}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_body_breaks_the_server(server: RunningServer, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(FIELDS)))
    body: dict[str, Any] = {"max_tokens": 2, "model": "m"}
    if path == "/generate":
        body |= {"text": "a", "sampling_params": {"max_new_tokens": 2}}
    elif path == "/v1/completions":
        body |= {"prompt": "a"}
    else:
        body |= {"messages": [{"role": "user", "content": "a"}]}
    for name in data.draw(st.lists(st.sampled_from(FIELDS[path]), max_size=2)):
        body[name] = data.draw(anything)
    if isinstance(body.get("n"), int) and body["n"] > 4:
        body["n"] = 4
    content = json.dumps(body, allow_nan=False) if _finite(body) else json.dumps(body)
    answer = httpx.post(server.url + path, content=content.encode("utf-8", "surrogatepass"), headers=JSON, timeout=60)
    assert answer.status_code in {200, 400, 503}, (body, answer.text)
    assert answer.json()


def test_an_engine_that_was_told_to_end_finishes_what_runs(random_folder: Path) -> None:
    command = [sys.executable, "-m", "hat_serving.engine", "--model-path", str(random_folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found is not None
    with httpx.stream("POST", found.group() + "/generate", json={**LONG, "stream": True}, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line.startswith("data: ")]
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2].removeprefix("data: "))["meta_info"]["completion_tokens"] == 1900
    assert process.wait(timeout=20) == 0


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (["--model-path", "missing"], 3, "no config.json"),
        (["--model-path", "x", "--dtype", "int4"], 2, "--dtype"),
        (["--model-path", "x", "--mem-fraction", "0.5"], 2, "unrecognized"),
        (["--model-path", "x", "--speculative-algorithm", "NEXTN", "--speculative-num-draft-tokens", "9"], 2, "chain"),
    ],
)
def test_the_command_line_says_what_is_wrong(flags: list[str], code: int, says: str) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "hat_serving.engine", *flags], capture_output=True, text=True, timeout=60
    )
    assert made.returncode == code
    assert says in made.stderr
    assert "Traceback" not in made.stderr


async def test_an_api_key_is_asked_for(random_folder: Path) -> None:
    with RunningServer(EngineOptions(model_path=random_folder, port=0, api_key="s3cret")) as running:
        assert httpx.get(running.url + "/v1/models").status_code == 401
        assert httpx.get(running.url + "/health").status_code == 200
        allowed = httpx.get(running.url + "/v1/models", headers={"authorization": "Bearer s3cret"})
        assert allowed.status_code == 200
        assert "s3cret" not in httpx.get(running.url + "/server_info", headers=dict(allowed.request.headers)).text


async def _read(client: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> str:
    async with client.post(url, json=body) as answer:
        return await answer.text()


def _finite(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


def server_params() -> Any:
    from hat_serving.engine.sampling import SamplingParams

    return SamplingParams(max_new_tokens=4, temperature=0.0)
