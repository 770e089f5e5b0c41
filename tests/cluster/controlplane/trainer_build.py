"""Compiles the controllers of Kubeflow Trainer and JobSet from their Go modules, into the same cache as the others.

A part that only the test of TrainJobs needs: `python -m tests.cluster.controlplane build --trainer` makes it, and its
folder is named by what it is built from alone. Not here: installing them (training).
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from tests.cluster.controlplane import build, gotool, manifests

MODULE = Path(__file__).resolve().parent / "trainer"
TRAINER, JOBSET = "github.com/kubeflow/trainer/v2", "sigs.k8s.io/jobset"
FILES = {
    "crds": (
        (TRAINER, "manifests/base/crds/trainer.kubeflow.org_*.yaml"),
        (JOBSET, "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"),
    ),
    "trainer-webhooks": ((TRAINER, "manifests/base/webhook/manifests.yaml"),),
    "jobset-webhooks": ((JOBSET, "config/components/webhook/manifests.yaml"),),
}
"""Name of a set → (module, files in it)."""
FLAGS = ("-mod=readonly", "-trimpath", "-ldflags=-s -w")
PROGRAMS_OF = "Kubeflow Trainer's"
CURE = "run `make control-plane ARGS=--trainer`: about three minutes on two cores the first time"


def key() -> str:
    """Name of the build that this checkout wants: by its modules, its flags and the files that it takes from them."""
    digest = hashlib.sha256(json.dumps([FLAGS, FILES]).encode())
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE / name).read_bytes())
    return f"trainer-{digest.hexdigest()[:16]}"


def folder() -> Path:
    """The finished build: `bin/` and one JSON file per set. Raises NotBuiltError when it is not there."""
    return build.part(key(), PROGRAMS_OF, CURE)


def make(jobs: int | None = None, until: float | None = None) -> Path:
    """Builds what is missing and returns the finished folder. `until`: when it has to be over, by the monotonic clock."""
    return build.make_part(key(), PROGRAMS_OF, lambda partial, end: _programs(partial, jobs, end), until)


def _programs(partial: Path, jobs: int | None, until: float) -> None:
    print("Fetching the modules of Kubeflow Trainer ...", flush=True)
    roots = {
        name: Path(str(json.loads(gotool.run(["mod", "download", "-json", name], MODULE, until=until))["Dir"]))
        for name in (TRAINER, JOBSET)
    }
    print("Compiling its controllers ...", flush=True)
    argv = ["build", "-v", *FLAGS, "-o", f"{partial / 'bin'}{os.sep}"]
    gotool.run([*argv, *([f"-p={jobs}"] if jobs else []), "tool"], MODULE, until=until, heard=gotool.teller("packages"))
    for name, patterns in FILES.items():
        files = [path for module, pattern in patterns for path in sorted(roots[module].glob(pattern))]
        manifests.write(files, partial / f"{name}.json")
