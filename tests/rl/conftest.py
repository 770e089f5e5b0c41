"""One thread for the tests of this folder, and a small model that is shared."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hat_components.base.corpus import corpus_texts, corpus_words
from hat_components.model.codec import Codec
from hat_components.model.folder import save_folder
from hat_components.model.qwen import build_model
from hat_components.model.settings import ModelConfig, TokenizerConfig
from hat_components.model.tokenizer import train_tokenizer
from hat_components.scenarios import load

TINY = ModelConfig(hidden=32, layers=1, heads=2, kv_heads=2, feed_forward=32, max_positions=1024)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer():
    scenario = load("live_commerce", {})
    words = corpus_words(scenario)
    return train_tokenizer(corpus_texts(scenario, 1, 40, words), words, TokenizerConfig(vocab_size=1800))


@pytest.fixture(scope="session")
def codec(tokenizer) -> Codec:
    return Codec(tokenizer)


@pytest.fixture
def tiny(tokenizer):
    return build_model(TINY, tokenizer, seed=3)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory, tokenizer, codec) -> Path:
    folder = tmp_path_factory.mktemp("start") / "model"
    save_folder(folder, build_model(TINY, tokenizer, seed=3), codec, {})
    return folder


@pytest.fixture(scope="session")
def harness(repository) -> Path:
    return repository / "harness-registry" / "harnesses" / "live-commerce"
