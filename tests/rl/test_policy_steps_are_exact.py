"""The loss is the formula, both loops take the same step, and a row is what the model read and wrote."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hat_components.model.checkpoint import Checkpoints
from hat_components.model.codec import Codec
from hat_components.model.course import attention
from hat_components.model.generate import MicroModel
from hat_components.model.qwen import CAUSAL, build_model
from hat_components.rl.config import Config
from hat_components.rl.course import Course
from hat_components.rl.loss import k3, policy_loss, sampled_logps, token_weights
from hat_components.rl.plain import run_plain
from hat_components.rl.reward import Term, compose
from hat_components.rl.rollouts import SCORES, Player, Rollouts
from hat_components.rl.rows import FlatRow, flat_row
from hat_components.rl.shared import SHARED, shared_logps
from hat_components.rl.step import run
from hat_components.step import NullProgress
from hat_harness.trace import sampled
from tests.rl.conftest import TINY

TERMS = {"length": Term(raw=True), "accuracy": Term(), "tool_rationality": Term(floor=0.05)}
CONFIG = Config(
    threads=1,
    steps=3,
    groups=2,
    group=4,
    rows_at_once=4,
    call_tokens=12,
    length_free=0,
    length_full=8,
    terms=TERMS,
    learning_rate=1e-2,
    warmup_steps=0,
    checkpoint_every=1,
    trainer="plain",
)


class Curves(NullProgress):
    def __init__(self):
        self.points = {}

    def metric(self, name, value, step):
        self.points.setdefault(name, []).append((step, value))


def rows():
    return [
        FlatRow((5, 6, 7), (8, 9, 10, 11), (1, 0, 0, 1), (-1.0, 0, 0, -2.0)),
        FlatRow((4,), (3, 12), (1, 1), (-0.5, -0.7)),
        FlatRow((4, 9), (2,), (0,), (0.0,)),
    ]


def reference_logps(model, row, temperature):
    """Written out: one row at a time, in double precision."""
    logits = model(input_ids=torch.tensor([row.ids])).logits[0].double() / temperature
    places = [len(row.prompt) + i for i, kept in enumerate(row.mask) if kept]
    return torch.stack([torch.log_softmax(logits[p - 1], -1)[row.ids[p]] for p in places]) if places else None


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_of_a_padded_pass_are_those_of_each_row_alone(tiny, temperature):
    found = sampled_logps(tiny, rows(), temperature)
    for row, logps in zip(rows(), found, strict=True):
        wanted = reference_logps(tiny, row, temperature)
        assert logps.tolist() == pytest.approx([] if wanted is None else wanted.tolist(), abs=1e-5)


def test_rows_that_share_their_prompt_give_the_log_probabilities_and_gradient_of_each_alone(tiny):
    prompt = (5, 6, 7, 9)
    group = [
        FlatRow(prompt, (8, 9, 10, 11, 3), (1, 0, 0, 1, 1), (0.0,) * 5),
        FlatRow(prompt, (3, 12), (1, 1), (0.0,) * 2),
        FlatRow(prompt, (4,), (1,), (0.0,)),
    ]
    found = []
    for name, logps in ((CAUSAL, sampled_logps), (SHARED, shared_logps)):
        tiny.zero_grad()
        with attention(tiny, name):
            told = torch.cat(logps(tiny, group, 0.7))
            (told * torch.arange(len(told))).sum().backward()
        found.append((told.tolist(), [p.grad.clone() for p in tiny.parameters() if p.grad is not None]))
    tiny.zero_grad()
    (alone, gradient), (together, shared) = found
    assert together == pytest.approx(alone, abs=1e-5)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(gradient, shared, strict=True))
    with pytest.raises(ValueError, match="share"):
        shared_logps(tiny, [group[0], rows()[0]], 1.0)


@pytest.mark.parametrize("rule", ["dapo", "grpo"])
def test_the_loss_is_the_formula_and_its_gradient_the_policy_gradient(rule):
    generator = torch.Generator().manual_seed(4)
    logps = -torch.rand(4, generator=generator, dtype=torch.float64) - 0.1
    logps.requires_grad_(True)
    reference = -torch.rand(4, generator=generator, dtype=torch.float64)
    counts, advantages = torch.tensor([2, 2, 0]), [1.5, -0.5, 9.0]
    weights = token_weights(rows(), rule)
    per_token = torch.tensor(weights, dtype=torch.float64).repeat_interleave(counts)
    signed = torch.tensor(advantages, dtype=torch.float64).repeat_interleave(counts)
    loss = policy_loss(logps, signed, per_token, 0.3, reference)
    loss.backward()
    value, gradient = 0.0, []
    for s in range(4):
        row = s // 2
        weight = 1 / 4 if rule == "dapo" else 1 / (3 * 2)
        own, ref = logps[s].item(), reference[s].item()
        value += weight * (-advantages[row] + 0.3 * (math.exp(ref - own) - (ref - own) - 1))
        estimate = math.exp(ref - own) - (ref - own) - 1
        gradient.append(weight * (-advantages[row] + 0.3 * (estimate + 1 - math.exp(ref - own))))
    assert loss.item() == pytest.approx(value, abs=1e-12)
    assert logps.grad.tolist() == pytest.approx(gradient, abs=1e-12)


def test_the_kl_terms_gradient_is_that_of_the_kl_divergence_by_finite_differences():
    """Expected over the policy's own samples, which is what the importance weight is for."""
    logits = torch.tensor([0.3, -0.8, 1.1, 0.0], dtype=torch.float64, requires_grad=True)
    other = torch.log_softmax(torch.tensor([-0.2, 0.4, 0.1, 0.9], dtype=torch.float64), -1)

    def divergence(x):
        logp = torch.log_softmax(x, -1)
        return (logp.exp() * (logp - other)).sum()

    logp = torch.log_softmax(logits, -1)
    policy_loss(logp, torch.zeros(4), logp.detach().exp(), 1.0, other).backward()
    for place in range(4):
        step = torch.zeros(4, dtype=torch.float64)
        step[place] = 1e-5
        slope = (divergence(logits.detach() + step) - divergence(logits.detach() - step)) / 2e-5
        assert logits.grad[place].item() == pytest.approx(slope.item(), abs=1e-8)
    assert (k3(logp, other) >= 0).all()


@pytest.fixture(scope="module")
def course_of(model_folder, harness, tokenizer):
    def make(config, progress=None, folder=None, frozen=True):
        model = build_model(TINY.model_copy(update={"initializer_range": 0.1}), tokenizer, seed=5)
        model.get_input_embeddings().weight.requires_grad_(not frozen)
        codec = Codec(tokenizer)
        checkpoints = Checkpoints(folder, "sha256:x") if folder else None
        player = Player(config, harness, codec, model)
        return Course(model, player, config, progress or NullProgress(), checkpoints, tokenizer)

    return make


@pytest.fixture
def varied(monkeypatch):
    """Rewards that differ between the rollouts of an untrained model, whose real scores are all the same."""

    def values(played, *_):
        trace = played.trace
        outputs = [out for i in range(len(trace.segments)) for out in sampled(trace, i).values()]
        tokens = [token for output in outputs for token in output.token_ids]
        odd = sum(token % 2 for token in tokens) / max(1, len(tokens))
        return {"accuracy": odd, "length": tokens[0] % 7 / 7 if tokens else None, "tool_rationality": odd > 0.5}

    monkeypatch.setattr("hat_components.rl.rollouts.values_of", values)


@pytest.mark.parametrize(("rule", "beta"), [("dapo", 0.0), ("grpo", 0.2)])
def test_trls_trainer_and_the_lean_loop_take_the_same_step(course_of, varied, rule, beta):
    from hat_components.rl.trl_loop import run_trl

    config = CONFIG.model_copy(update={"steps": 2, "loss": rule, "beta": beta, "clip": 0.5})
    told = [Curves(), Curves()]
    plain, trl = course_of(config, told[0]), course_of(config, told[1])
    before = {name: weight.detach().clone() for name, weight in plain.model.named_parameters()}
    run_plain(plain)
    run_trl(trl)
    ours, theirs = dict(plain.model.named_parameters()), dict(trl.model.named_parameters())
    moved = max(float((ours[name] - before[name]).abs().max()) for name in ours)
    apart = max(float((ours[name] - theirs[name]).abs().max()) for name in ours)
    assert moved > 5e-3
    # Adam turns rounding of a gradient near zero into a step; sums depend on the number of threads.
    assert apart < moved / 10
    for name in ("rl.loss", "rl.kl", "rl.entropy", "rl.reward.length"):
        assert [v for _, v in told[0].points[name]] == pytest.approx([v for _, v in told[1].points[name]], abs=1e-4)


def test_all_rollouts_of_a_group_share_item_and_state_and_groups_differ(course_of):
    player = course_of(CONFIG)._player
    cases = [case for step in range(6) for case in player.cases(step)]
    assert cases == [case for step in range(6) for case in player.cases(step)]
    assert len({item.id + str(item.seed) for item, _ in cases}) == len(cases)
    assert len({state.digest for _, state in cases}) > 6
    assert all(item.split == "train" for item, _ in cases)
    original = Player(CONFIG.model_copy(update={"states": "original"}), *_parts(course_of))
    assert {state.families for step in range(3) for _, state in original.cases(step)} == {()}


def _parts(course_of):
    from tests.conftest import REPOSITORY

    course = course_of(CONFIG)
    return REPOSITORY / "harness-registry/harnesses/live-commerce", Codec(course.tokenizer), course.model


def test_of_the_items_that_are_drawn_groups_are_made_of_those_that_went_worst(course_of, monkeypatch):
    kept = CONFIG.model_copy(update={"screen": 3})
    player = course_of(kept)._player
    drawn = player.cases(1)
    assert len(drawn) == 3 * kept.groups
    assert [item.id for item, _ in drawn[: kept.groups]] != [item.id for item, _ in player.cases(0)[: kept.groups]]
    asked, played = [], player._played

    def noted(cases, label):
        asked.append([item.id for item, _ in cases])
        earned = {item.id: float(place not in (1, 4)) for place, (item, _) in enumerate(drawn)}
        found = played(cases, label)
        marks = [dict.fromkeys(SCORES, earned[one.item.id]) for one in found]
        return [
            replace(one, scores=tuple(score.model_copy(update=mark) for score in one.scores))
            for one, mark in zip(found, marks, strict=True)
        ]

    monkeypatch.setattr(player, "_played", noted)
    rollouts = player.play(1, course_of(kept).model)
    assert asked[0] == [item.id for item, _ in drawn]
    assert asked[1] == [drawn[place][0].id for place in (1, 4) for _ in range(kept.group)]
    assert rollouts.screened == {name: pytest.approx(4 / 6) for name in SCORES}


def test_a_rows_tokens_are_what_was_sampled_and_what_the_model_was_given(course_of, monkeypatch):
    course = course_of(CONFIG)
    player = course._player
    traces = []
    monkeypatch.setattr("hat_components.rl.rollouts.flat_row", lambda t, c: traces.append(t) or flat_row(t, c))
    read = []
    run_rows = player._policy._sampler.__class__.run

    def spy(sampler, found, temperature):
        run_rows(sampler, found, temperature)
        read.extend((tuple(row.prompt), tuple(row.ids)) for row in found)

    monkeypatch.setattr(player._policy._sampler.__class__, "run", spy)
    rollouts = player.play(0, course.model)
    assert len(rollouts.rows) == 8
    whole = {prompt + ids for prompt, ids in read}
    for trace, row in zip(traces, rollouts.rows, strict=True):
        assert row.ids in whole, "the row is one context with its last sample, to the token"
        assert row.left_out == 0 or len(trace.segments) > 1
        kept = [token for token, one in zip(row.completion, row.mask, strict=True) if one]
        outputs = [out for i in range(len(trace.segments)) for out in sampled(trace, i).values()]
        told = [token for output in outputs for token in output.token_ids]
        assert kept == told[len(told) - len(kept) :]
    assert any(0 in row.mask for row in rollouts.rows), "several model calls in one row"


def test_sampled_logprobs_are_the_trained_models(course_of):
    course = course_of(CONFIG.model_copy(update={"beta": 0.1}))
    prepared = course.begin()
    course.model.eval()
    for row, ours in zip(prepared.rows, prepared.reference, strict=True):
        sampled_with = [lp for lp, kept in zip(row.logprobs, row.mask, strict=True) if kept]
        assert ours.tolist() == pytest.approx(sampled_with, abs=1e-4)


class Game:
    """A player whose sessions are one prompt; a rollout earns the share of its tokens that are of the chosen half."""

    def __init__(self, codec, model):
        self.policy = MicroModel(model, codec, temperature=1.0, seed=2)

    def play(self, step, model):
        self.policy.update(model)
        prompt = (5, 6, 7)
        drawn = self.policy.sample([prompt] * 64, 6, key=str(step))
        rewards = [float(np.mean([token % 2 for token in row.ids])) for row in drawn]
        made = [FlatRow(prompt, row.ids, (1,) * len(row.ids), row.logprobs) for row in drawn]
        return Rollouts(tuple(made), compose({"odd": rewards}, {"odd": Term()}, 8), {}, 0.0)


def test_what_is_rewarded_becomes_more_likely_by_sampled_rollouts_alone(course_of):
    told = Curves()
    course = course_of(
        CONFIG.model_copy(update={"steps": 40, "rows_at_once": 64, "learning_rate": 2e-2}), told, frozen=False
    )
    course._player = Game(Codec(course.tokenizer), course.model)
    run_plain(course)
    curve = [value for _, value in told.points["rl.reward.odd"]]
    assert np.mean(curve[:3]) < 0.65
    assert np.mean(curve[-3:]) > 0.9


@pytest.mark.parametrize("trainer", ["plain", "trl"])
def test_a_stopped_run_ends_with_the_same_weights(tmp_path, model_folder, harness, varied, trainer):
    config = CONFIG.model_copy(update={"trainer": trainer, "steps": 3})
    inputs = {"start": model_folder, "harness": harness}

    class Stop(NullProgress):
        def metric(self, name, value, step):
            if (name, step) == ("rl.loss", 3):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, inputs, tmp_path / "a", Stop())
    assert not (tmp_path / "a" / "model").exists()
    seen = Curves()
    resumed = run(config, inputs, tmp_path / "a", seen)
    assert [step for step, _ in seen.points["rl.loss"]] == [3], "two steps were kept"
    straight = run(config, inputs, tmp_path / "b", NullProgress())
    assert resumed.digests == straight.digests
    assert resumed.metrics["rl.steps"] == 3
    before, after = (load_file(folder / "model.safetensors") for folder in (model_folder, tmp_path / "b" / "model"))
    assert max(float((before[name] - after[name]).abs().max()) for name in before) > 1e-3
    assert {"rl.reward.accuracy", "rl.dead_groups", "rl.kl", "rl.entropy"} <= set(resumed.metrics)


def test_held_out_scores_are_told_at_the_start_on_the_way_and_at_the_end(tmp_path, model_folder, harness):
    config = CONFIG.model_copy(update={"steps": 3, "score_every": 2, "score_items": 2})
    told = Curves()
    run(config, {"start": model_folder, "harness": harness}, tmp_path, told)
    for name in ("accuracy", "effectiveness", "skill_selection", "tool_rationality"):
        points = told.points[f"rl.score.{name}"]
        assert [step for step, _ in points] == [1, 3, 4]
        assert all(0 <= value <= 1 for _, value in points)
