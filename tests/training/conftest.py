"""A small tokenizer and model, and a dataset of trajectories, shared by the tests of this folder."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from hat_components.base.corpus import corpus_texts, corpus_words
from hat_components.data import DatasetWriter, Trajectory, text_size
from hat_components.model.codec import Codec
from hat_components.model.folder import save_folder
from hat_components.model.qwen import build_model
from hat_components.model.settings import ModelConfig, TokenizerConfig
from hat_components.model.tokenizer import train_tokenizer
from hat_scenarios import general

TINY = ModelConfig(hidden=32, layers=2, heads=4, kv_heads=2, feed_forward=64, max_positions=2048)
ARMS = ("naive", "hsa")


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer():
    words = corpus_words(None)
    return train_tokenizer(corpus_texts(None, 1, 60, words), words, TokenizerConfig(vocab_size=640))


@pytest.fixture(scope="session")
def codec(tokenizer) -> Codec:
    return Codec(tokenizer)


@pytest.fixture
def tiny(tokenizer):
    return build_model(TINY, tokenizer, seed=3)


@pytest.fixture(scope="session")
def words() -> general.Words:
    return general.Words.of(tuple(corpus_words(None)))


@pytest.fixture(scope="session")
def base_folder(tmp_path_factory, tokenizer, codec) -> Path:
    folder = tmp_path_factory.mktemp("base") / "model"
    save_folder(folder, build_model(TINY, tokenizer, seed=3), codec, {})
    return folder


def write_trajectories(folder: Path, words: general.Words, count: int = 24, purpose="training") -> Path:
    """`count` trajectories of each arm from other-domain sessions, in the shape of the augment step."""
    rng = random.Random(7)
    with DatasetWriter(folder, kind="trajectories", splits=["train"]) as writer:
        for number in range(count):
            for arm in ARMS:
                messages = openai(general.stream("session", rng, words))
                writer.write(
                    "train",
                    Trajectory(
                        id=f"{arm}-{number}",
                        arm=arm,
                        item=str(number),
                        source="expert",
                        harness="sha256:" + "0" * 64,
                        messages=tuple(messages),
                        size=text_size(messages),
                    ),
                )
        writer.finish(name="trajectories", purpose=purpose, seed=7)
    return folder


def openai(messages):
    """The same conversation with `reasoning_content` and arguments as JSON strings."""
    import json

    found = []
    for message in messages:
        message = dict(message)
        if "reasoning" in message:
            message["reasoning_content"] = message.pop("reasoning")
        if message.get("tool_calls"):
            message["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
                for call in message["tool_calls"]
            ]
        found.append(message)
    return found


@pytest.fixture(scope="session")
def trajectories(tmp_path_factory, words) -> Path:
    return write_trajectories(tmp_path_factory.mktemp("data") / "trajectories", words)
