"""Speculative decoding: exact for greedy requests over 1,000 prompts; exact in distribution at thresholds of one."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hat_serving.engine.engine import Engine
from hat_serving.engine.errors import ModelError
from hat_serving.engine.options import EngineOptions
from hat_serving.engine.sampling import Draws, SamplingParams
from hat_serving.engine.speculate import AcceptStats, accept_greedy, accept_sampled
from tests.engine.models import TALKS

GREEDY = SamplingParams(max_new_tokens=24, temperature=0.0)


def options(model: Path, steps: int, **more: object) -> EngineOptions:
    spec: dict[str, object] = {}
    if steps:
        spec = {
            "speculative_algorithm": "NEXTN",
            "speculative_num_steps": steps,
            "speculative_num_draft_tokens": steps + 1,
        }
    return EngineOptions.model_validate({"model_path": model, "dtype": "float32", **spec, **more})


def prompts(count: int, vocabulary: int = 500) -> list[list[int]]:
    source = random.Random(5)
    shared = [source.randrange(vocabulary) for _ in range(40)]
    made = [[source.randrange(vocabulary) for _ in range(source.randrange(1, 50))] for _ in range(count)]
    return [
        shared[: source.randrange(20, 40)] + prompt if index % 4 == 0 else prompt for index, prompt in enumerate(made)
    ]


@pytest.mark.parametrize("steps", [1, 3])
def test_a_thousand_prompts_get_the_same_tokens(random_mtp_folder: Path, steps: int) -> None:
    asked = prompts(1000)
    with Engine(options(random_mtp_folder, 0)) as plain:
        wanted = [request.tokens for request in plain.complete(asked, GREEDY)]
    with Engine(options(random_mtp_folder, steps)) as speculative:
        found = speculative.complete(asked, GREEDY)
        assert [request.tokens for request in found] == wanted
        again = speculative.complete(asked[:100], GREEDY)
        assert [request.tokens for request in again] == wanted[:100], "reused prefixes change nothing"
        assert any(request.cached for request in again)
    verified = sum(request.stats.verified for request in found if request.stats)
    assert verified > 10_000, "drafts were verified, not skipped"


def test_a_trained_head_is_accepted_and_changes_nothing(talker_folder: Path) -> None:
    with Engine(options(talker_folder, 0)) as plain, Engine(options(talker_folder, 3)) as speculative:
        text = plain.model.text
        asked = [
            text.encode(text.render([{"role": "user", "content": talk[0]}], None, {}), add_special_tokens=False)
            for talk in TALKS
        ]
        params = SamplingParams(max_new_tokens=200, temperature=0.0)
        one, other = plain.complete(asked, params), speculative.complete(asked, params)
    assert [request.tokens for request in one] == [request.tokens for request in other]
    assert [request.decoder.whole() for request in other] == [said for _, said in TALKS]
    for request in other:
        assert request.stats is not None
        assert request.stats.length > 2.5
        assert sum(request.stats.histogram) == request.stats.verified


def test_mixed_batches_and_stops_stay_exact(talker_folder: Path) -> None:
    """Penalised, sampled, stopped and logged requests share the speculative batch; greedy ones are as if alone."""
    from concurrent.futures import ThreadPoolExecutor

    kinds = [
        SamplingParams(max_new_tokens=30, temperature=0.0),
        SamplingParams(max_new_tokens=30, temperature=0.0, frequency_penalty=0.7),
        SamplingParams(max_new_tokens=30, temperature=0.9, sampling_seed=4),
        SamplingParams(max_new_tokens=30, temperature=0.0, stop=("7 8",)),
        SamplingParams(max_new_tokens=30, temperature=0.0, min_new_tokens=25),
    ]
    results = []
    for steps in (0, 3):
        with Engine(options(talker_folder, steps)) as engine, ThreadPoolExecutor(len(kinds)) as pool:
            text = engine.model.text
            ids = text.encode(text.render([{"role": "user", "content": "count"}], None, {}), add_special_tokens=False)
            found = list(pool.map(lambda kind, engine=engine, ids=ids: engine.complete([ids] * 3, kind), kinds))
            results.append([[request.tokens for request in group] for group in found])
    for index in (0, 1, 3, 4):
        assert results[0][index] == results[1][index]
    for group in results[1][:1] + results[1][3:]:
        assert group[0] == group[1] == group[2]


@given(st.lists(st.integers(0, 4), max_size=5), st.lists(st.integers(0, 4), min_size=6, max_size=6))
def test_greedy_acceptance_is_what_plain_decoding_writes(drafts: list[int], best: list[int]) -> None:
    """With `best[i]` the model's choice after i accepted drafts, the output is the plain continuation."""
    made = accept_greedy(drafts, best[: len(drafts) + 1])
    kept = len(made) - 1
    assert made[:-1] == drafts[:kept] == best[:kept]
    assert made[-1] == best[kept]
    assert kept == len(drafts) or drafts[kept] != best[kept]


def test_sampled_acceptance_keeps_the_distribution() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 5)
    params = SamplingParams(temperature=0.8, top_p=0.9)
    draws = Draws(1)
    counts = Counter(accept_sampled([2], logits, params, draws, 1.0, 1.0)[0] for _ in range(20_000))
    scaled = torch.softmax(logits[0] / 0.8, dim=-1)
    ordered, order = scaled.sort(descending=True)
    kept = ordered.cumsum(0) - ordered <= 0.9
    wanted = torch.zeros(5).scatter(0, order[kept], ordered[kept])
    wanted = wanted / wanted.sum()
    for token in range(5):
        assert abs(counts[token] / 20_000 - float(wanted[token])) < 0.015


def test_thresholds_below_one_keep_more_drafts() -> None:
    """SGLang's rule: kept if p ≥ threshold_single, or with probability p / threshold_acc."""
    params = SamplingParams(temperature=1.0)
    for chance, single, acc, wanted in ((0.55, 0.5, 1.0, 1.0), (0.35, 0.9, 0.7, 0.5), (0.35, 0.9, 1.0, 0.35)):
        logits = torch.log(torch.tensor([[chance, 1 - chance], [0.5, 0.5]]))
        draws = Draws(3)
        kept = sum(len(accept_sampled([0], logits, params, draws, single, acc)) == 2 for _ in range(4000))
        assert abs(kept / 4000 - wanted) < 0.03


def test_both_definitions_of_acceptance_are_told_apart() -> None:
    stats = AcceptStats(draft_tokens=4)
    for kept in (3, 3, 2, 0):
        stats.add(kept, kept + 1)
    assert stats.length == 3.0
    assert stats.rate == 8 / 12
    assert stats.length_over_drafts == 0.75
    assert stats.histogram == [1, 0, 1, 2]


def test_a_model_without_head_is_refused(random_folder: Path) -> None:
    with pytest.raises(ModelError, match="no MTP head"):
        Engine(options(random_folder, 3))
