"""The loss is that of the supervised tokens, shares count tokens, both loops give the same weights, frozen stays frozen."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from torch.nn import functional

from hat_components.model.batches import FileRows, Source, Stream, bucket
from hat_components.model.codec import IGNORED, Row
from hat_components.model.general import draw_of, sources
from hat_components.model.muon import MuonAdamW
from hat_components.model.qwen import CAUSAL, build_model
from hat_components.model.settings import FitConfig
from hat_components.model.train import TrainingError, fit, supervised_loss
from hat_components.step import InputError, NullProgress
from tests.training.conftest import TINY

FAST = FitConfig(tokens=6_000, batch_tokens=512, learning_rate=1e-2, warmup_steps=3, log_every=4)


def make_stream(codec, words, seed=1, max_length=512):
    parts = [
        *sources({"copy": 0.6, "instruction": 0.1}, codec, words),
        Source("s", 0.3, draw_of("session", codec, words)),
    ]
    return Stream(parts, 512, seed, max_length)


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_the_loss_is_the_mean_over_the_assistants_tokens(tiny, codec, words):
    batch = next(make_stream(codec, words))
    loss = supervised_loss(tiny, batch.ids, batch.labels, "float32")
    logits = tiny(input_ids=batch.ids, attention_mask=(batch.ids >= 0).long()).logits
    told = functional.cross_entropy(
        logits[:, :-1].reshape(-1, logits.shape[-1]), batch.labels[:, 1:].reshape(-1), ignore_index=IGNORED
    )
    assert torch.allclose(loss, told, atol=1e-5)
    assert 0 < (batch.labels != IGNORED).sum() < batch.labels.numel()


def test_the_training_attention_is_the_models_attention(tokenizer, codec, words):
    batch = next(make_stream(codec, words, seed=4))
    model = build_model(TINY.model_copy(update={"initializer_range": 0.2}), tokenizer, 1)
    with torch.no_grad():
        told = model(input_ids=batch.ids).logits
        model.set_attn_implementation(CAUSAL)
        assert torch.allclose(model(input_ids=batch.ids, use_cache=False).logits, told, atol=1e-4)


def test_a_padded_token_changes_nothing(tiny, codec, words):
    batch = next(make_stream(codec, words))
    wider_ids = functional.pad(batch.ids, (0, 7), value=9)
    wider_labels = functional.pad(batch.labels, (0, 7), value=IGNORED)
    tiny.set_attn_implementation(CAUSAL)
    assert torch.allclose(
        supervised_loss(tiny, batch.ids, batch.labels), supervised_loss(tiny, wider_ids, wider_labels), atol=1e-4
    )


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_trl_and_the_plain_loop_end_with_the_same_bits(tokenizer, codec, words, optimizer):
    ends, reports = [], []
    for trainer in ("plain", "trl"):
        model = build_model(TINY, tokenizer, 3)
        config = FAST.model_copy(update={"trainer": trainer, "optimizer": optimizer})
        reports.append(fit(model, make_stream(codec, words), config, NullProgress(), tokenizer=tokenizer))
        ends.append(weights(model))
    assert same(*ends)
    assert reports[0].facts() == reports[1].facts()
    assert not same(ends[0], weights(build_model(TINY, tokenizer, 3)))


def test_training_lowers_the_loss_and_reports_its_curve(tokenizer, codec, words):
    class Curve(NullProgress):
        def __init__(self):
            self.points = []

        def metric(self, name, value, step):
            self.points.append((name, value, step))

    curve = Curve()
    model = build_model(TINY, tokenizer, 3)
    config = FAST.model_copy(update={"tokens": 60_000})
    report = fit(model, make_stream(codec, words), config, curve, name="sft")
    assert [name for name, _, _ in curve.points] == ["sft.loss"] * len(curve.points)
    assert [step for _, _, step in curve.points] == sorted({step for _, _, step in curve.points})
    assert curve.points[-1][2] == report.steps
    assert curve.points[-1][1] < curve.points[0][1] - 1.0


def test_a_frozen_embedding_and_its_tied_head_stay_as_they_are(tokenizer, codec, words):
    model = build_model(TINY, tokenizer, 3)
    before = weights(model)
    model.get_input_embeddings().weight.requires_grad_(False)
    fit(model, make_stream(codec, words), FAST, NullProgress())
    changed = {name for name, value in weights(model).items() if not torch.equal(value, before[name])}
    assert changed == set(before) - {"model.embed_tokens.weight"}
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_muon_takes_the_matrices_and_adamw_the_rest(tiny):
    optimizer = MuonAdamW(tiny.named_parameters(), 1e-3)
    muon, adamw = optimizer._parts
    assert isinstance(muon, torch.optim.Muon)
    assert isinstance(adamw, torch.optim.AdamW)
    count = sum(len(group["params"]) for group in optimizer.param_groups)
    assert count == len(list(tiny.parameters()))
    names = {parameter: name for name, parameter in tiny.named_parameters()}
    of_muon = {names[parameter] for parameter in muon.param_groups[0]["params"]}
    assert of_muon == {name for name, p in tiny.named_parameters() if name.endswith("proj.weight")}
    assert all(
        group is other
        for group, other in zip(optimizer.param_groups, [*muon.param_groups, *adamw.param_groups], strict=True)
    )


@pytest.mark.parametrize("way", ["tensors", "state_dict"])
def test_the_optimisers_state_can_be_kept(tokenizer, codec, words, way):
    batches = [next(stream) for stream in [make_stream(codec, words)] for _ in range(6)]

    def steps(model, optimizer, some):
        for batch in some:
            supervised_loss(model, batch.ids, batch.labels, "float32").backward()
            optimizer.step()
            optimizer.zero_grad()

    straight = build_model(TINY, tokenizer, 3)
    whole = MuonAdamW(straight.named_parameters(), 1e-2)
    steps(straight, whole, batches[:3])
    second = build_model(TINY, tokenizer, 4)
    second.load_state_dict(straight.state_dict())
    fresh = MuonAdamW(second.named_parameters(), 1e-2)
    if way == "tensors":
        fresh.load_tensors(whole.tensors())
    else:
        fresh.load_state_dict(copy.deepcopy(whole.state_dict()))  # torch shares the tensors
    steps(straight, whole, batches[3:])
    steps(second, fresh, batches[3:])
    assert same(weights(straight), weights(second))


def test_a_loss_that_is_no_number_ends_the_run(tokenizer, codec, words):
    model = build_model(TINY, tokenizer, 3)
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    for trainer in ("plain", "trl"):
        config = FAST.model_copy(update={"trainer": trainer})
        with pytest.raises(TrainingError, match="loss is nan at step 1") as caught:
            fit(model, make_stream(codec, words), config, NullProgress(), tokenizer=tokenizer)
        assert caught.value.cure


def test_a_low_loss_ends_a_course_early(tokenizer, codec):
    row = codec.row([{"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}])
    stream = Stream([Source("one", 1.0, lambda rng: [row])], 128, 1, 64)
    model = build_model(TINY, tokenizer, 3)
    report = fit(model, stream, FAST.model_copy(update={"tokens": 400_000, "stop_below": 2.0}), NullProgress())
    assert report.tokens < 400_000
    assert report.steps >= 100


# ---- batches ------------------------------------------------------------------------------------------------------


def test_shares_hold_in_tokens_however_long_the_rows_are(codec, words):
    stream = make_stream(codec, words)
    for _ in range(400):
        next(stream)
    assert stream.shares() == pytest.approx({"copy": 0.6, "instruction": 0.1, "s": 0.3}, abs=0.01)


def test_a_restored_stream_goes_on_with_the_same_batches(codec, words):
    rows = [codec.row([{"role": "assistant", "content": f"wallet {n}"}]) for n in range(37)]

    def build():
        return Stream(
            [Source("file", 0.4, FileRows(rows, 5)), Source("copy", 0.6, draw_of("copy", codec, words))], 256, 9, 64
        )

    stream = build()
    batches = [next(stream) for _ in range(150)]
    for stop in (0, 1, 63, 64, 65, 111, 148):
        again = build()
        again.restore(batches[stop].position)
        for wanted in batches[stop + 1 : stop + 4]:
            found = next(again)
            assert torch.equal(found.ids, wanted.ids)
            assert torch.equal(found.labels, wanted.labels)
            assert found.position == wanted.position


def test_every_row_of_a_data_set_comes_once_an_epoch_in_new_order():
    rows = [Row((n,), (n,)) for n in range(50)]
    source = FileRows(rows, seed=2)
    epochs = [[source.at(cursor).ids[0] for cursor in range(start, start + 50)] for start in (0, 50)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(50))
    assert epochs[0] != epochs[1]
    assert [FileRows(rows, seed=2).at(n).ids[0] for n in range(50)] == epochs[0]


def test_batches_keep_their_bound_and_lose_no_row():
    rng = random.Random(0)
    rows = [Row(tuple([n] * rng.randint(1, 90)), ()) for n in range(300)]
    groups = bucket(rows, 256, rng)
    assert sorted(row.ids for group in groups for row in group) == sorted(row.ids for row in rows)
    assert all(len(group) * max(len(row.ids) for row in group) <= 256 for group in groups)
    computed = sum(len(group) * max(len(row.ids) for row in group) for group in groups)
    assert computed < 1.1 * sum(len(row.ids) for row in rows), "like lengths stand together"


def test_rows_that_are_too_long_are_cut_and_counted():
    stream = Stream([Source("long", 1.0, lambda rng: [Row((1,) * 90, (1,) * 90)])], 256, 1, max_length=40)
    batch = next(stream)
    assert batch.ids.shape[1] == 40
    assert stream.cut > 0


def test_a_source_that_gives_nothing_is_told():
    with pytest.raises(InputError, match="nothing to learn"):
        next(Stream([Source("none", 1.0, lambda rng: [])], 256, 1, 64))
    late = Row((1,) * 90, (IGNORED,) * 80 + (1,) * 10)
    with pytest.raises(InputError, match="nothing to learn within 64 tokens"):
        next(Stream([Source("late", 1.0, lambda rng: [late])], 256, 1, 64))
    with pytest.raises(InputError, match="no source"):
        Stream([Source("none", 0.0, lambda rng: [])], 256, 1, 64)
    with pytest.raises(InputError, match="no usable row"):
        FileRows([], 1)
