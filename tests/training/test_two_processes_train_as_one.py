"""Two gloo processes that share each batch end with the losses and weights of one process with the whole batch."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hat_components.model.codec import IGNORED, Row

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, os, random, sys
from pathlib import Path
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from hat_components.model.batches import Source, Stream
from hat_components.model.checkpoint import Checkpoints
from hat_components.model.parallel import join
from hat_components.model.settings import FitConfig
from hat_components.model.train import fit
from hat_components.step import NullProgress
from tests.training.test_two_processes_train_as_one import Rows

class Kept(NullProgress):
    points = []
    def metric(self, name, value, step):
        self.points.append(value)
        if step == int(sys.argv[3]) and join().rank == 0:
            os._exit(9)

torch.manual_seed(0)
torch.set_num_threads(1)
config = Qwen3Config(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                     num_key_value_heads=2, head_dim=16, max_position_embeddings=64, tie_word_embeddings=True)
model = Qwen3ForCausalLM(config)
stream = Stream([Source("drawn", 1.0, Rows())], int(sys.argv[2]), "1/x", 48, 0)
settings = FitConfig(tokens=6 * int(sys.argv[2]), batch_tokens=int(sys.argv[2]), trainer="plain", precision="float32",
                     log_every=1, learning_rate=3e-3, warmup_steps=0, stop_below=0.0, checkpoint_every=2)
progress = Kept()
first = Checkpoints(Path(sys.argv[1] + ".kept"), "one") if join().rank == 0 else None
report = fit(model, stream, settings, progress, name="x", checkpoints=first)
if join().rank == 0:
    weights = [float(p.detach().abs().sum()) for p in model.parameters()]
    open(sys.argv[1], "w").write(json.dumps({"losses": progress.points, "weights": weights, "tokens": report.tokens}))
"""


class Rows:
    """Rows of random tokens whose first third is not learned."""

    def __call__(self, rng: random.Random) -> list[Row]:
        length = rng.randrange(12, 40)
        ids = [rng.randrange(2, 64) for _ in range(length)]
        return [Row(ids, [IGNORED] * (length // 3) + ids[length // 3 :])]


def train(out: Path, processes: int, stop: int = 0) -> dict[str, list[float]]:
    """Losses and weights of six steps with batches of 512 tokens for all processes together; `stop`: the first process
    dies after that step."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"WORLD_SIZE": str(processes), "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(out), "512", str(stop)], env={**shared, "RANK": str(rank)}, cwd=ROOT
        )
        for rank in range(processes)
    ]
    ended = [process.wait(200) for process in started]
    if stop:
        assert ended[0] == 9
        assert all(ended)
        return {}
    assert ended == [0] * processes
    found: dict[str, list[float]] = json.loads(out.read_text())
    return found


def test_two_processes_are_one_with_the_doubled_batch(tmp_path: Path) -> None:
    one, two = train(tmp_path / "one.json", 1), train(tmp_path / "two.json", 2)
    assert len(one["losses"]) >= 5
    assert one["losses"][-1] != one["losses"][0]
    assert two["losses"] == pytest.approx(one["losses"], rel=1e-5)
    assert two["weights"] == pytest.approx(one["weights"], rel=1e-4)
    assert two["tokens"] == one["tokens"]


@pytest.mark.matrix
def test_after_one_died_both_go_on_where_the_first_ones_checkpoint_stands(tmp_path: Path) -> None:
    one = train(tmp_path / "one.json", 1)
    train(tmp_path / "two.json", 2, stop=3)
    two = train(tmp_path / "two.json", 2)
    assert len(two["losses"]) < len(one["losses"])
    assert two["losses"] == pytest.approx(one["losses"][-len(two["losses"]) :], rel=1e-5)
    assert two["weights"] == pytest.approx(one["weights"], rel=1e-4)
