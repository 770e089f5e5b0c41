"""Compiles the control plane's programs from their Go modules into a cache outside the repository.

The folder of a build is named by the digest of go.mod, go.sum and linker flags, and it gets that name only when it is complete: a
build that was cut short leaves nothing that looks finished. Go's own build cache makes the next try continue where
the last one stopped. The build needs the `go` command and Go's module proxy; later starts need neither.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.controlplane import manifests
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
    if not found.is_dir():
        raise NotBuiltError("the programs of the control plane are not built", place=str(found), cure=CURE)
    return found


def lacking() -> str:
    """What stands in the way of cluster tests on this machine; empty when they are built, or can be."""
    from tests.cluster.controlplane import argo_build
    from tests.cluster.controlplane.cluster import namespaces

    try:
        namespaces()
    except ControlPlaneError as error:
        return str(error)
    if all((cache_root() / name).is_dir() for name in (key(), argo_build.key())):
        return ""
    if shutil.which("go") is None:
        return "the programs of the control plane are not built, and there is no `go` to build them (1.25 or newer)"
    version = re.search(r"go(\d+)\.(\d+)", _go("version"))
    wanted = re.findall(r"^go (\d+)\.(\d+)", (MODULE / "go.mod").read_text(), re.MULTILINE)[0]
    if version is None or tuple(map(int, version.groups())) < tuple(map(int, wanted)):
        return f"`go` is older than {'.'.join(wanted)}, which the control plane is built with"
    return ""


def _linker_flags() -> str:
    """No debug information, and the version that the API server tells its clients, as upstream's own build sets it."""
    version = re.findall(r"k8s\.io/kubernetes (v\S+)", (MODULE / "go.mod").read_text())[0]
    major, minor, _ = version.removeprefix("v").split(".")
    package = "k8s.io/component-base/version"
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(["-s", "-w", *(f"-X={package}.{key}={value}" for key, value in values.items())])


@contextmanager
def _only_one() -> Iterator[None]:
    """Two builds at once would share Go's caches but fight for cores: the second one waits."""
    cache_root().mkdir(parents=True, exist_ok=True)
    with (cache_root() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _go(*argv: str) -> str:
    done = subprocess.run(["go", *argv], cwd=MODULE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ControlPlaneError(f"`go {' '.join(argv)}` failed: {done.stderr.strip()[-800:]}", place=str(MODULE))
    return done.stdout


def build(jobs: int | None = None) -> Path:
    """Builds what is missing and returns the finished folder. `jobs`: packages compiled at once (None: Go decides)."""
    if shutil.which("go") is None:
        raise NotBuiltError("the `go` command is missing", cure="install Go 1.25 or newer and put it on PATH")
    with _only_one():
        target = cache_root() / key()
        if target.is_dir():
            print(f"The control plane stands at {target}")
            return target
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "bin").mkdir(parents=True)
        print("Fetching the modules ...", flush=True)
        total = len(_go("list", "-deps", "tool").split())
        _compile(partial / "bin", total, jobs)
        missing = [name for name in PROGRAMS if not (partial / "bin" / name).is_file()]
        if missing:
            raise ControlPlaneError(f"the build did not make {', '.join(missing)}", place=str(MODULE / "go.mod"))
        manifests.collect(
            lambda module: Path(_go("list", "-m", "-f", "{{.Dir}}", module).strip()), partial / "manifests"
        )
        partial.rename(target)
        print(f"The control plane stands at {target}")
        return target


def _compile(out: Path, total: int, jobs: int | None) -> None:
    """Runs `go build` and shows how far it is: `-v` prints one line for each package that is compiled anew."""
    argv = ["go", "build", "-v", "-mod=readonly", "-trimpath", f"-ldflags={_linker_flags()}", "-o", f"{out}{os.sep}"]
    argv += [f"-p={jobs}"] if jobs else []
    started, shown, compiled, tail = time.monotonic(), 0.0, 0, list[str]()
    with subprocess.Popen([*argv, "tool"], cwd=MODULE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            compiled += 1
            tail = [*tail[-30:], line.rstrip()]
            now = time.monotonic()
            if now - shown >= 5:
                shown = now
                print(f"  {compiled} of at most {total} packages, {now - started:.0f} s", file=sys.stderr, flush=True)
    if process.returncode:
        raise ControlPlaneError("`go build` failed:\n" + "\n".join(tail[-20:]), place=str(MODULE / "go.mod"))
    print(f"Compiled {compiled} packages in {time.monotonic() - started:.0f} s", flush=True)
