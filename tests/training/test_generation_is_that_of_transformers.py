"""Greedy sampling writes what transformers writes; caches, batches and order change nothing; seeds decide the rest."""

from __future__ import annotations

import random

import pytest
import torch

from hat_components.model.generate import MicroModel, common_length
from hat_components.model.qwen import build_model
from hat_components.model.settings import ModelConfig
from hat_harness.events import CallModel, Failure, Message

SHAPES = {
    "as many key heads": ModelConfig(hidden=48, layers=3, heads=4, kv_heads=4, feed_forward=64, max_positions=256),
    "shared key heads": ModelConfig(hidden=48, layers=2, heads=6, kv_heads=2, feed_forward=64, max_positions=256),
}


def lively(config, tokenizer, seed=5):
    """Weights so large that the model writes many different tokens."""
    return build_model(config.model_copy(update={"initializer_range": 0.15}), tokenizer, seed).eval()


@pytest.fixture(params=list(SHAPES))
def model(request, tokenizer):
    return lively(SHAPES[request.param], tokenizer)


def prompts(tokenizer, count=14, seed=1):
    rng = random.Random(seed)
    drawn = [[rng.randrange(2, len(tokenizer)) for _ in range(rng.randint(1, 90))] for _ in range(count)]
    shared = drawn[2] + drawn[3]
    return [*drawn, *(shared + [rng.randrange(2, len(tokenizer)) for _ in range(4)] for _ in range(3)), drawn[4]]


def reference(model, tokenizer, prompt, limit):
    ids = torch.tensor([prompt])
    with torch.no_grad():
        told = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=limit,
            do_sample=False,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    return told[0, len(prompt) :].tolist()


def test_greedy_is_transformers_token_by_token(model, tokenizer, codec):
    drawn = prompts(tokenizer)
    written = MicroModel(model, codec, rows=7).sample(drawn, 20)
    assert [list(row.ids) for row in written] == [reference(model, tokenizer, prompt, 20) for prompt in drawn]
    assert sum(len(set(row.ids)) for row in written) > 8 * len(written), "a model that repeats itself proves little"


def test_logprobs_are_those_of_the_model_at_the_temperature(model, tokenizer, codec):
    drawn = prompts(tokenizer)[:6]
    for temperature in (0.0, 0.7):
        for prompt, row in zip(drawn, MicroModel(model, codec, temperature=temperature).sample(drawn, 12), strict=True):
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([[*prompt, *row.ids]])).logits[0, len(prompt) - 1 : -1]
            told = torch.log_softmax(logits / (temperature or 1.0), dim=-1)
            wanted = told.gather(1, torch.tensor(row.ids)[:, None])[:, 0]
            assert torch.allclose(torch.tensor(row.logprobs), wanted, atol=1e-4)


def test_samples_depend_on_seed_and_key_not_on_the_batch(model, tokenizer, codec):
    drawn = prompts(tokenizer)
    hot = MicroModel(model, codec, temperature=1.0, seed=3)
    together = hot.sample(drawn, 10, key="k")
    alone = MicroModel(model, codec, temperature=1.0, seed=3, rows=2).sample(drawn, 10, key="k")
    assert [row.ids for row in together] == [row.ids for row in alone]
    assert [row.ids for row in hot.sample(drawn, 10, key="other")] != [row.ids for row in together]
    assert [row.ids for row in MicroModel(model, codec, temperature=1.0, seed=4).sample(drawn, 10, key="k")] != [
        row.ids for row in together
    ]


def test_samples_follow_the_distribution(tokenizer, codec):
    model = lively(SHAPES["shared key heads"], tokenizer)
    prompt = [5, 6, 7]
    with torch.no_grad():
        wanted = torch.softmax(model(input_ids=torch.tensor([prompt])).logits[0, -1], dim=-1)
    count = 4000
    first = [row.ids[0] for row in MicroModel(model, codec, temperature=1.0, rows=1000).sample([prompt] * count, 1)]
    top = torch.topk(wanted, 5).indices.tolist()
    for token in top:
        share, p = first.count(token) / count, wanted[token].item()
        assert abs(share - p) < 5 * (p * (1 - p) / count) ** 0.5 + 1e-9


def talk(model, codec, sessions, turns=3, **options):
    """`sessions` conversations of `turns` calls each through `generate`; the tool answers differ."""
    micro = MicroModel(model, codec, **options)
    contexts = {
        name: [Message("system", f"you are {name}"), Message("user", f"the {name} mirror")] for name in sessions
    }
    known = dict.fromkeys(sessions, 0)
    outputs = []
    for turn in range(turns):
        calls = [
            (name, CallModel(f"{name}.{turn}", 1, tuple(contexts[name]), known[name], (), 14)) for name in sessions
        ]
        for (name, call), output in zip(calls, micro.generate(calls), strict=True):
            known[name] = len(call.messages)
            outputs.append(output)
            written = Message("assistant", output.content, output.reasoning, output.tool_calls)
            contexts[name] += [written, Message("tool", f"wallet {turn}", tool_call_id="x")]
    return micro, outputs


def test_kept_caches_change_no_token_over_the_turns_of_a_session(model, codec):
    sessions = ["garden", "rocket", "violin"]
    _, kept = talk(model, codec, sessions)
    single = [output for name in sessions for output in talk(model, codec, [name])[1]]
    assert sorted((out.call_id, out.token_ids) for out in kept) == sorted(
        (out.call_id, out.token_ids) for out in single
    )


def test_what_was_sampled_stays_as_it_was_sampled(model, codec, tokenizer):
    """Random weights write tokens that no encoding of their text would give; the next context must hold those."""
    sessions = ["garden"]
    micro, outputs = talk(model, codec, sessions, turns=2)
    ids = micro._kept["garden"].ids
    prefix = codec.encode_prefix([Message("system", "you are garden"), Message("user", "the garden mirror")])
    first, second = outputs
    assert ids[: len(prefix)] == prefix
    assert tuple(ids[len(prefix) : len(prefix) + len(first.token_ids)]) == first.token_ids
    assert second.prompt_tokens == len(ids) - len(second.token_ids)
    assert reference(model, tokenizer, ids[: second.prompt_tokens], 14) == list(second.token_ids)


def test_an_edited_or_forgotten_context_is_encoded_anew(model, codec, tokenizer):
    micro, outputs = talk(model, codec, ["garden"], turns=1)
    messages = [Message("system", "you are garden"), Message("user", "the garden mirror")]
    edited = (*messages, Message("assistant", "a text that nobody sampled"), Message("user", "again"))
    answer = micro.generate([("garden", CallModel("b", 1, edited, 2, (), 9))])[0]
    assert list(answer.token_ids) == reference(model, tokenizer, codec.encode_prefix(edited), 9)
    other = micro.generate([("garden", CallModel("c", 2, tuple(messages), 0, (), 14))])[0]
    assert other.token_ids == outputs[0].token_ids
    micro.forget("garden")
    assert micro.generate([("garden", CallModel("d", 1, edited, 2, (), 9))])[0].token_ids == answer.token_ids


def test_caches_stay_within_their_bound(model, codec):
    micro, outputs = talk(model, codec, [f"s{number}" for number in range(12)], cache_tokens=150)
    assert micro._cached == sum(len(kept.ids) for kept in micro._kept.values()) <= 150
    assert all(not isinstance(output, Failure) for output in outputs)


def test_a_context_that_does_not_fit_is_a_failure_and_harms_no_other(model, codec):
    micro = MicroModel(model, codec)
    long = Message("user", "mirror " * 400)
    short = Message("user", "mirror")
    answers = micro.generate(
        [("a", CallModel("1", 1, (long,), 0, (), 9)), ("b", CallModel("2", 1, (short,), 0, (), 9))]
    )
    assert isinstance(answers[0], Failure)
    assert (answers[0].scope, answers[0].kind, answers[0].call_id) == ("call", "malformed", "1")
    assert not isinstance(answers[1], Failure)
    assert answers[1].call_id == "2"


def test_new_weights_take_effect_and_drop_the_caches(codec, tokenizer):
    config = SHAPES["shared key heads"]
    micro, before = talk(lively(config, tokenizer), codec, ["garden"], turns=1)
    micro.update(lively(config, tokenizer, seed=9))
    messages = (Message("system", "you are garden"), Message("user", "the garden mirror"))
    after = micro.generate([("garden", CallModel("garden.0", 1, messages, 0, (), 14))])[0]
    assert after.token_ids != before[0].token_ids


def test_bfloat16_agrees_with_float32_on_the_first_token_nearly_always(model, tokenizer, codec):
    drawn = prompts(tokenizer)
    exact = MicroModel(model, codec).sample(drawn, 1)
    fast = MicroModel(model, codec, precision="bfloat16").sample(drawn, 1)
    agree = sum(one.ids == other.ids for one, other in zip(exact, fast, strict=True))
    assert agree >= len(drawn) - 3


@pytest.mark.parametrize(("one", "other", "common"), [([], [1], 0), ([1, 2], [1, 2, 3], 2), ([1, 2, 4], [1, 2, 3], 2)])
def test_common_length(one, other, common):
    assert common_length(one, other) == common_length(other, one) == common
