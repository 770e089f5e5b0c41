"""Compiles the controllers of Kubeflow Trainer and JobSet from their Go modules, into the same cache as the others.

A part that only the test of TrainJobs needs: `python -m tests.cluster.controlplane build --trainer` makes it, and its
folder is named by its own sources alone. Not here: installing them (training).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from tests.cluster.controlplane import build, gotool, manifests
from tests.cluster.controlplane.errors import NotBuiltError

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
CURE = "run `make control-plane ARGS=--trainer`: about three minutes on two cores the first time"


def key() -> str:
    """Name of the build that this checkout wants."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE / name).read_bytes())
    return f"trainer-{digest.hexdigest()[:16]}"


def folder() -> Path:
    """The finished build: `bin/` and one JSON file per set. Raises NotBuiltError when it is not there."""
    found = build.cache_root() / key()
    if not found.is_dir():
        raise NotBuiltError("Kubeflow Trainer's programs are not built", place=str(found), cure=CURE)
    return found


def make(jobs: int | None = None, until: float | None = None) -> Path:
    """Builds what is missing and returns the finished folder. `until`: when it has to be over, by the monotonic clock."""
    until = until or gotool.deadline()
    target = build.cache_root() / key()
    if not target.is_dir():
        if shutil.which("go") is None:
            raise NotBuiltError("the `go` command is missing", cure="install Go 1.25 or newer and put it on PATH")
        with build.only_one(until):
            if not target.is_dir():
                _programs(target, jobs, until)
    print(f"Kubeflow Trainer's programs stand at {target}")
    return target


def _programs(target: Path, jobs: int | None, until: float) -> None:
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "bin").mkdir(parents=True)
    print("Fetching the modules of Kubeflow Trainer ...", flush=True)
    roots = {
        name: Path(str(json.loads(gotool.run(["mod", "download", "-json", name], MODULE, until=until))["Dir"]))
        for name in (TRAINER, JOBSET)
    }
    print("Compiling its controllers ...", flush=True)
    argv = ["build", "-v", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", f"{partial / 'bin'}{os.sep}"]
    gotool.run([*argv, *([f"-p={jobs}"] if jobs else []), "tool"], MODULE, until=until, heard=gotool.teller("packages"))
    for name, patterns in FILES.items():
        files = [path for module, pattern in patterns for path in sorted(roots[module].glob(pattern))]
        manifests.write(files, partial / f"{name}.json")
    partial.rename(target)
