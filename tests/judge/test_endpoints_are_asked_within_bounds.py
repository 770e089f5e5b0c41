"""Retries, structured output, cost, cache, budget and parallelism of a judge's endpoint."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hat_components.judge.chat import Budget, Cache, Chat, Completion, EndpointConfig, Refusal
from tests.judge.conftest import Endpoint, said

Serve = Callable[[Callable[[dict[str, Any], int], Any]], Endpoint]
ASK = [{"role": "user", "content": "judge"}]
SCHEMA = {"type": "object"}


def config(url: str, **settings: Any) -> EndpointConfig:
    return EndpointConfig(url=url, model="judge-model", timeout_s=5.0, **settings)


def test_busy_and_broken_servers_are_tried_again_and_waited_for(serve: Serve) -> None:
    replies = [(429, {"retry-after": "7"}, {}), (503, {}, {}), (200, {}, "not json"), said("fine")]
    endpoint = serve(lambda body, number: replies[number - 1])
    waits: list[float] = []
    with Chat(config(endpoint.url, backoff_s=0.5), sleep=waits.append) as chat:
        assert chat.complete(ASK) == Completion("fine")
        assert waits == [7.0, 1.0, 2.0]  # the server's wish, then 0.5 doubled twice
        assert (chat.usage.requests, chat.usage.retries, chat.usage.prompt_tokens) == (4, 3, 100)


def test_a_server_may_not_make_the_judge_wait_for_long(serve: Serve) -> None:
    endpoint = serve(lambda body, number: (429, {"retry-after": "86400"}, {}))
    waits: list[float] = []
    with Chat(config(endpoint.url, attempts=3), sleep=waits.append) as chat:
        assert chat.complete(ASK) == Refusal("rate_limit", "HTTP 429")
    assert waits == [30.0, 30.0]
    assert len(endpoint.bodies) == 3


@pytest.mark.parametrize(
    ("reply", "reason", "requests"),
    [
        ((500, {}, {}), "server", 2),
        ((504, {}, {}), "timeout", 2),
        ((401, {}, {}), "server", 1),
        ((302, {"location": "http://127.0.0.1:9/"}, {}), "server", 1),
        ({"choices": []}, "malformed", 1),
        ([], "malformed", 2),
        ({"choices": [{"message": {"content": None, "refusal": "I will not"}}]}, "refused", 1),
        ({"choices": [{"message": {"content": ""}, "finish_reason": "content_filter"}]}, "refused", 1),
        ({"choices": [{"message": {"content": ["parts"]}}]}, "malformed", 1),
    ],
)
def test_whatever_the_server_does_is_a_reason(serve: Serve, reply: Any, reason: str, requests: int) -> None:
    endpoint = serve(lambda body, number: reply)
    with Chat(config(endpoint.url, attempts=2), sleep=lambda seconds: None) as chat:
        answer = chat.complete(ASK)
    assert isinstance(answer, Refusal)
    assert answer.reason == reason
    assert len(endpoint.bodies) == requests


def test_silence_and_absence_are_reasons(serve: Serve) -> None:
    gone = threading.Event()

    def slow(body: dict[str, Any], number: int) -> Any:
        gone.wait(10)
        return said("late")

    endpoint = serve(slow)
    short = EndpointConfig(url=endpoint.url, model="m", timeout_s=0.05, attempts=1)
    with Chat(short) as chat:
        assert chat.complete(ASK) == Refusal("timeout", "no answer within 0.05 s")
    gone.set()
    with Chat(EndpointConfig(url="http://127.0.0.1:9/v1", model="m", attempts=1)) as chat:
        answer = chat.complete(ASK)
    assert isinstance(answer, Refusal)
    assert answer.reason == "unavailable"


def test_a_server_without_schemas_is_asked_with_less(serve: Serve) -> None:
    def picky(body: dict[str, Any], number: int) -> Any:
        return (400, {}, {"error": "unsupported"}) if "response_format" in body else said("fine")

    endpoint = serve(picky)
    with Chat(config(endpoint.url)) as chat:
        assert not chat.weakened
        assert chat.complete(ASK, schema=SCHEMA) == Completion("fine")
        assert chat.weakened
        assert chat.complete(ASK, schema=SCHEMA) == Completion("fine")
    asked = [(body.get("response_format") or {}).get("type") for body in endpoint.bodies]
    assert asked == ["json_schema", "json_object", None, None]  # what it refused is not tried again


def test_answers_come_from_the_cache_byte_for_byte(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve(lambda body, number: said(f"answer {number}"))
    for _ in range(2):
        with Chat(config(endpoint.url, prompt_price=2.0), cache=Cache(tmp_path)) as chat:
            assert chat.complete(ASK) == Completion("answer 1")
            assert chat.complete([*ASK, *ASK]) == Completion("answer 2")
    assert len(endpoint.bodies) == 2
    assert (chat.usage.requests, chat.usage.cached, chat.usage.cost) == (0, 2, 0.0)
    with Chat(config(endpoint.url, temperature=0.5), cache=Cache(tmp_path)) as chat:
        assert chat.complete(ASK) == Completion("answer 3")  # another setting is another question
    for file in tmp_path.rglob("*.json"):
        file.write_text("{ damaged")
    with Chat(config(endpoint.url), cache=Cache(tmp_path)) as chat:
        assert chat.complete(ASK) == Completion("answer 4")


def test_failures_are_not_cached(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve(lambda body, number: (401, {}, {}) if number == 1 else said("fine"))
    with Chat(config(endpoint.url), cache=Cache(tmp_path)) as chat:
        assert isinstance(chat.complete(ASK), Refusal)
        assert chat.complete(ASK) == Completion("fine")


def test_tokens_cost_what_they_cost_and_a_spent_budget_ends_the_asking(serve: Serve) -> None:
    endpoint = serve(lambda body, number: said("fine", tokens=50))
    budget = Budget(cost=0.0005)
    with Chat(config(endpoint.url, prompt_price=1.0, completion_price=4.0), budget=budget) as chat:
        for _ in range(3):  # each costs (100 × 1 + 50 × 4) / 1e6
            last = chat.complete(ASK)
        assert chat.usage.cost == pytest.approx(0.0006)
    assert last == Refusal("budget", "the budget of this run is spent")
    assert len(endpoint.bodies) == 2


def test_a_request_budget_is_exact_even_with_many_hands(serve: Serve) -> None:
    endpoint = serve(lambda body, number: said("fine"))
    with Chat(config(endpoint.url, parallel=8), budget=Budget(requests=5)) as chat:
        answers = list(chat.pool.map(lambda k: chat.complete([{"role": "user", "content": str(k)}]), range(20)))
    assert len(endpoint.bodies) == 5
    assert sum(isinstance(answer, Completion) for answer in answers) == 5


def test_no_more_requests_are_in_flight_than_allowed(serve: Serve) -> None:
    meet = threading.Barrier(3)

    def together(body: dict[str, Any], number: int) -> Any:
        meet.wait(20)  # three at a time can pass; a fourth in flight would break the count below
        return said("fine")

    endpoint = serve(together)
    with Chat(config(endpoint.url, parallel=3)) as chat:
        list(chat.pool.map(lambda k: chat.complete([{"role": "user", "content": str(k)}]), range(12)))
    assert endpoint.most_at_once == 3


def test_the_key_goes_into_the_header_and_nowhere_else(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOY_JUDGE_KEY", "top-secret")
    endpoint = serve(lambda body, number: said("fine"))
    with Chat(config(endpoint.url, key_variable="TOY_JUDGE_KEY"), cache=Cache(tmp_path)) as chat:
        chat.complete(ASK)
    assert endpoint.headers[0]["authorization"] == "Bearer top-secret"
    assert all("top-secret" not in file.read_text() for file in tmp_path.rglob("*.json"))
    assert "top-secret" not in config(endpoint.url, key_variable="TOY_JUDGE_KEY").model_dump_json()
