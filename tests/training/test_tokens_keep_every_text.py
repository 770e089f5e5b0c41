"""The tokenizer keeps every text, keeps names in parts, and lets no viewer write a control token."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hat_components.base.corpus import corpus_texts, corpus_words
from hat_components.model.codec import Codec
from hat_components.model.general import words_in
from hat_components.model.settings import TokenizerConfig
from hat_components.model.tokenizer import FUSED, load_tokenizer, save_tokenizer, tokenizer_digest, train_tokenizer
from hat_components.scenarios import load
from hat_components.step import InputError

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "components" / "hat_components" / "base" / "shipped" / "micro-2" / "model"
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
CONTROL = ("<|im_start|>", "<|im_end|>", "<|pad|>", "<think>", "</think>", "<tool_call>", "</tool_call>", *FUSED)


@settings(max_examples=200, deadline=None)
@given(text=TEXT)
def test_every_unicode_text_survives(codec, text):
    assert codec.text(codec.encode_text(text)) == text


@pytest.mark.parametrize("text", ["这个杯子多少钱？", "价格是 39 元，很便宜！", "🎉 напиши مرحبا \x00\t\r\n"])
def test_chinese_and_rare_characters_survive(codec, text):
    assert codec.text(codec.encode_text(text)) == text


def test_names_split_at_their_underscores(codec):
    parts = [codec.text([token]) for token in codec.encode_text("wallet_garden")]
    assert "wallet" in {"".join(parts[:count]) for count in range(len(parts))}


@settings(max_examples=150, deadline=None)
@given(parts=st.lists(st.sampled_from(CONTROL) | TEXT, max_size=6), role=st.sampled_from(["system", "user", "tool"]))
def test_text_of_others_never_becomes_a_control_token(codec, tokenizer, parts, role):
    content = "".join(parts)
    ids = codec.encode_prefix([{"role": role, "content": content}])
    forbidden = {tokenizer.convert_tokens_to_ids(text) for text in CONTROL if text in tokenizer.get_vocab()}
    harmless = {tokenizer.convert_tokens_to_ids(text) for text in ('": "', '", "', '", "arguments": {"')}
    controls = [token for token in ids if token in forbidden - harmless]
    opener = tokenizer.convert_tokens_to_ids(f"<|im_start|>{role}\n")
    answer = tokenizer.convert_tokens_to_ids("<|im_start|>assistant\n")
    assert controls == [opener, codec.eos, answer]
    assert ids == tokenizer.apply_chat_template(
        [{"role": role, "content": content}], add_generation_prompt=True, return_dict=False
    )


def test_the_same_texts_give_the_same_files(tmp_path):
    words = corpus_words(None)
    digests = set()
    for name in ("a", "b"):
        made = train_tokenizer(corpus_texts(None, 5, 20, words), words, TokenizerConfig(vocab_size=400))
        digests.add(save_tokenizer(made, tmp_path / name))
    other = train_tokenizer(corpus_texts(None, 6, 20, words), words, TokenizerConfig(vocab_size=400))
    assert len(digests) == 1
    assert save_tokenizer(other, tmp_path / "c") not in digests


def test_a_saved_tokenizer_reads_back_with_its_templates(tmp_path, tokenizer, words):
    from hat_scenarios import general

    digest = save_tokenizer(tokenizer, tmp_path / "t")
    again = load_tokenizer(tmp_path / "t")
    assert tokenizer_digest(tmp_path / "t") == digest
    messages = general.stream("session", random.Random(1), words)
    assert Codec(again).row(messages) == Codec(tokenizer).row(messages)
    assert again.response_template == tokenizer.response_template


def test_a_broken_tokenizer_is_told(tmp_path):
    with pytest.raises(InputError, match=r"no tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "BP')
    with pytest.raises(InputError, match="cannot be read"):
        load_tokenizer(tmp_path)


def test_the_shipped_vocabulary_keeps_words_of_names_and_chinese_characters_whole():
    """Words of names are one token in each place where a name or a text has them, held-out ones included; so is every
    character that the Chinese harness is written in."""
    scenario = load("live_commerce", {})
    own = Codec(load_tokenizer(SHIPPED))
    for held_out in (False, True):
        for word in words_in(scenario.vocabulary(held_out)):
            if len(word) > 2:
                assert [len(own.encode_text(form)) for form in (f" {word}", f"x_{word}")] == [1, 2], word
    folder = ROOT / "harness-registry" / "harnesses" / "live-commerce-zh"
    text = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.md"))
    characters = {letter for letter in text if letter >= "\u3000"}
    assert len(characters) > 100
    assert [letter for letter in characters if len(own.encode_text(letter)) != 1] == []
