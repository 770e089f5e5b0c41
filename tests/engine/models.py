"""Model folders that the engine's tests serve, made by transformers: one random, one that talks.

The talker is overfitted in seconds to a few conversations, so that it thinks, calls tools, answers in two scripts and
ends by itself; its MTP head is trained beside it. Both have the tokenizer kind and template of the platform's own models.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from hat_components.model.settings import TokenizerConfig
from hat_components.model.tokenizer import save_tokenizer, train_tokenizer

WORDS = (
    *("price", "stock", "red", "blue", "mug", "shirt", "discount", "order", "room", "viewer"),
    *("what", "is", "the", "of", "this", "item", "please", "now", "color", "size"),
)

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} of an item",
            "parameters": {"type": "object", "properties": {"item": {"type": "string"}}},
        },
    }
    for name in ("get_price", "get_stock")
]

CALL = '<tool_call>\n{"name": "%s", "arguments": {"item": "%s"}}\n</tool_call>'

TALKS: tuple[tuple[str, str], ...] = (
    ("what is the price of the red mug", "<think>the price of the red mug</think>" + CALL % ("get_price", "red mug")),
    (
        "price and stock of the blue shirt",
        "<think>two calls</think>one moment" + CALL % ("get_price", "blue shirt") + CALL % ("get_stock", "blue shirt"),
    ),
    ("hello", "<think>a greeting</think>hello viewer, what is it that you want to order now?"),
    ("你好", "<think>问候</think>你好！这个杯子是红色的。"),
    ("no thinking", "</think>the red mug is 12 and the blue shirt is 30, please order now."),
    ("count", "<think>numbers</think>" + " ".join(str(number) for number in range(1, 40))),
)
"""(what the viewer says, what the talker writes)."""


def random_model(folder: Path, seed: int = 7) -> Path:
    """107,648 random parameters that spread their logits, so that greedy decoding wanders."""
    tokenizer = _tokenizer()
    save_tokenizer(tokenizer, folder)
    torch.manual_seed(seed)
    Qwen3ForCausalLM(_config(tokenizer, initializer_range=0.2)).save_pretrained(str(folder))
    return folder


def talker_model(folder: Path, steps: int = 220) -> Path:
    """A model that greedily writes `TALKS`, with a trained MTP head."""
    tokenizer = _tokenizer()
    save_tokenizer(tokenizer, folder)
    torch.manual_seed(11)
    model = Qwen3ForCausalLM(_config(tokenizer, initializer_range=0.05))
    rows = [_row(tokenizer, asked, said) for asked, said in TALKS]
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([row + [1] * (width - len(row)) for row, _ in rows])
    labels = torch.tensor([[-100] * start + row[start:] + [-100] * (width - len(row)) for row, start in rows])
    head = _Head(model.config)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=4e-3, weight_decay=0.0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min(1.0, (steps - step) / (steps * 0.3))
        hidden = model.model(input_ids=ids).last_hidden_state
        loss = _loss(model, hidden[:, :-1], labels[:, 1:])
        drafted = head(model, hidden[:, :-1].detach(), ids[:, 1:])
        loss = loss + _loss(model, drafted[:, :-1], labels[:, 2:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(str(folder))
    add_head(folder, head.tensors())
    return folder


def fit_head(
    folder: Path, rows: list[tuple[list[int], int]], *, steps: int = 300, batch: int = 8, depth: int = 3, seed: int = 1
) -> None:
    """Train an MTP head on what the folder's model wrote, and write it beside the weights.

    `rows` are (ids, where the answer begins). Three recursive steps with the weights .51, .31, .18 (FastMTP, arXiv
    2509.18362), so that drafts of drafts are trained too.
    """
    model = Qwen3ForCausalLM.from_pretrained(str(folder), dtype=torch.float32).eval()
    torch.manual_seed(seed)
    head = _Head(model.config)
    optimizer = torch.optim.AdamW(head.parameters(), lr=3e-3, weight_decay=0.01)
    ordered = sorted(rows, key=lambda row: len(row[0]))
    groups = [ordered[start : start + batch] for start in range(0, len(ordered), batch)]
    order = torch.randint(len(groups), (steps,)).tolist()
    kept: dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}
    for step, index in enumerate(order):
        if index not in kept:
            kept[index] = _states(model, groups[index])
        ids, labels, hidden = kept[index]
        loss, state = torch.zeros(()), hidden
        for deep, weight in zip(range(1, depth + 1), (0.51, 0.31, 0.18), strict=False):
            state = head(model, state[:, :-1], ids[:, deep:])
            loss = loss + weight * _loss(model, state[:, :-1], labels[:, deep + 1 :])
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 20, 2.0 * (steps - step) / steps)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
    add_head(folder, head.tensors())


def _states(
    model: Qwen3ForCausalLM, rows: list[tuple[list[int], int]]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(ids, labels of the answers, hidden states) of a padded batch."""
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([row + [1] * (width - len(row)) for row, _ in rows])
    labels = torch.tensor([[-100] * start + row[start:] + [-100] * (width - len(row)) for row, start in rows])
    with torch.no_grad():
        return ids, labels, model.model(input_ids=ids).last_hidden_state


def without_head(source: Path, folder: Path) -> Path:
    """A copy of a model folder without `mtp.*`."""
    folder.mkdir(parents=True)
    for file in source.iterdir():
        if file.suffix != ".safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
    weights = load_file(source / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("mtp.")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def add_head(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Write `tensors` into the folder's weights."""
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, **tensors}, folder / "model.safetensors", metadata={"format": "pt"})


def random_head(config_file: Path, seed: int = 3) -> dict[str, torch.Tensor]:
    """An MTP head that knows nothing, for a folder's config."""
    torch.manual_seed(seed)
    return _Head(Qwen3Config(**json.loads(config_file.read_text()))).tensors(scale=4.0)


class _Head(torch.nn.Module):
    """The NextN head as transformers modules, to train it and to name its tensors."""

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RMSNorm, Qwen3RotaryEmbedding

        config._attn_implementation = "sdpa"
        size, epsilon = config.hidden_size, config.rms_norm_eps
        self.fc = torch.nn.Linear(2 * size, size, bias=False)
        self.pre_fc_norm_embedding = Qwen3RMSNorm(size, epsilon)
        self.pre_fc_norm_hidden = Qwen3RMSNorm(size, epsilon)
        self.layers = torch.nn.ModuleList([Qwen3DecoderLayer(config, 0)])
        self.norm = Qwen3RMSNorm(size, epsilon)
        self._rotary = [Qwen3RotaryEmbedding(config)]

    def forward(self, model: Qwen3ForCausalLM, hidden: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        """States [B, T, H] from the model's states and the tokens one ahead."""
        embedded = self.pre_fc_norm_embedding(model.model.embed_tokens(following).detach())
        x = self.fc(torch.cat([embedded, self.pre_fc_norm_hidden(hidden)], dim=-1))
        length = x.shape[1]
        positions = torch.arange(length)[None]
        mask = torch.full((length, length), float("-inf")).triu(1)[None, None]
        turns = self._rotary[0](x, positions)
        x = self.layers[0](x, attention_mask=mask, position_ids=positions, position_embeddings=turns)
        return self.norm(x[0] if isinstance(x, tuple) else x)

    def tensors(self, scale: float = 1.0) -> dict[str, torch.Tensor]:
        """Tensors under their `mtp.*` names; matrices times `scale`."""
        return {
            f"mtp.{name}": (value.detach() * (scale if value.dim() > 1 else 1.0)).contiguous().clone()
            for name, value in self.named_parameters()
        }


def _loss(model: Qwen3ForCausalLM, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    picked = labels != -100
    return functional.cross_entropy(model.lm_head(hidden[picked]), labels[picked])


def _tokenizer() -> PreTrainedTokenizerFast:
    texts = [f"{asked} {said}" for asked, said in TALKS]
    texts += [f"what is the price of the {one} in {other}?" for one in WORDS for other in WORDS]
    return train_tokenizer(texts, WORDS, TokenizerConfig(vocab_size=512))


def _config(tokenizer: PreTrainedTokenizerFast, initializer_range: float) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=128,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=initializer_range,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )


def _row(tokenizer: PreTrainedTokenizerFast, asked: str, said: str) -> tuple[list[int], int]:
    """(ids, where the answer begins)."""
    backend: Any = tokenizer.backend_tokenizer
    messages = [{"role": "user", "content": asked}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    start = backend.encode(prompt, add_special_tokens=False).ids
    return start + backend.encode(said + "<|im_end|>", add_special_tokens=False).ids, len(start)
