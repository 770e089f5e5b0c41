"""A byte-level BPE tokenizer of 2,048 to 4,096 entries, trained on the text it is given, with its chat template.

Always holds: every Unicode string survives encode and decode; the same text in the same order gives the same file,
byte for byte; every message starts and ends with an added token, so that a conversation can be encoded message by
message. Text of a viewer or a tool can never become a control token: the template breaks such strings up.
Not here: conversations as ids (codec), the model (qwen).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rfc8785

from hat_components.model.settings import TokenizerConfig
from hat_components.step import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

EOS = "<|im_end|>"
PAD = "<|pad|>"
ROLES = ("system", "user", "assistant", "tool")

CALL_OPEN = '<tool_call>\n{"name": "'
CALL_ARGUMENTS = '", "arguments": '
CALL_CLOSE = "}\n</tool_call>"
FUSED = (
    *(f"<|im_start|>{role}\n" for role in ROLES),
    "<think>",
    "</think>",
    CALL_OPEN,
    '", "arguments": {"',
    '": "',
    '", "',
    '"}}\n</tool_call>',
    '", "arguments": {}}\n</tool_call>',
)
"""Strings that stand as one token each, so that a Hermes tool call costs about ten tokens."""

PRE_SPLIT = r"_[A-Za-z]+| ?[A-Za-z]+| ?\d+| ?[^\sA-Za-z\d]|\s"
"""`get_item` splits into `get` and `_item`; a Chinese character stands alone."""

GUARDS = (
    ("<|", "< |"),
    ("<think>", "< think>"),
    ("</think>", "< /think>"),
    ("<tool_call>", "< tool_call>"),
    ("</tool_call>", "< /tool_call>"),
)
"""What the template replaces in all text that it did not write itself."""

JSON_GUARDS = (("<|", "<\\u007c"), ("</tool_call>", "<\\/tool_call>"))
"""The same inside JSON arguments, as escapes that parse back to the original string."""


def _chat_template() -> str:
    """The Jinja template; `generation` blocks make assistant masks work, arguments may be a JSON string or a dict."""
    guard = "".join(f" | replace({json.dumps(old)}, {json.dumps(new)})" for old, new in GUARDS)
    json_guard = "".join(f" | replace({json.dumps(old)}, {json.dumps(new)})" for old, new in JSON_GUARDS)
    opener, middle, closer = (json.dumps(part) for part in (CALL_OPEN, CALL_ARGUMENTS, CALL_CLOSE))
    lines = (
        "{%- macro plain(text) -%}{{- text" + guard + " -}}{%- endmacro -%}",
        "{%- for m in messages -%}",
        "{%- if m.role == 'assistant' -%}",
        "{{- '<|im_start|>assistant\\n' -}}",
        "{%- generation -%}",
        "{%- set thought = m.reasoning_content or m.reasoning -%}",
        "{%- if thought -%}{{- '<think>' + plain(thought) + '</think>' -}}{%- endif -%}",
        "{%- if m.content -%}{{- plain(m.content) -}}{%- endif -%}",
        "{%- for c in m.tool_calls or [] -%}",
        "{%- set f = c.function or c -%}",
        "{%- set a = f.arguments if f.arguments is string else (f.arguments or {}) | tojson -%}",
        f"{{{{- {opener} + plain(f.name) + {middle} + (a{json_guard}) + {closer} -}}}}",
        "{%- endfor -%}",
        "{{- '<|im_end|>' -}}",
        "{%- endgeneration -%}",
        "{{- '\\n' -}}",
        "{%- else -%}",
        "{{- '<|im_start|>' + m.role + '\\n' + plain(m.content or '') + '<|im_end|>\\n' -}}",
        "{%- endif -%}",
        "{%- endfor -%}",
        "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}",
    )
    return "".join(lines)


CHAT_TEMPLATE = _chat_template()

RESPONSE_TEMPLATE: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close_pattern": r"</think>\s*", "content": "text"},
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}
"""How transformers and TRL parse what the model wrote."""


def train_tokenizer(
    texts: Iterable[str], words: Iterable[str], config: TokenizerConfig | None = None
) -> PreTrainedTokenizerFast:
    """Train on `texts`, in order, and on every word of `words` in three forms, so that names copy part by part."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    config = config or TokenizerConfig()
    bpe = Tokenizer(models.BPE(unk_token=None, byte_fallback=False))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()

    def stream() -> Iterator[str]:
        yield from texts
        for word in words:
            for form in (word, " " + word, "_" + word):
                for _ in range(config.word_weight):
                    yield form

    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[PAD, EOS],
        show_progress=False,
    )
    bpe.train_from_iterator(stream(), trainer)
    bpe.add_tokens([AddedToken(text, normalized=False, special=False) for text in FUSED])
    return wrap(bpe)


def wrap(bpe: Any) -> PreTrainedTokenizerFast:
    """The transformers tokenizer around a `tokenizers.Tokenizer`, with both templates set."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=EOS,
        pad_token=PAD,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.response_template = RESPONSE_TEMPLATE
    return tokenizer


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> str:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja into `folder`; return the digest."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(str(folder))
    return tokenizer_digest(folder)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Load from a local folder; never from a hub, never with code of the folder. Raises InputError."""
    from transformers import AutoTokenizer

    if not (folder / "tokenizer.json").is_file():
        raise InputError("there is no tokenizer.json", place=str(folder), cure="give a folder made by the base step")
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises bare Exception on a broken file
        raise InputError(f"the tokenizer cannot be read: {error}", place=str(folder)) from error
    return tokenizer


def tokenizer_digest(folder: Path) -> str:
    """`sha256:` over what decides ids and rendering: tokenizer.json and the chat template."""
    parts = {}
    for name in ("tokenizer.json", "chat_template.jinja"):
        path = folder / name
        if path.is_file():
            parts[name] = "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    if "tokenizer.json" not in parts:
        raise InputError("there is no tokenizer.json", place=str(folder))
    return "sha256:" + hashlib.sha256(rfc8785.dumps({"format": 1, "parts": parts})).hexdigest()
