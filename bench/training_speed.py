"""SFTTrainer over our batches against a plain loop, and SFTTrainer as it comes: interleaved, in one process.

Run: `python bench/training_speed.py [rounds]`. Prints tokens per second of each, the ratios of the medians, and the peak
memory; exits 1 when the ratio of ours is below 0.9 or the memory above 3 GiB.
"""

from __future__ import annotations

import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence

import torch
from transformers import PreTrainedTokenizerFast

from hat_components.base.corpus import corpus_texts, corpus_words
from hat_components.model.batches import Source, Stream
from hat_components.model.codec import Codec, Row
from hat_components.model.qwen import build_model
from hat_components.model.settings import FitConfig, ModelConfig
from hat_components.model.tokenizer import train_tokenizer
from hat_components.model.train import fit
from hat_components.step import NullProgress
from hat_scenarios import general

TOKENS = 40_000
LEAST, MOST_GIB = 0.9, 3.0


def make_rows(codec: Codec, words: general.Words, count: int) -> list[Row]:
    """Agent sessions of about 550 tokens."""
    rng = random.Random(1)
    return [codec.row(general.stream("session", rng, words)) for _ in range(count)]


def ours(trainer: str, tokenizer: PreTrainedTokenizerFast, rows: Sequence[Row]) -> float:
    """Tokens per second of one course."""
    model = build_model(ModelConfig(), tokenizer, 1)
    stream = Stream([Source("rows", 1.0, lambda rng: [rng.choice(rows)])], 2048, 1, 1024)
    config = FitConfig.model_validate({"tokens": TOKENS, "trainer": trainer})
    began = time.perf_counter()
    report = fit(model, stream, config, NullProgress(), tokenizer=tokenizer)
    return report.tokens / (time.perf_counter() - began)


def as_it_comes(tokenizer: PreTrainedTokenizerFast, rows: Sequence[Row]) -> float:
    """Tokens per second of SFTTrainer with its own collator, loss and AdamW, four rows a batch."""
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    picked = random.Random(2).choices(rows, k=TOKENS // 550)
    data = Dataset.from_dict({"input_ids": [list(r.ids) for r in picked], "labels": [list(r.labels) for r in picked]})
    with tempfile.TemporaryDirectory() as scratch:
        arguments = SFTConfig(
            output_dir=scratch,
            use_cpu=True,
            bf16=True,
            activation_checkpointing=False,
            per_device_train_batch_size=4,
            num_train_epochs=1,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        model = build_model(ModelConfig(), tokenizer, 1)
        trainer = SFTTrainer(model=model, args=arguments, train_dataset=data, processing_class=tokenizer)
        began = time.perf_counter()
        trainer.train()
    return sum(len(row.ids) for row in picked) / (time.perf_counter() - began)


def main() -> int:
    """Run and compare."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    words = corpus_words(None)
    tokenizer = train_tokenizer(corpus_texts(None, 1, 200, words), words)
    codec = Codec(tokenizer)
    rows = make_rows(codec, general.Words.of(tuple(words)), 200)
    found: dict[str, list[float]] = {"plain": [], "trl": [], "as it comes": []}
    ours("plain", tokenizer, rows)
    ours("trl", tokenizer, rows)
    for _ in range(rounds):
        found["plain"].append(ours("plain", tokenizer, rows))
        found["trl"].append(ours("trl", tokenizer, rows))
        found["as it comes"].append(as_it_comes(tokenizer, rows))
    middle = {name: statistics.median(speeds) for name, speeds in found.items()}
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    for name, speed in middle.items():
        print(f"{name:12} {speed:8.0f} tokens/s   {speed / middle['plain']:.2f} of the plain loop")
    print(f"peak memory {gib:.2f} GiB, {torch.get_num_threads()} threads")
    return int(middle["trl"] / middle["plain"] < LEAST or gib > MOST_GIB)


if __name__ == "__main__":
    sys.exit(main())
