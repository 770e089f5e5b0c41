"""Evaluations made of chosen scores, for tests of what reads evaluations."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hat_components.data import digest_path
from hat_components.evaluate.result import Evaluation, Group, Interval, ItemResult, SuiteResult, TraceRecord, TurnResult
from hat_harness.events import Message, ToolCall
from hat_harness.trace import Segment, Trace

Scores = dict[str, Sequence[float]]


def suite(ident: str, scores: Sequence[float], paired: str = "") -> SuiteResult:
    items = tuple(
        ItemResult(
            item=f"item-{index}",
            values={"average": score, "accuracy": score, "effectiveness": score},
            turns=(TurnResult(intent="chat", values={"average": score}, causes=() if score == 1 else ("gate",)),),
            harness="sha256:" + "ab" * 32,
            families=("skill_name",),
        )
        for index, score in enumerate(scores)
    )
    mean = sum(scores) / len(scores)
    interval = Interval(mean=mean, low=max(0.0, mean - 0.1), high=min(1.0, mean + 0.1))
    return SuiteResult(
        id=ident,
        title=f"suite {ident}",
        kind="rollout",
        headline="average",
        paired_with=paired,
        scores={"average": interval, "accuracy": interval, "effectiveness": interval},
        intents={"chat": Group(n=len(scores), means={"average": mean})},
        families={"skill_name": Group(n=len(scores), means={"average": mean})},
        items=items,
    )


@pytest.fixture
def fabricate(tmp_path: Path) -> Callable[..., dict[str, Path]]:
    """Writes the inputs of one arm (model, evaluation, traces, curves) and returns their paths by name."""

    def make(arm: str, scores: Scores, *, seeds: str = "dev", reply: str = "that is 5") -> dict[str, Path]:
        root = tmp_path / arm
        (root / "model").mkdir(parents=True)
        (root / "model" / "model.safetensors").write_bytes(arm.encode())
        suites = tuple(suite(ident, values, "t1" if ident != "t1" else "") for ident, values in scores.items())
        evaluation = Evaluation.model_validate(
            {
                "arm": arm,
                "policy": "model",
                "model": digest_path(root / "model"),
                "harness": "sha256:" + "cd" * 32,
                "dataset": "sha256:" + "ef" * 32,
                "config": "sha256:" + "01" * 32,
                "seeds": seeds,
                "suites": [one.model_dump() for one in suites],
                "environment": {"python": "3.11"},
            }
        )
        (root / "evaluation.json").write_text(evaluation.model_dump_json())
        line = "*how much it costs:price_check"
        messages = (
            Message("system", f"# skills\n{line}\n*small talk:chat"),
            Message("user", "how much is it"),
            Message("assistant", "", f"price | {line[1:]}", (ToolCall("c1", "price_check", {"item": "mug"}),)),
            Message("tool", "5", tool_call_id="c1"),
            Message("assistant", reply, "price 5"),
        )
        segment = Segment(index=0, reason="start", harness="sha256:cd", messages=messages)
        with (root / "traces.jsonl").open("w") as stream:
            for one in suites:
                for item in one.items:
                    trace = Trace(session=item.item, harness="sha256:cd", harness_name="toy", segments=(segment,))
                    record = TraceRecord(suite=one.id, item=item.item, harness="sha256:cd", trace=trace)
                    stream.write(record.model_dump_json() + "\n")
        points = [{"kind": "metric", "name": "loss", "value": 4 / (n + 1), "step": n} for n in range(50)]
        lines = [{"kind": "start"}, *points, {"kind": "metric", "name": "loss", "value": float("nan"), "step": 50}]
        (root / "progress.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines) + '{"kind": "met')
        return {
            f"model-{arm}": root / "model",
            f"evaluation-{arm}": root / "evaluation.json",
            f"traces-{arm}": root / "traces.jsonl",
            f"curves-{arm}": root / "progress.jsonl",
        }

    return make


HARNESSES = Path(__file__).resolve().parents[2] / "harness-registry" / "harnesses"


@pytest.fixture(scope="session")
def harness() -> Path:
    """The shipped harness of the live room."""
    return HARNESSES / "live-commerce"


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small items_train, items_dev and items_test."""
    from hat_components.simulate.config import Config
    from hat_components.simulate.step import run
    from hat_components.step import NullProgress

    out = tmp_path_factory.mktemp("drawn")
    run(Config(train=16, dev=12, test=6), {}, out, NullProgress())
    return out


@pytest.fixture(scope="session")
def micro(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small untrained model of our own kind: it writes nonsense, deterministically."""
    import torch

    from hat_components.base.corpus import corpus_texts, corpus_words
    from hat_components.model.codec import Codec
    from hat_components.model.folder import save_folder
    from hat_components.model.qwen import build_model
    from hat_components.model.settings import ModelConfig, TokenizerConfig
    from hat_components.model.tokenizer import train_tokenizer

    torch.set_num_threads(1)
    words = corpus_words(None)
    tokenizer = train_tokenizer(corpus_texts(None, 1, 60, words), words, TokenizerConfig(vocab_size=640))
    shape = ModelConfig(hidden=32, layers=2, heads=4, kv_heads=2, feed_forward=64, max_positions=1024)
    folder = tmp_path_factory.mktemp("micro") / "model"
    save_folder(folder, build_model(shape, tokenizer, seed=3), Codec(tokenizer), {})
    return folder
