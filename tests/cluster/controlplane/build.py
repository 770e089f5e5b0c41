"""Compiles the control plane's programs from their Go modules into a cache outside the repository.

The folder of a build is named by the digest of go.mod, go.sum and linker flags, and it gets that name only when it is complete: a
build that was cut short leaves nothing that looks finished. Go's own build cache makes the next try continue where
the last one stopped. The manifests beside the programs are named by what collects them. The build needs the `go`
command and Go's module proxy; later starts need neither, and neither does another checkout of the same sources.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.controlplane import gotool, manifests
from tests.cluster.controlplane.errors import ControlPlaneError, NotBuiltError

MODULE = Path(__file__).resolve().parent
PROGRAMS = ("server", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "manager", "llmisvc")
"""Names that Go gives the programs of go.mod's `tool` list; `server` is etcd, `manager` is KServe."""
CURE = "run `make control-plane`: about 12 minutes on two cores the first time, 4 GB of Go caches"


def cache_root() -> Path:
    """Where builds and snapshots live; `XDG_CACHE_HOME` moves it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hatstack" / "control-plane"


def key() -> str:
    """Name of the build that this checkout wants."""
    digest = hashlib.sha256(_linker_flags().encode())
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE / name).read_bytes())
    return digest.hexdigest()[:16]


def folder() -> Path:
    """The finished build: `bin/` and `manifests/`. Raises NotBuiltError when it is not there."""
    found = cache_root() / key()
    if not manifests.place(found).is_dir():
        raise NotBuiltError("the programs of the control plane are not built", place=str(found), cure=CURE)
    return found


def _linker_flags() -> str:
    """No debug information, and the version that the API server tells its clients, as upstream's own build sets it."""
    version = re.findall(r"k8s\.io/kubernetes (v\S+)", (MODULE / "go.mod").read_text())[0]
    major, minor, _ = version.removeprefix("v").split(".")
    package = "k8s.io/component-base/version"
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(["-s", "-w", *(f"-X={package}.{key}={value}" for key, value in values.items())])


@contextmanager
def only_one(until: float) -> Iterator[None]:
    """Two builds at once would share Go's caches but fight for cores: the second one waits, and says so."""
    cache_root().mkdir(parents=True, exist_ok=True)
    with (cache_root() / "lock").open("w") as lock:
        waits = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waits:
                    print("Another build is under way, this one waits for it ...", flush=True)
                waits = True
                if time.monotonic() > until:
                    raise ControlPlaneError("another build took too long", place=lock.name, cure="end it") from None
                time.sleep(0.5)
        yield


def part(name: str, programs: str, cure: str) -> Path:
    """The finished build `name` of a further part. Raises NotBuiltError when it is not there."""
    found = cache_root() / name
    if not found.is_dir():
        raise NotBuiltError(f"{programs} programs are not built", place=str(found), cure=cure)
    return found


def make_part(name: str, programs: str, make: Callable[[Path, float], None], until: float | None) -> Path:
    """The same, made when it is missing: `make` fills a folder, which gets its name when it is whole.

    `until`: when it has to be over, by the monotonic clock.
    """
    until = until or gotool.deadline()
    target = cache_root() / name
    if not target.is_dir():
        _needs_go()
        with only_one(until):
            if not target.is_dir():
                partial = target.with_name(f"{target.name}.partial")
                shutil.rmtree(partial, ignore_errors=True)
                (partial / "bin").mkdir(parents=True)
                make(partial, until)
                partial.rename(target)
    print(f"{programs} programs stand at {target}")
    return target


def _needs_go() -> None:
    if shutil.which("go") is None:
        raise NotBuiltError("the `go` command is missing", cure="install Go 1.25 or newer and put it on PATH")


def build(jobs: int | None = None, until: float | None = None) -> Path:
    """Builds what is missing and returns the finished folder.

    `jobs`: packages compiled at once (None: Go decides). `until`: when it has to be over, by the monotonic clock.
    """
    until = until or gotool.deadline()
    target = cache_root() / key()
    if not manifests.place(target).is_dir():
        _needs_go()
        with only_one(until):
            if not target.is_dir():
                _programs(target, jobs, until)
            if not manifests.place(target).is_dir():
                _manifests(manifests.place(target), until)
    print(f"The control plane stands at {target}")
    return target


def _programs(target: Path, jobs: int | None, until: float) -> None:
    partial = target.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "bin").mkdir(parents=True)
    print("Fetching the modules of the control plane ...", flush=True)
    packages = gotool.run(["list", "-deps", "tool"], MODULE, until=until, heard=gotool.teller("modules"))
    print("Compiling it ...", flush=True)
    argv = ["build", "-v", "-mod=readonly", "-trimpath", f"-ldflags={_linker_flags()}"]
    argv += ["-o", f"{partial / 'bin'}{os.sep}", *([f"-p={jobs}"] if jobs else []), "tool"]
    begun = time.monotonic()
    gotool.run(argv, MODULE, until=until, heard=gotool.teller("packages", len(packages.split())))
    missing = [name for name in PROGRAMS if not (partial / "bin" / name).is_file()]
    if missing:
        raise ControlPlaneError(f"the build did not make {', '.join(missing)}", place=str(MODULE / "go.mod"))
    partial.rename(target)
    print(f"Compiled in {time.monotonic() - begun:.0f} s", flush=True)


def _manifests(target: Path, until: float) -> None:
    """What is installed into the API server, from the modules' own files."""

    def module(name: str) -> Path:
        told = gotool.run(["mod", "download", "-json", name], MODULE, until=until)
        return Path(str(json.loads(told)["Dir"]))

    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    manifests.collect(module, partial)
    partial.rename(target)
