"""Tiny random models of the classes that profile h20 trains, with our tokenizer or with Qwen3.6's chat template."""

from __future__ import annotations

from pathlib import Path

import torch
import trl
from tokenizers import AddedToken
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from hat_components.model.folder import save_folder
from hat_components.model.template import codec_of
from hat_components.model.tokenizer import wrap

DENSE = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 16, "max_position_embeddings": 2048,
}  # fmt: skip
HYBRID = {
    **DENSE, "moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 16,
    "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8,
}  # fmt: skip
del HYBRID["intermediate_size"]
CLASSES = {"qwen3": DENSE, "qwen3_5_moe_text": HYBRID}


def qwen_tokenizer(tokenizer):
    """Our vocabulary under the chat template of Qwen3.6."""
    from tokenizers import Tokenizer

    bpe = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    marks = ("<|endoftext|>", "<|im_start|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
    bpe.add_tokens([AddedToken(text, normalized=False, special=False) for text in marks])
    found = wrap(bpe)
    found.response_template = None
    found.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3_6.jinja").read_text(encoding="utf-8")
    return found


def write_model(folder: Path, kind: str, tokenizer, seed: int = 3) -> Path:
    """A folder of a random model of the class `kind`."""
    config = CONFIG_MAPPING[kind](
        **CLASSES[kind], vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id, bos_token_id=None, tie_word_embeddings=kind == "qwen3",
    )  # fmt: skip
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    save_folder(folder, model, codec_of(tokenizer), {})
    return folder
