"""One contract, passed by the dev engine and by the real SGLang: what a client may rely on."""

from __future__ import annotations

import json

import httpx
import openai
import pytest

from tests.engine.asking import GREEDY, chat, events, joined, with_tools
from tests.engine.conftest import Served
from tests.engine.models import TALKS


def test_it_is_healthy_and_says_what_it_serves(served: Served) -> None:
    assert served.get("/health").status_code == 200
    assert served.get("/ready").status_code == 200
    info = served.get("/model_info").json()
    assert info["model_path"] == str(served.model)
    assert info["weight_version"]
    assert info["architectures"] == ["Qwen3ForCausalLM"]
    card = served.get("/v1/models").json()["data"][0]
    assert (card["id"], card["owned_by"], card["max_model_len"]) == (str(served.model), "sglang", 2048)


@pytest.mark.parametrize("talk", [0, 2, 3])
def test_a_chat_is_split_into_reasoning_and_content(served: Served, talk: int) -> None:
    asked, said = TALKS[talk]
    answer = served.post("/v1/chat/completions", chat(asked)).json()
    choice = answer["choices"][0]
    reasoning, _, content = said.removeprefix("<think>").partition("</think>")
    assert choice["message"]["reasoning_content"] == reasoning
    assert choice["message"]["content"] == content
    assert (choice["finish_reason"], choice["matched_stop"]) == ("stop", 1)
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert 0 < usage["reasoning_tokens"] < usage["completion_tokens"]


def test_tool_calls_are_parsed(served: Served) -> None:
    answer = served.post("/v1/chat/completions", with_tools(TALKS[1][0])).json()
    choice = answer["choices"][0]
    calls = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "one moment"
    assert [call["function"]["name"] for call in calls] == ["get_price", "get_stock"]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"item": "blue shirt"}] * 2
    assert len({call["id"] for call in calls}) == 2


def test_a_stream_says_what_the_whole_answer_says(served: Served) -> None:
    for asked, _ in (TALKS[1], TALKS[3], TALKS[5]):
        whole = served.post("/v1/chat/completions", with_tools(asked)).json()
        message = whole["choices"][0]["message"]
        body = with_tools(asked, stream=True, stream_options={"include_usage": True})
        found = joined(events(served.post("/v1/chat/completions", body)))
        assert found["role"] == "assistant"
        # Where a call's opening shares a chunk with content, SGLang drops that content from the stream.
        assert message["content"].startswith(found["content"].strip())
        assert served.kind == "sglang" or found["content"].strip() == message["content"]
        assert found["reasoning"] == message["reasoning_content"]
        assert found["finish"] == whole["choices"][0]["finish_reason"]
        assert found["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
        wanted = [call["function"] for call in message.get("tool_calls") or []]
        assert [{"name": call["name"], "arguments": call["arguments"]} for call in found["calls"].values()] == wanted


def test_the_official_client_reads_it(served: Served) -> None:
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none")
    answer = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": TALKS[2][0]}], temperature=0, max_tokens=60
    )
    assert answer.choices[0].message.content == TALKS[2][1].partition("</think>")[2]
    stream = client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": TALKS[2][0]}], temperature=0, max_tokens=60, stream=True
    )
    pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert "".join(pieces) == answer.choices[0].message.content
    text = client.completions.create(model="m", prompt="the price of", temperature=0, max_tokens=4)
    assert text.usage is not None
    assert text.usage.completion_tokens == 4


def test_stops_end_a_generation(served: Served) -> None:
    by_text = served.post("/v1/chat/completions", chat("count", stop=["12"])).json()["choices"][0]
    assert (by_text["finish_reason"], by_text["matched_stop"]) == ("stop", "12")
    assert by_text["message"]["content"].endswith("11 ")
    whole = served.post("/generate", {"text": "the price", "sampling_params": {**GREEDY, "ignore_eos": True}}).json()
    third = whole["output_ids"][2]
    if third not in whole["output_ids"][:2]:
        params = {**GREEDY, "stop_token_ids": [third]}
        cut = served.post("/generate", {"text": "the price", "sampling_params": params}).json()
        assert cut["output_ids"] == whole["output_ids"][:3]
        assert cut["meta_info"]["finish_reason"] == {"type": "stop", "matched": third}


def test_generate_gives_log_probabilities(served: Served) -> None:
    body = {
        "text": "the price of the red mug",
        "sampling_params": GREEDY,
        "return_logprob": True,
        "logprob_start_len": 0,
        "top_logprobs_num": 3,
        "return_text_in_logprobs": True,
    }
    info = served.post("/generate", body).json()["meta_info"]
    assert info["input_token_logprobs"][0][0] is None
    assert len(info["input_token_logprobs"]) == info["prompt_tokens"]
    for (logprob, token, _), top in zip(info["output_token_logprobs"], info["output_top_logprobs"], strict=True):
        assert (logprob, token) == (top[0][0], top[0][1]), "greedy takes the most probable token"
        assert top[0][0] >= top[1][0] >= top[2][0]


def test_a_prompt_seen_before_is_not_computed_again(served: Served) -> None:
    prompt = list(range(200, 260))
    served.post("/generate", {"input_ids": prompt, "sampling_params": {**GREEDY, "max_new_tokens": 1}})
    again = served.post("/generate", {"input_ids": [*prompt, 5], "sampling_params": {**GREEDY, "max_new_tokens": 1}})
    assert again.json()["meta_info"]["cached_tokens"] == len(prompt)


def test_weights_are_updated_from_disk(served: Served) -> None:
    asked = chat(TALKS[2][0])
    before = served.post("/v1/chat/completions", asked).json()["choices"][0]["message"]
    good = {"model_path": str(served.model), "weight_version": "v7"}
    done = served.post("/update_weights_from_disk", good)
    assert done.status_code == 200
    assert done.json()["success"] is True
    assert served.get("/model_info").json()["weight_version"] == "v7"
    bad = served.post("/update_weights_from_disk", {"model_path": str(served.model / "missing")})
    assert bad.status_code == 400
    assert bad.json()["success"] is False
    after = served.post("/v1/chat/completions", asked).json()
    assert after["choices"][0]["message"] == before
    assert after["metadata"]["weight_version"] == "v7"


def test_metrics_have_sglangs_names_and_the_variant(served: Served) -> None:
    served.post("/v1/chat/completions", chat("hello", stream=True))
    text = served.get("/metrics").text
    for name in (
        *("sglang:num_requests_total", "sglang:prompt_tokens_total", "sglang:generation_tokens_total"),
        *("sglang:time_to_first_token_seconds_bucket", "sglang:e2e_request_latency_seconds_bucket"),
        *("sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:cache_hit_rate", "sglang:spec_accept_length"),
    ):
        lines = [line for line in text.splitlines() if line.startswith(name + "{")]
        assert lines, name
        assert all('variant="canary"' in line and 'engine_type="unified"' in line for line in lines)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v1/chat/completions", {"model": "m", "messages": []}, "Messages cannot be empty."),
        ("/v1/chat/completions", chat("a", max_tokens="x"), None),
        ("/v1/chat/completions", chat("a", temperature=-1.0), "temperature must be a non-negative finite number"),
        ("/v1/chat/completions", chat("a", max_tokens=5000), "maximum context length of 2048 tokens"),
        ("/v1/chat/completions", chat("a", tool_choice="required"), "Tools cannot be empty"),
        ("/v1/completions", {"model": "m", "prompt": ""}, "Prompt cannot be empty"),
    ],
)
def test_bad_openai_requests_are_refused_alike(served: Served, path: str, body: object, message: str | None) -> None:
    answer = served.post(path, body)
    found = answer.json()
    assert answer.status_code == 400
    assert set(found) == {"object", "message", "type", "param", "code"}
    assert (found["object"], found["code"]) == ("error", 400)
    assert message is None or message in found["message"]


def test_bad_native_requests_are_refused_alike(served: Served) -> None:
    for body in (
        {"sampling_params": GREEDY},
        {"input_ids": [], "sampling_params": GREEDY},
        {"input_ids": [5] * 2100, "sampling_params": GREEDY},
        {"text": "a", "sampling_params": {"top_p": 2}},
    ):
        answer = served.post("/generate", body)
        assert answer.status_code == 400
        assert isinstance(answer.json()["error"]["message"], str)
    unknown = served.post("/generate", {"text": "a", "sampling_params": {"nope": 1}})
    assert unknown.json()["error"].startswith("unknown field `nope`")
    broken = httpx.post(f"{served.url}/generate", content=b"{bad", headers={"content-type": "application/json"})
    assert (broken.status_code, broken.json()["type"]) == (400, "Bad Request")
    assert served.get("/nope").json() == {"detail": "Not Found"}
