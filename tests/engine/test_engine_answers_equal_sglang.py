"""The same requests to both engines: the dev engine's answers are the real SGLang's, field by field, token by token."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine.asking import GREEDY, chat, differences, events, joined, with_tools
from tests.engine.conftest import Served
from tests.engine.models import TALKS

pytestmark = pytest.mark.sglang

NEAR_TIE = 1e-2

WHOLE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/generate", {"text": "what is the price", "sampling_params": GREEDY}),
    ("/generate", {"input_ids": [[5, 6, 7], [8, 9]], "sampling_params": GREEDY}),
    ("/generate", {"input_ids": [5, 6, 7], "sampling_params": {**GREEDY, "logit_bias": {"87": 100}}}),
    ("/generate", {"input_ids": [5, 6, 7], "sampling_params": {**GREEDY, "min_new_tokens": 4}}),
    (
        "/generate",
        {
            "text": "the stock of the blue shirt",
            "sampling_params": {**GREEDY, "repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": 0.2},
        },
    ),
    (
        "/generate",
        {"input_ids": [5, 6, 7], "sampling_params": GREEDY, "return_logprob": True, "token_ids_logprob": [3, 4]},
    ),
    ("/v1/chat/completions", chat("hello")),
    ("/v1/chat/completions", chat("hello", logprobs=True, top_logprobs=2, max_tokens=6)),
    ("/v1/chat/completions", chat("hello", chat_template_kwargs={"enable_thinking": False})),
    ("/v1/chat/completions", chat("hello", separate_reasoning=False, return_token_ids=True)),
    ("/v1/chat/completions", chat("no thinking")),
    ("/v1/chat/completions", chat("count", stop=["12"], no_stop_trim=True)),
    ("/v1/chat/completions", chat("count", max_tokens=9)),
    ("/v1/chat/completions", with_tools(TALKS[1][0])),
    ("/v1/chat/completions", with_tools(TALKS[0][0], tool_choice="none")),
    ("/v1/completions", {"model": "m", "prompt": "what is", "max_tokens": 5, "temperature": 0, "logprobs": 2}),
    ("/v1/completions", {"model": "m", "prompt": ["what is", "the"], "max_tokens": 5, "temperature": 0, "echo": True}),
    ("/tokenize", {"model": "m", "prompt": "what is the price"}),
    ("/detokenize", {"model": "m", "tokens": [271, 273, 262]}),
)


@pytest.mark.parametrize(("path", "body"), WHOLE, ids=lambda value: json.dumps(value)[:60])
def test_whole_answers_are_equal(dev: Served, sglang: Served, path: str, body: dict[str, Any]) -> None:
    for server in (dev, sglang):
        server.post("/flush_cache", {})
        server.post("/update_weight_version", {"new_version": "same"})
    ours, theirs = dev.post(path, body), sglang.post(path, body)
    assert ours.status_code == theirs.status_code == 200
    found = [line for line in differences(_named(theirs.json()), _named(ours.json())) if "cached_tokens" not in line]
    assert found == []


@pytest.mark.parametrize("talk", range(len(TALKS)))
def test_streams_are_equal(dev: Served, sglang: Served, talk: int) -> None:
    body = with_tools(TALKS[talk][0], stream=True, stream_options={"include_usage": True})
    ours = events(dev.post("/v1/chat/completions", body))
    theirs = events(sglang.post("/v1/chat/completions", body))
    one, other = joined(ours), joined(theirs)
    assert one["content"].startswith(other.pop("content").strip()), "SGLang drops content that shares a call's chunk"
    one.pop("content")
    for side in (one, other):
        side["usage"].pop("prompt_tokens_details")
        for call in side["calls"].values():
            assert call.pop("id").startswith("call_")
    assert one == other
    shapes = [{_shape(chunk) for chunk in chunks} for chunks in (ours, theirs)]
    assert shapes[0] <= shapes[1], "every chunk has a shape that SGLang sends too"


def test_greedy_tokens_are_equal_or_near_ties(dev: Served, sglang: Served) -> None:
    """Counted: prompts with equal tokens, and those whose first difference has a top-2 gap below 1e-2."""
    prompts = [list(range(start, start + 3 + start % 7)) for start in range(2, 480, 20)]
    ties = 0
    for prompt in prompts:
        body = {
            "input_ids": prompt,
            "sampling_params": {"temperature": 0, "max_new_tokens": 12, "ignore_eos": True},
            "return_logprob": True,
            "top_logprobs_num": 2,
        }
        ours, theirs = dev.post("/generate", body).json(), sglang.post("/generate", body).json()
        pairs = zip(ours["output_ids"], theirs["output_ids"], strict=True)
        first = next((place for place, (one, other) in enumerate(pairs) if one != other), None)
        if first is not None:
            top = ours["meta_info"]["output_top_logprobs"][first]
            assert top[0][0] - top[1][0] < NEAR_TIE, (prompt, first)
            ties += 1
    print(f"{len(prompts) - ties} of {len(prompts)} prompts equal, {ties} near ties")
    assert ties <= 2


def test_metrics_of_one_name_are_of_one_kind(dev: Served, sglang: Served) -> None:
    kinds: list[dict[str, str]] = []
    labels: list[dict[str, frozenset[str]]] = []
    for server in (dev, sglang):
        for stream in (False, True):
            server.post("/v1/chat/completions", chat("hello", stream=stream))
        lines = server.get("/metrics").text.splitlines()
        kinds.append({line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE sglang:")})
        samples = [line for line in lines if line.startswith("sglang:") and "{" in line]
        labels.append({line.split("{")[0]: _label_names(line) for line in samples})
    for name, kind in kinds[0].items():
        unused = not any(sample.startswith(name) for sample in labels[0])  # SGLang names a metric once it has a sample
        assert kinds[1].get(name) == kind or (unused and name not in kinds[1]), name
    shared = set(labels[0]) & set(labels[1])
    assert len(shared) > 40
    assert {name: labels[0][name] for name in shared} == {name: labels[1][name] for name in shared}


def _named(value: Any) -> Any:
    """Call ids are random in both engines."""
    if isinstance(value, dict):
        if str(value.get("id", "")).startswith("call_"):
            value = {**value, "id": "call"}
        return {name: _named(inner) for name, inner in value.items()}
    return [_named(inner) for inner in value] if isinstance(value, list) else value


def _shape(chunk: Any) -> str:
    """A chunk's keys, at all levels, without values."""
    if isinstance(chunk, dict):
        return "{" + ",".join(f"{name}:{_shape(chunk[name])}" for name in sorted(chunk)) + "}"
    if isinstance(chunk, list):
        return "[" + ",".join(sorted({_shape(inner) for inner in chunk})) + "]"
    return ""


def _label_names(line: str) -> frozenset[str]:
    inside = line[line.index("{") + 1 : line.rindex("}")]
    return frozenset(part.split("=")[0].strip() for part in inside.split('",') if part)
