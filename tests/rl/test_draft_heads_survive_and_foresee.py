"""A draft head survives what transformers drops, is trained as it is used, and its acceptance is what a server counts."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import AutoModelForCausalLM

from hat_components.model.checkpoint import Checkpoints
from hat_components.model.qwen import build_model, load_model, save_model
from hat_components.model.settings import ModelConfig
from hat_components.mtp.acceptance import spans_of, walk
from hat_components.mtp.config import Config
from hat_components.mtp.fit import Course, Trunk, head_loss, measure, padded
from hat_components.mtp.head import DraftHead, depth_weights
from hat_components.mtp.step import run
from hat_components.mtp.tensors import check_head, put_head, read_head, transplant
from hat_components.rl.rows import FlatRow
from hat_components.step import InputError, NullProgress
from tests.rl.test_policy_steps_are_exact import Curves

SHAPE = ModelConfig(hidden=32, layers=2, heads=4, kv_heads=2, feed_forward=48, max_positions=256, initializer_range=0.2)
NAMES = (
    {"fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"}
    | {
        f"layers.0.{name}"
        for name in ("input_layernorm", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    }
    | {f"layers.0.self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")}
)


@pytest.fixture
def policy(tokenizer):
    return build_model(SHAPE, tokenizer, seed=4).eval().requires_grad_(False)


@pytest.fixture
def head(policy):
    torch.manual_seed(5)
    made = DraftHead(policy.config)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3) if parameter.dim() > 1 else torch.nn.init.uniform_(
            parameter, 0.5, 1.5
        )
    return made


@pytest.fixture
def headed(tmp_path, policy, head):
    (tmp_path / "headed").mkdir()
    save_model(policy, tmp_path / "headed")
    put_head(tmp_path / "headed", head.tensors())
    return tmp_path / "headed"


def test_the_names_are_those_that_sglang_reads(head):
    assert set(head.tensors()) == {f"mtp.{name}.weight" for name in NAMES}
    assert head.shapes()["mtp.fc.weight"] == (32, 64)


def test_transformers_loses_the_head_and_a_transplant_brings_it_back_bit_for_bit(tmp_path, headed, head, policy):
    model = AutoModelForCausalLM.from_pretrained(str(headed), local_files_only=True)
    model.save_pretrained(str(tmp_path / "saved"))
    assert read_head(tmp_path / "saved") == {}, "if transformers keeps it now, this step has less to do"
    names = transplant(headed, tmp_path / "saved", tmp_path / "repaired")
    found = read_head(tmp_path / "repaired")
    assert names == sorted(head.tensors())
    assert all(torch.equal(found[name], tensor) for name, tensor in head.tensors().items())
    weights = dict(load_model(tmp_path / "repaired").named_parameters())
    assert all(torch.equal(weights[name], tensor) for name, tensor in policy.named_parameters())


def test_a_sharded_folder_gets_a_shard_and_an_index_that_names_it(tmp_path, headed, policy, head):
    policy.save_pretrained(str(tmp_path / "sharded"), max_shard_size="100KB")
    before = json.loads((tmp_path / "sharded" / "model.safetensors.index.json").read_text())["weight_map"]
    assert len(set(before.values())) > 1
    for _ in range(2):
        put_head(tmp_path / "sharded", head.tensors())
    after = json.loads((tmp_path / "sharded" / "model.safetensors.index.json").read_text())["weight_map"]
    assert {n: f for n, f in after.items() if not n.startswith("mtp.")} == before
    found = read_head(tmp_path / "sharded")
    assert all(torch.equal(found[name], tensor) for name, tensor in head.tensors().items())
    load_model(tmp_path / "sharded")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda t: t.pop("mtp.fc.weight"), "mtp.fc.weight is missing"),
        (lambda t: t.update({"mtp.layers.0.mlp.experts.weight": torch.ones(1)}), "experts.weight is unknown"),
        (lambda t: t.update({"mtp.norm.weight": torch.ones(31)}), r"mtp.norm.weight is \(31,\), not \(32,\)"),
        (lambda t: t["mtp.norm.weight"].fill_(float("nan")), "mtp.norm.weight is not finite"),
    ],
)
def test_a_head_that_does_not_fit_is_told_before_anything_is_played(tmp_path, head, change, told):
    tensors = head.tensors()
    change(tensors)
    with pytest.raises(InputError, match=told):
        check_head(tensors, head.shapes(), tmp_path)


def test_a_model_without_a_head_has_none_to_give(tmp_path, model_folder):
    with pytest.raises(InputError, match="no draft head"):
        transplant(model_folder, model_folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def stepwise(policy, head, ids, depth):
    """Every chain on its own, one token at a time over a growing list of keys, in the order in which a server goes."""
    layer = head.layers[0]
    attended, size = layer.self_attn, layer.self_attn.head_dim
    hidden = policy.model(input_ids=ids[None]).last_hidden_state[0]

    def norm(module, x):
        return functional.rms_norm(x, x.shape[-1:], module.weight, policy.config.rms_norm_eps)

    def turn(x, place):
        cos, sin = (part[0, 0] for part in policy.model.rotary_emb(x, torch.tensor([[place]])))
        return x * cos + torch.cat((-x[..., size // 2 :], x[..., : size // 2]), -1) * sin

    def one(embedding, state, place, cache):
        x = head.fc(torch.cat([norm(head.pre_fc_norm_embedding, embedding), norm(head.pre_fc_norm_hidden, state)]))
        y = norm(layer.input_layernorm, x)
        q, k, v = (proj(y).view(-1, size) for proj in (attended.q_proj, attended.k_proj, attended.v_proj))
        cache.append((turn(norm(attended.k_norm, k), place), v))
        q = turn(norm(attended.q_norm, q), place)
        mixed = []
        for number in range(q.shape[0]):
            group = number // (q.shape[0] // k.shape[0])
            scores = torch.stack([q[number] @ key[group] for key, _ in cache]) * size**-0.5
            mixed.append(sum(w * value[group] for w, (_, value) in zip(scores.softmax(0), cache, strict=True)))
        x = x + attended.o_proj(torch.cat(mixed))
        return norm(head.norm, x + layer.mlp(norm(layer.post_attention_layernorm, x)))

    embed = policy.get_input_embeddings()
    trunk, outputs = [], [[] for _ in range(depth)]
    for chain in range(len(ids) - 1):
        state = one(embed(ids[chain + 1]), hidden[chain], chain, trunk)
        outputs[0].append(state)
        cache = list(trunk)
        for k in range(2, depth + 1):
            if chain + k >= len(ids):
                break
            state = one(embed(ids[chain + k]), state, chain + k - 1, cache)
            outputs[k - 1].append(state)
    return [torch.stack(found) for found in outputs]


@torch.no_grad()
def test_all_chains_at_once_are_each_chain_alone(policy, head):
    ids = torch.tensor([5, 9, 100, 17, 300, 2, 44, 61])
    hidden = policy.model(input_ids=ids[None]).last_hidden_state
    for found, wanted in zip(head(policy, ids[None], hidden, 3), stepwise(policy, head, ids, 3), strict=True):
        assert torch.allclose(found[0], wanted, atol=1e-4)


def exact(module):
    """The module in float64, its norms too, which transformers computes in float32."""
    for name, child in module.double().named_children():
        if type(child).__name__ == "Qwen3RMSNorm":
            made = torch.nn.RMSNorm(child.weight.shape[0], child.variance_epsilon, dtype=torch.float64)
            made.weight = child.weight
            setattr(module, name, made)
        else:
            exact(child)
    return module


ROWS = (
    FlatRow((5, 9, 100), (17, 300, 2, 44, 61), (1, 1, 0, 0, 1), (0.0,) * 5),
    FlatRow((4,), (8, 9), (1, 1), (0.0, 0.0)),
)


def test_the_loss_is_the_weighted_likelihood_of_sampled_tokens_alone(policy, head):
    """In float64, against every chain on its own; the gradient against finite differences."""
    policy, head = exact(policy), exact(head)
    loss, told = head_loss(policy, head, padded(ROWS), 3, 0.6)
    loss.backward()
    torch.manual_seed(2)
    ways = [(weight, torch.randn_like(weight)) for weight in head.parameters()]
    slope = sum((weight.grad * way).sum() for weight, way in ways).item()
    with torch.no_grad():
        ends = []
        for step in (1e-5, -2e-5):
            for weight, way in ways:
                weight += step * way
            ends.append(head_loss(policy, head, padded(ROWS), 3, 0.6)[0].item())
        for weight, way in ways:
            weight += 1e-5 * way
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5)
        _is_written_out(policy, head, loss, told)


def _is_written_out(policy, head, loss, told):
    sums, counts = [0.0] * 3, [0] * 3
    for one in ROWS:
        ids = torch.tensor(one.ids)
        written = [False] * len(one.prompt) + [bool(m) for m in one.mask]
        for k, states in enumerate(stepwise(policy, head, ids, min(3, len(ids) - 1)), 1):
            for chain, state in enumerate(states):
                target = chain + k + 1
                if target < len(ids) and written[target]:
                    sums[k - 1] -= torch.log_softmax(policy.lm_head(state), -1)[ids[target]].item()
                    counts[k - 1] += 1
    wanted = [total / count for total, count in zip(sums, counts, strict=True)]
    assert told == pytest.approx(wanted, abs=1e-9)
    assert loss.item() == pytest.approx(
        sum(w * x for w, x in zip(depth_weights(3, 0.6), wanted, strict=True)), abs=1e-9
    )
    assert depth_weights(3, 0.6) == pytest.approx([0.5102, 0.3061, 0.1837], abs=1e-4)


@torch.no_grad()
def test_states_are_the_same_bits_kept_or_not_and_whatever_stands_beside(policy, head):
    kept, anew = Trunk(policy, ROWS), Trunk(policy, ROWS, kept=0)
    for numbers in ([0, 1], [1], [1, 0]):
        one, other = kept.batch(numbers), anew.batch(numbers)
        assert torch.equal(one.hidden, other.hidden)
        for place, number in enumerate(numbers):
            assert torch.equal(one.hidden[place, : len(ROWS[number].ids)], kept.of(number))
    batch = kept.batch([0, 1])
    chains, every = batch.chains(3), head(policy, batch.ids, batch.hidden, 3)
    for k, some in enumerate(head(policy, batch.ids, batch.hidden, 3, chains), 1):
        _, wanted = batch.targets(chains, k)
        for row, place in wanted.nonzero().tolist():
            assert torch.allclose(some[row, place], every[k - 1][row, chains[row, place]], atol=1e-5)


def test_acceptance_is_counted_as_a_server_does():
    """Span of tokens 3 to 9; the first comes from the prompt. Depths foresee: yes no | yes yes | no."""
    right = [[False] * 12 for _ in range(2)]
    right[0][2] = True  # at 3: 4 is right, 5 is wrong -> one accepted, one more from the model: 5
    right[0][4] = right[1][4] = True  # at 5: 6 and 7 are right -> 8 from the model
    found = walk(right, [(3, 10)], 2)  # at 8: 9 is not foreseen -> 9 from the model
    assert (found.tokens, found.verifications, found.accepted) == (6, 3, 3)
    assert found.length == 2.0
    assert found.rate_sglang == 0.5
    assert found.rate_paper == pytest.approx(2 / 3)
    assert walk(right, [(3, 4)], 2).verifications == 0
    assert spans_of(3, [1, 1, 0, 1, 0, 0, 1]) == [(3, 5), (6, 7), (9, 10)]


@pytest.fixture
def cycle_rows():
    """Text that goes round in a circle of seven tokens: easy to foresee."""
    circle = [10, 23, 31, 47, 52, 68, 79]
    rows = []
    for first in range(7):
        ids = [circle[(first + i) % 7] for i in range(30)]
        rows.append(FlatRow(tuple(ids[:3]), tuple(ids[3:]), (1,) * 27, (0.0,) * 27))
    return rows


def test_training_makes_a_head_foresee_and_a_stopped_one_ends_alike(tmp_path, policy, cycle_rows):
    config = Config(steps=40, batch=7, depth=3, learning_rate=1e-2, checkpoint_every=10)
    before = {name: weight.clone() for name, weight in policy.named_parameters()}

    def fresh():
        torch.manual_seed(1)
        return DraftHead(policy.config)

    def course(made, told, folder):
        return Course(policy, made, cycle_rows, config, told, Checkpoints(tmp_path / folder, "sha256:x"))

    class Stop(NullProgress):
        def metric(self, name, value, step):
            if (name, step) == ("mtp.loss", 25):
                raise KeyboardInterrupt

    straight, stopped, told = fresh(), fresh(), Curves()
    assert measure(policy, straight, cycle_rows, 3).length < 1.5
    course(straight, told, "a").run()
    assert measure(policy, straight, cycle_rows, 3).length > 3.0
    assert told.points["mtp.loss"][-1][1] < 0.5 * told.points["mtp.loss"][0][1]
    with pytest.raises(KeyboardInterrupt):
        course(stopped, Stop(), "b").run()
    resumed = fresh()
    course(resumed, NullProgress(), "b").run()
    assert all(torch.equal(resumed.tensors()[name], tensor) for name, tensor in straight.tensors().items())
    assert all(torch.equal(weight, before[name]) for name, weight in policy.named_parameters())


def test_the_step_keeps_the_policy_and_writes_a_head_that_is_read_back(tmp_path, model_folder, harness):
    config = Config(
        threads=1,
        sessions=4,
        copying=2,
        held_out=2,
        steps=3,
        batch=2,
        depth=2,
        call_tokens=10,
        states="original",
        checkpoint_every=0,
    )
    result = run(config, {"start": model_folder, "harness": harness}, tmp_path / "a", NullProgress())
    made = tmp_path / "a" / "model"
    old, new = load_file(model_folder / "model.safetensors"), load_file(made / "model.safetensors")
    assert all(torch.equal(new[name], tensor) for name, tensor in old.items())
    assert {name for name in new if name not in old} == {f"mtp.{name}.weight" for name in NAMES}
    assert {"mtp.accept_length_after", "mtp.accept_rate_sglang_after", "mtp.accept_rate_paper_after"} <= set(
        result.metrics
    )
    assert result.notes["stages"]["mtp"]["origin"] == "fresh"
    again = run(config, {"start": model_folder, "harness": harness, "head": made}, tmp_path / "b", NullProgress())
    assert again.notes["stages"]["mtp"]["origin"] == "carried over"
    with pytest.raises(InputError, match="no draft head"):
        run(config, {"start": model_folder, "harness": harness, "head": model_folder}, tmp_path / "c", NullProgress())
    shutil.copytree(made, tmp_path / "broken")
    weights = load_file(tmp_path / "broken" / "model.safetensors")
    weights["mtp.norm.weight"] = torch.ones(7)
    save_file(weights, tmp_path / "broken" / "model.safetensors")
    with pytest.raises(InputError, match="does not fit the model"):
        run(config, {"start": tmp_path / "broken", "harness": harness}, tmp_path / "d", NullProgress())
