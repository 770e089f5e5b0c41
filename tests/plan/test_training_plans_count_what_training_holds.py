"""Training plans: counts equal real models, bytes equal what torch keeps, and what does not fit is refused with its cure."""

from __future__ import annotations

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from hat_components.plan.config import Method, Model, TrainPlan, load_plan
from hat_components.plan.memory import GIB, STAGES, advice, least_gpus, needs, with_changes
from hat_components.plan.shape import measure
from hat_components.step import InputError

DENSE = {
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "vocab_size": 500,
}  # fmt: skip
MOE = {**DENSE, "moe_intermediate_size": 48, "num_experts": 4, "num_experts_per_tok": 2}
HYBRID = {
    **MOE, "shared_expert_intermediate_size": 48, "num_hidden_layers": 4, "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
}  # fmt: skip
del HYBRID["intermediate_size"]
CLASSES = [("qwen3", DENSE), ("qwen3_moe", MOE), ("qwen3_5_moe_text", HYBRID)]


@pytest.mark.parametrize(("kind", "config"), CLASSES)
def test_parameters_are_those_of_the_real_model(kind: str, config: dict[str, int]) -> None:
    shape = measure(Model.model_validate({"class": kind, "config": config}), Method(targets=("o_proj",), rank=3))
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**config))
    assert shape.total == sum(parameter.numel() for parameter in model.parameters())
    assert shape.layers == config["num_hidden_layers"]
    adapted = [module for name, module in model.named_modules() if name.endswith("o_proj")]
    assert shape.adapters == sum(3 * (one.in_features + one.out_features) for one in adapted)


@pytest.mark.parametrize(("kind", "config"), CLASSES)
def test_adapters_are_those_that_peft_makes(kind: str, config: dict[str, int]) -> None:
    from peft import LoraConfig, get_peft_model

    targets = ("q_proj", "o_proj")
    shape = measure(Model.model_validate({"class": kind, "config": config}), Method(targets=targets, rank=4))
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**config))
    wrapped = get_peft_model(model, LoraConfig(r=4, target_modules=list(targets), task_type="CAUSAL_LM"))
    assert shape.adapters == wrapped.get_nb_trainable_parameters()[0]


@pytest.mark.parametrize(("kind", "config"), CLASSES[:2])
def test_a_layers_saved_tensors_are_within_the_estimate(kind: str, config: dict[str, int]) -> None:
    """Measured in 16 bits over one layer, each storage once; the estimate may not be below, nor more than twice."""
    torch.manual_seed(0)
    built = CONFIG_MAPPING[kind](**config)
    built._attn_implementation = "sdpa"
    model = AutoModelForCausalLM.from_config(built).to(torch.bfloat16).model
    tokens = 256
    hidden = torch.randn(1, tokens, config["hidden_size"], dtype=torch.bfloat16, requires_grad=True)
    position = model.rotary_emb(hidden, torch.arange(tokens)[None])
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model.layers[1](hidden, position_embeddings=position)
    assert output is not None
    shape = measure(Model.model_validate({"class": kind, "config": config}), Method(targets=("o_proj",)))
    measured = sum(kept.values()) / tokens
    assert 0.5 * measured <= shape.layer_bytes_per_token <= 2 * measured


def test_the_cache_of_a_session_is_what_transformers_keeps() -> None:
    shape = measure(Model.model_validate({"class": "qwen3", "config": DENSE}), Method(targets=("o_proj",)))
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING["qwen3"](**DENSE)).to(torch.bfloat16)
    cache = model(input_ids=torch.zeros(1, 10, dtype=torch.long), use_cache=True).past_key_values
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    assert shape.kv_bytes_per_token * 10 == held


@pytest.mark.parametrize("method", ["lora", "full"])
@pytest.mark.parametrize(("kind", "config"), CLASSES)
def test_bytes_are_those_that_a_training_step_allocates(kind: str, config: dict[str, int], method: str) -> None:
    """Weights, gradients and optimiser of one step as the steps of a large model take it, on one device."""
    from hat_components.large.load import trainable
    from hat_components.large.settings import Large

    one = TrainPlan.model_validate(
        {
            "name": "tiny",
            "model": {"class": kind, "config": config},
            "gpu": {"count": 1},
            "method": {"kind": method, "rank": 4, "targets": ["q_proj", "o_proj"]},
            "batch": {"sequence": 8},
        }
    )
    shape = measure(one.model, one.method)
    parts = needs(one, shape)[0].parts
    large = Large(method=one.method.kind, rank=4, targets=("q_proj", "o_proj"))
    dtype = torch.float32 if method == "full" else torch.bfloat16
    built = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**config)).to(dtype)
    model = trainable(built, large, 1, False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=1e-3)
    with torch.autocast("cpu", torch.bfloat16):
        model(input_ids=torch.arange(8)[None], labels=torch.arange(8)[None]).loss.backward()
    for parameter in trained:  # an expert that no token visits has a gradient, too, once the optimiser ran
        parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    optimiser.step()
    held = {
        "weights": sum(parameter.nbytes for parameter in model.parameters()),
        "gradients": sum(parameter.grad.nbytes for parameter in trained if parameter.grad is not None),
        "optimiser": sum(
            value.nbytes for state in optimiser.state.values() for key, value in state.items() if key != "step"
        ),
    }
    for name, size in held.items():
        assert parts[name] * GIB == pytest.approx(size), name
    teacher = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**config)).to(torch.bfloat16)
    assert needs(one, shape)[1].parts["teacher"] * GIB == pytest.approx(sum(p.nbytes for p in teacher.parameters()))
    assert (needs(one, shape)[2].parts["teacher"] > 0) == (method == "full")


@pytest.mark.parametrize(("kind", "config"), CLASSES)
def test_sessions_of_a_rollout_hold_what_is_planned(kind: str, config: dict[str, int]) -> None:
    sessions, tokens = 3, 10
    one = plan(model={"class": kind, "config": config}, rollouts={"sessions": sessions, "tokens": tokens})
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**config)).to(torch.bfloat16)
    given = torch.zeros(sessions, tokens, dtype=torch.long)
    output = model(input_ids=given, use_cache=True)
    cache = output.cache if hasattr(output, "cache") else output.past_key_values
    held = 0
    for layer in cache.layers:
        for value in vars(layer).values():
            found = value if isinstance(value, list | tuple) else value.values() if isinstance(value, dict) else [value]
            held += sum(tensor.nbytes for tensor in found if isinstance(tensor, torch.Tensor))
    parts = needs(one, measure(one.model, one.method))[2].parts
    assert parts["rollouts"] * GIB == pytest.approx(held)


@pytest.mark.parametrize(("kind", "config"), CLASSES)
def test_the_head_that_mtp_trains_is_about_the_layer_that_is_planned(kind: str, config: dict[str, int]) -> None:
    """The planned head is the largest layer; the real one has its joint, too."""
    from hat_components.mtp.head import DraftHead

    shape = measure(Model.model_validate({"class": kind, "config": config}), Method(targets=("o_proj",)))
    head = DraftHead(CONFIG_MAPPING[kind](**config))
    joint = 2 * config["hidden_size"] ** 2 + 3 * config["hidden_size"]
    layer = sum(parameter.numel() for parameter in head.parameters()) - joint
    assert 0.5 * shape.largest_layer < layer <= shape.largest_layer


@pytest.mark.parametrize(("kind", "config"), CLASSES)
def test_with_checkpointing_a_layer_keeps_its_input_alone(kind: str, config: dict[str, int]) -> None:
    one = plan(model={"class": kind, "config": config}, batch={"sequence": 64})
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**config)).to(torch.bfloat16).model
    model.gradient_checkpointing_enable()
    model.train()
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in own and tensor.numel() >= 64 * config["hidden_size"]:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(input_ids=torch.zeros(1, 64, dtype=torch.long), use_cache=False)
    assert output is not None
    shape = measure(one.model, one.method)
    inputs = 64 * shape.hidden * 2 * shape.layers
    planned = needs(one, shape)[0].parts["activations"] * GIB - 64 * shape.layer_bytes_per_token
    assert planned == pytest.approx(inputs)
    assert inputs <= sum(kept.values()) <= inputs + 3 * 64 * shape.hidden * 4, "and the final norm's"


def plan(**changes: object) -> TrainPlan:
    document: dict[str, object] = {"name": "small", "model": {"class": "qwen3", "config": DENSE}}
    return TrainPlan.model_validate({**document, "method": {"targets": ["o_proj"]}, **changes})


def test_sharded_state_is_divided_and_the_rest_is_not() -> None:
    one, eight = (with_changes(plan(), gpus=count, method="full", sequence=None) for count in (1, 8))
    shape = measure(one.model, one.method)
    alone, shared = needs(one, shape)[0].parts, needs(eight, shape)[0].parts
    for name in ("weights", "gradients", "optimiser"):
        assert alone[name] == pytest.approx(8 * shared[name])
    assert alone["activations"] == shared["activations"]
    assert alone["gathered"] == pytest.approx(2 * shape.total / GIB)
    assert shared["gathered"] > 0
    assert alone["weights"] + alone["gradients"] + alone["optimiser"] == pytest.approx(16 * shape.total / GIB)


def test_checkpointing_lora_and_a_shorter_sequence_each_need_less() -> None:
    long = plan(batch={"sequence": 4096, "checkpointing": False})
    shape = measure(long.model, long.method)
    base = needs(long, shape)[0].total
    assert needs(plan(batch={"sequence": 4096}), shape)[0].total < base
    assert needs(with_changes(long, gpus=None, method=None, sequence=512), shape)[0].total < base
    full = with_changes(long, gpus=None, method="full", sequence=None)
    assert needs(full, measure(full.model, full.method))[0].total > base


def test_the_shipped_plan_fits_on_its_node_and_says_what_one_gpu_lacks() -> None:
    shipped = load_plan("h20")
    shape = measure(shipped.model, shipped.method)
    assert [need.stage for need in needs(shipped, shape)] == list(STAGES)
    assert 34e9 < shape.total < 36e9
    assert all(need.fits for need in needs(shipped, shape))
    full = with_changes(shipped, gpus=1, method="full", sequence=None)
    whole = measure(full.model, full.method)
    assert not any(need.fits for need in needs(full, whole)[:3])
    wanted = least_gpus(full, whole)
    assert wanted is not None
    assert advice(full, whole).startswith(f"{wanted} GPUs")
    enough = with_changes(full, gpus=wanted, method=None, sequence=None)
    assert all(need.fits for need in needs(enough, whole))


def test_an_unknown_plan_is_refused() -> None:
    with pytest.raises(InputError, match="there is none") as caught:
        load_plan("h21")
    assert "h20" in caught.value.cure
