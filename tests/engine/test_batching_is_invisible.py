"""What a request gets does not depend on its neighbours, on cached prefixes, on chunks, or on when weights change."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from hat_serving.engine.engine import Engine
from hat_serving.engine.errors import CallError, ModelError
from hat_serving.engine.options import EngineOptions
from hat_serving.engine.request import LogprobWish
from hat_serving.engine.sampling import SamplingParams
from tests.engine.models import random_model

GREEDY = SamplingParams(max_new_tokens=16, temperature=0.0)


def options(model: Path, **more: object) -> EngineOptions:
    return EngineOptions.model_validate({"model_path": model, "dtype": "float32", **more})


def prompts(count: int, seed: int = 3) -> list[list[int]]:
    source = random.Random(seed)
    return [[source.randrange(500) for _ in range(source.randrange(1, 70))] for _ in range(count)]


def test_greedy_tokens_and_log_probabilities_are_transformers(random_folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(random_folder, dtype=torch.float32)
    asked = prompts(12)
    asked += [[*asked[0], 5], [*asked[0][:20], 9, 9], asked[1]]
    with Engine(options(random_folder, max_running_requests=4, filling_rows=2, chunked_prefill_size=16)) as engine:
        found = engine.complete(asked, GREEDY, LogprobWish(0, 2))
    for prompt, request in zip(asked, found, strict=True):
        ids = torch.tensor([prompt])
        made = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False, pad_token_id=0
        )[0, len(prompt) :]
        assert request.tokens == made.tolist()
        whole = torch.tensor([prompt + request.tokens])
        with torch.no_grad():
            logprobs = torch.log_softmax(model(whole).logits[0], dim=-1)
        for place, (logprob, token) in enumerate(request.logprobs.output):
            assert logprob == pytest.approx(float(logprobs[len(prompt) - 1 + place, token]), abs=1e-4)
        for place, (logprob, token) in enumerate(request.logprobs.prompt):
            assert token == prompt[place]
            assert (logprob is None) == (place == 0)
            if logprob is not None:
                assert logprob == pytest.approx(float(logprobs[place - 1, token]), abs=1e-4)


@pytest.mark.parametrize("more", [{"max_running_requests": 1}, {"chunked_prefill_size": 16}, {"filling_rows": 1}])
def test_one_by_one_or_all_at_once(random_folder: Path, more: dict[str, int]) -> None:
    asked = prompts(30)
    with Engine(options(random_folder)) as engine:
        wanted = [request.tokens for request in engine.complete(asked, GREEDY)]
    with Engine(options(random_folder, **more)) as engine:
        assert [request.tokens for request in engine.complete(asked, GREEDY)] == wanted
        again = engine.complete(asked, GREEDY)
        assert [request.tokens for request in again] == wanted
        assert all(request.cached == len(request.prompt) - 1 for request in again)


def test_a_small_cache_forgets_and_stays_right(random_folder: Path) -> None:
    asked = prompts(40)
    with Engine(options(random_folder, cache_tokens=150)) as engine:
        one = [request.tokens for request in engine.complete(asked, GREEDY)]
        two = [request.tokens for request in engine.complete(asked[::-1], GREEDY)]
        assert engine.scheduler.counters.kept_tokens <= 150
    with Engine(options(random_folder, disable_radix_cache=True)) as engine:
        found = engine.complete(asked, GREEDY)
        assert all(request.cached == 0 for request in found)
    assert one == two[::-1] == [request.tokens for request in found]


def test_seeded_draws_do_not_depend_on_the_batch(random_folder: Path) -> None:
    asked = prompts(8)
    params = SamplingParams(max_new_tokens=12, temperature=1.0, top_p=0.95, top_k=50, sampling_seed=9)
    with Engine(options(random_folder)) as engine:
        together = [request.tokens for request in engine.complete(asked, params)]
        alone = [engine.complete([prompt], params)[0].tokens for prompt in asked]
    assert together == alone


def test_a_shared_beginning_is_computed_once(random_folder: Path) -> None:
    start = prompts(1)[0] * 4
    with Engine(options(random_folder)) as engine:
        found = engine.complete([[*start, number] for number in range(20)], GREEDY)
    assert sum(request.cached == 0 for request in found) == 1
    assert sum(request.cached >= len(start) for request in found) == 19


@pytest.mark.parametrize("steps", [0, 3])
def test_rows_with_one_beginning_are_read_together_and_answered_apart(random_mtp_folder: Path, steps: int) -> None:
    """Above four rows their common first tokens are attended to once; below, row by row."""
    start = (prompts(3, seed=9)[0] * 20)[:130]
    asked = [[*start, *prompt] for prompt in prompts(14, seed=10)]
    spec = {"speculative_algorithm": "NEXTN"} if steps else {}
    with Engine(options(random_mtp_folder, max_running_requests=3)) as engine:
        wanted = [request.tokens for request in engine.complete(asked, GREEDY)]
    with Engine(options(random_mtp_folder, max_running_requests=14, **spec)) as engine:
        assert [request.tokens for request in engine.complete(asked, GREEDY)] == wanted
        logged = engine.complete(asked, GREEDY, LogprobWish(200, 1))
    with Engine(options(random_mtp_folder, max_running_requests=1)) as engine:
        alone = engine.complete(asked, GREEDY, LogprobWish(200, 1))
    for one, other in zip(logged, alone, strict=True):
        assert [token for _, token in one.logprobs.output] == [token for _, token in other.logprobs.output]
        pairs = zip(one.logprobs.output, other.logprobs.output, strict=True)
        assert all(left == pytest.approx(right, abs=1e-4) for (left, _), (right, _) in pairs)


def test_new_weights_serve_what_comes_after(random_folder: Path, tmp_path: Path) -> None:
    other = random_model(tmp_path / "other", seed=8)
    asked = prompts(6)
    with Engine(options(other)) as engine:
        wanted = [request.tokens for request in engine.complete(asked, GREEDY)]
    with Engine(options(random_folder)) as engine, ThreadPoolExecutor(1) as pool:
        before = [request.tokens for request in engine.complete(asked, GREEDY)]
        long = SamplingParams(max_new_tokens=300, temperature=0.0, ignore_eos=True)
        running = pool.submit(engine.complete, asked, long)
        while not engine.scheduler.counters.running:
            assert not running.done()
        engine.replace(engine.load(other), "v2").result(timeout=60)
        old = running.result(timeout=60)
        after = engine.complete(asked, GREEDY)
        assert [request.tokens for request in after] == wanted
        assert {request.weight_version for request in after} == {"v2"}
    assert [request.tokens[:16] for request in old] == before, "what ran ended on the old weights"
    assert {request.weight_version for request in old} == {"default"}


def test_weights_of_another_shape_are_refused(random_folder: Path, tmp_path: Path) -> None:
    with Engine(options(random_folder)) as engine:
        with pytest.raises(ModelError, match=r"no config\.json"):
            engine.load(tmp_path)
        assert engine.complete([[5, 6]], GREEDY)[0].finish is not None


def test_prompts_that_do_not_fit_are_refused(random_folder: Path) -> None:
    with Engine(options(random_folder, context_length=64)) as engine:
        for prompt, match in (([], "empty"), ([9999], "must be in"), ([5] * 64, "longer than the model's context")):
            with pytest.raises(CallError, match=match):
                engine.complete([prompt], GREEDY)
        with pytest.raises(CallError, match="maximum context length of 64 tokens"):
            engine.complete([[5] * 60], GREEDY)
        free = SamplingParams(max_new_tokens=None, temperature=0.0, ignore_eos=True)
        assert len(engine.complete([[5] * 60], free)[0].tokens) == 4
