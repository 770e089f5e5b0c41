"""One process of several that train a large model with FSDP2, on CPUs.

accelerate takes FSDP up on accelerators alone; here it is told to on CPUs, and everything after that is its own. Run by
`python -m torch.distributed.run`, with a JSON file of step, config, inputs and folder.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path


def shard_on_cpus():
    """Let accelerate shard where there is no accelerator."""
    from accelerate.state import AcceleratorState
    from accelerate.utils import DistributedType

    real = AcceleratorState.__init__

    def init(self, *given, fsdp_plugin=None, **named):
        real(self, *given, fsdp_plugin=fsdp_plugin, **named)
        fsdp_plugin = fsdp_plugin or getattr(self, "fsdp_plugin", None)  # also where the state is asked for once more
        if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.FSDP
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)
            self.fsdp_plugin = fsdp_plugin

    AcceleratorState.__init__ = init


def main():
    """Run the step; every process tells how much of the trained weights it holds."""
    import torch
    from torch.distributed.tensor import DTensor

    from hat_components.large import run as large
    from hat_components.step import NullProgress

    asked = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    shard_on_cpus()
    seen = {}
    finish = large.finish

    def noted(trainer, *rest):
        parts = [p for p in trainer.model_wrapped.parameters() if isinstance(p, DTensor)]
        seen["local"] = sum(p.to_local().numel() for p in parts)
        seen["whole"] = sum(p.numel() for p in parts)
        return finish(trainer, *rest)

    driver = importlib.import_module(f"hat_components.large.{asked['step']}")
    driver.finish = noted
    config = importlib.import_module(f"hat_components.{asked['step']}.config").Config.model_validate(asked["config"])
    run = importlib.import_module(f"hat_components.{asked['step']}.step").run
    out = Path(asked["out"]) / os.environ["RANK"]

    class Stop(NullProgress):
        def progress(self, done, total, note=""):
            if done == asked["stop"]:
                os._exit(3)

    result = run(config, {name: Path(path) for name, path in asked["inputs"].items()}, out, Stop())
    (Path(asked["out"]) / f"told-{os.environ['RANK']}.json").write_text(json.dumps({**seen, "digests": result.digests}))


if __name__ == "__main__":
    main()
