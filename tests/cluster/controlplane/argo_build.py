"""Compiles Argo's workflow-controller, argoexec and its offline lint from Go modules, into the same cache.

A Go module of its own (`argo/`): Argo and KServe want different versions of Kubernetes' libraries. The zip of Argo's
module lacks one file that argoexec needs on Linux; it is added to a copy, which the build is pointed at.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from tests.cluster.controlplane import build, gotool, manifests

MODULE = Path(__file__).resolve().parent / "argo"
ARGO = "github.com/argoproj/argo-workflows/v3"
PROGRAMS = {
    "argolint": "./lint",
    "workflow-controller": f"{ARGO}/cmd/workflow-controller",
    "argoexec": f"{ARGO}/cmd/argoexec",
}
MISSING = "workflow/executor/osspecific/signal_linux.go"
PROGRAMS_OF = "Argo's"
CURE = "run `make control-plane`: Argo's part takes about eight minutes on two cores the first time"


def key() -> str:
    """Name of the build that this checkout wants."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "lint/main.go", "signal_linux.go.txt"):
        digest.update((MODULE / name).read_bytes())
    return f"argo-{digest.hexdigest()[:16]}"


def folder() -> Path:
    """The finished build: `bin/` and `crds.json`. Raises NotBuiltError when it is not there."""
    return build.part(key(), PROGRAMS_OF, CURE)


def make(jobs: int | None = None, until: float | None = None) -> Path:
    """Builds what is missing and returns the finished folder. `until`: when it has to be over, by the monotonic clock."""
    return build.make_part(key(), PROGRAMS_OF, lambda partial, end: _programs(partial, jobs, end), until)


def _programs(partial: Path, jobs: int | None, until: float) -> None:
    print("Fetching Argo's modules ...", flush=True)
    told = gotool.run(["mod", "download", "-json", ARGO], MODULE, until=until, heard=gotool.teller("modules"))
    source = Path(str(json.loads(told)["Dir"]))
    replaced = _with_the_missing_file(source, partial)
    for name, package in PROGRAMS.items():
        print(f"Compiling {name} ...", flush=True)
        options = [f"-modfile={replaced}"] if name == "argoexec" else ["-mod=readonly"]
        options += [f"-p={jobs}"] if jobs else []
        argv = ["build", "-v", *options, "-trimpath", "-ldflags=-s -w", "-o", str(partial / "bin" / name), package]
        gotool.run(argv, MODULE, until=until, heard=gotool.teller("packages"))
    manifests.write(sorted((source / "manifests/base/crds/minimal").glob("argoproj*.yaml")), partial / "crds.json")
    shutil.rmtree(partial / "source", ignore_errors=True)


def _with_the_missing_file(source: Path, partial: Path) -> Path:
    """A copy of Argo's module that is whole, and a go.mod that points at it."""
    copy = partial / "source"
    shutil.copytree(source, copy)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    shutil.copyfile(MODULE / "signal_linux.go.txt", copy / MISSING)
    replaced = partial / "source" / "hatstack.mod"
    replaced.write_text(f"{(MODULE / 'go.mod').read_text()}\nreplace {ARGO} => {copy}\n")
    shutil.copyfile(MODULE / "go.sum", replaced.with_suffix(".sum"))
    return replaced
