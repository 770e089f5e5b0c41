"""Two processes that shard a large model by FSDP2 do what one does, and go on after one of them died."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hat_components.step import NullProgress
from tests.training.test_large_models_run_every_stage import (
    FULL,
    LORA,
    MIXTURE,
    data,  # noqa: F401  # fixtures are used by their names
    harness,  # noqa: F401
    shop_tokenizer,  # noqa: F401
    stage,
    starts,  # noqa: F401
    teachers,  # noqa: F401
    weights,
)


def together(folder, step, config, inputs, stop=0):
    """Exit code of two processes, and what each told."""
    asked = {
        "step": step, "config": config.model_dump(mode="json"), "inputs": {k: str(v) for k, v in inputs.items()},
        "out": str(folder), "stop": stop,
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "asked.json").write_text(json.dumps(asked))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]
    done = subprocess.run(
        [*command, "tests.training.shards", str(folder / "asked.json")],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = [json.loads(path.read_text()) for path in sorted(folder.glob("told-*.json"))]
    return done.returncode, told, done.stderr


@pytest.mark.matrix
@pytest.mark.timeout(900)
@pytest.mark.parametrize("method", ["lora", "full"])
@pytest.mark.parametrize("kind", ["qwen3", MIXTURE])
@pytest.mark.parametrize("step", ["sft", "opd", "rl"])
def test_sharded_training_is_training(tmp_path, starts, harness, data, step, kind, method):  # noqa: F811
    run, config, inputs = stage(step, starts[kind], LORA if method == "lora" else FULL, harness, data)
    config = config.model_copy(update={"rows_at_once": 1} if step != "sft" else {})
    run(config, inputs, tmp_path / "one", NullProgress())
    code, told, err = together(tmp_path / "two", step, config, inputs, stop=1)
    assert code, "the first process died after its first step"
    assert not list((tmp_path / "two").glob("*/model/*"))
    code, told, err = together(tmp_path / "two", step, config, inputs)
    assert code == 0, "\n".join(line for line in err.splitlines() if "[rank0]" in line or "Error" in line)[-4000:]
    assert told[0]["digests"] == told[1]["digests"]
    assert sum(one["local"] for one in told) == told[0]["whole"] == told[1]["whole"]
    assert max(one["local"] for one in told) < 0.7 * told[0]["whole"]
    one, two = weights(tmp_path / "one" / "model"), weights(tmp_path / "two" / "0" / "model")
    assert one.keys() == two.keys()
    for name in one:
        assert torch.allclose(one[name], two[name], atol=3e-3), name
