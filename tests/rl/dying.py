"""A process that runs steps in forked children and kills each with SIGKILL at a chosen sign of progress.

Signs are what a step tells (progress, metric, artifact, warning) and what it brings to the disk (fsync, replace), so that
a kill also falls into the writing of checkpoints and artifacts. Requests and answers are JSON lines. It is a process of
its own because torch cannot run a backward pass in a fork of a process that has made one.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

STEPS = ("augment", "collect", "mtp", "opd", "rl", "sft")


class Dying:
    """A Progress that kills its process at sign number `at`; 0 never does."""

    def __init__(self, at):
        self.at, self.signs = at, 0
        for name in ("fsync", "replace"):
            setattr(os, name, self.counted(getattr(os, name)))
        self.progress = self.metric = self.artifact = self.warning = self.sign

    def counted(self, function):
        def call(*arguments, **named):
            self.sign()
            return function(*arguments, **named)

        return call

    def sign(self, *_, **__):
        self.signs += 1
        if self.signs == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def serve():
    """Answer requests until the input ends."""
    import torch

    torch.set_num_threads(1)
    modules = {name: importlib.import_module(f"hat_components.{name}.step") for name in STEPS}
    configs = {name: importlib.import_module(f"hat_components.{name}.config").Config for name in STEPS}
    for trainer in ("opd.trl_loop", "rl.trl_loop", "model.trl_trainer", "large.sft", "large.opd", "large.rl"):
        importlib.import_module(f"hat_components.{trainer}")
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            progress = Dying(asked["at"])
            inputs = {name: Path(path) for name, path in asked["inputs"].items()}
            config = configs[asked["step"]].model_validate(asked["config"])
            result = modules[asked["step"]].run(config, inputs, Path(asked["out"]), progress)
            answer = {"signs": progress.signs, "digests": result.digests}
            Path(asked["out"]).with_suffix(".json").write_text(json.dumps(answer))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


class Stages:
    """The other end: runs a step in such a child."""

    def __init__(self):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", "from tests.rl.dying import serve; serve()"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip

    def run(self, step, config, inputs, out, at=0):
        """Exit code of the child, and what it told if it ended by itself."""
        asked = {
            "step": step, "config": config.model_dump(mode="json"), "inputs": {k: str(v) for k, v in inputs.items()},
            "out": str(out), "at": at,
        }  # fmt: skip
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        code = int(self.process.stdout.readline())
        return code, json.loads(out.with_suffix(".json").read_text()) if code == 0 else None

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
