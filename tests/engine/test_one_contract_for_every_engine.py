"""What the platform asks of any engine, by OpenAI's routes: passed by ours with the shipped micro model, and by llama.cpp
with a real pretrained one. The gateway's own reader reads both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

import hat_components.base.shipped as shipped
from hat_harness.events import CallModel, Message, ModelOutput
from hat_serving.gateway import wire
from tests.engine.conftest import FLAGS, Served, dev_engine
from tests.engine.llama_env import LlamaServer

MICRO = Path(shipped.__file__).parent / "micro-2" / "model"


@pytest.fixture(scope="module")
def micro() -> Iterator[Served]:
    """The dev engine on the shipped micro model."""
    with dev_engine(MICRO, FLAGS) as url:
        yield Served("micro", url, MICRO)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """llama.cpp on SmolLM2-135M-Instruct."""
    with LlamaServer(tmp_path_factory.mktemp("llama") / "server.log") as server:
        yield Served("llama", server.url, Path("smollm2"))


@pytest.fixture(params=["micro", "llama"])
def engine(request: pytest.FixtureRequest) -> Served:
    """Each engine in turn."""
    found: Served = request.getfixturevalue(request.param)
    return found


def call() -> CallModel:
    messages = (Message("system", "You are brief."), Message("user", "Name a colour."))
    return CallModel(call_id="c1", segment=0, messages=messages, known=0, tools=(), max_tokens=12)


def test_it_is_healthy(engine: Served) -> None:
    assert engine.get("/health").status_code == 200
    assert engine.get("/v1/models").json()["data"][0]["id"]


def test_the_gateway_reads_its_answers_whole_and_streamed(engine: Served) -> None:
    body = json.loads(wire.request_body(call(), "m", stream=False, temperature=0.0))
    whole = wire.read_answer("c1", engine.post("/v1/chat/completions", body).content)
    assert isinstance(whole, ModelOutput)
    assert 0 < whole.completion_tokens <= 12
    assert whole.prompt_tokens > 5
    assert whole.content or whole.reasoning
    body = json.loads(wire.request_body(call(), "m", stream=True, temperature=0.0))
    reader = wire.StreamReader("c1")
    with httpx.stream("POST", engine.url + "/v1/chat/completions", json=body, timeout=120) as answer:
        pieces = [piece for chunk in answer.iter_bytes() for piece in reader.feed(chunk)]
    streamed = reader.result()
    assert reader.done
    assert isinstance(streamed, ModelOutput)
    assert (streamed.content, streamed.finish_reason) == (whole.content, whole.finish_reason)
    assert "".join(pieces) == streamed.content
    assert streamed.completion_tokens == whole.completion_tokens


def test_greedy_is_repeatable_and_lengths_are_kept(engine: Served) -> None:
    client = openai.OpenAI(base_url=f"{engine.url}/v1", api_key="none")
    messages = [{"role": "user", "content": "Count from one to twenty in words."}]
    answers = [
        client.chat.completions.create(model="m", messages=messages, temperature=0, max_tokens=9)  # type: ignore[arg-type]
        for _ in range(2)
    ]
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content
    for answer in answers:
        assert answer.usage is not None
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
        assert answer.usage.completion_tokens <= 9
        assert (answer.choices[0].finish_reason == "length") == (answer.usage.completion_tokens == 9)


def test_bad_requests_are_the_clients_fault(engine: Served) -> None:
    for content in (b"{", b"[]", b'{"model": "m"}'):
        answer = httpx.post(
            engine.url + "/v1/chat/completions",
            content=content,
            headers={"content-type": "application/json"},
            timeout=60,
        )
        assert 400 <= answer.status_code < 500, content
        assert answer.json()
    assert engine.get("/health").status_code == 200
