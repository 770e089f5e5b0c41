"""Whether cluster tests can run on this machine, and if not, why: said before anything is built or started.

The trial makes what every cluster makes: namespaces, a bridge, a link into another network, mounts that are read-only.
Where programs are to be built, the build's own needs are looked at too. Not here: building.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

from tests.cluster.controlplane import argo_build, build, gotool, manifests
from tests.cluster.controlplane.cluster import namespaces
from tests.cluster.controlplane.errors import ControlPlaneError

TRIAL = """
set -e
ip link set lo up
ip link add trial0 type bridge
ip link add trial1 type veth peer name trial2
ip link set trial1 master trial0 up
mount -t tmpfs none /mnt
mkdir /mnt/root
mount --rbind /usr /mnt/root
unshare --net true
"""
ROOM_GIB = 12
"""What modules, Go's build cache and programs take while all of it is built."""
SMALL = "sigs.k8s.io/yaml"
"""A small module of go.mod, to ask the module proxy for."""


def lacking() -> str:
    """What stands in the way of cluster tests; empty when nothing does."""
    try:
        flags = namespaces()
        done = subprocess.run(
            ["unshare", *flags, "sh", "-c", TRIAL], capture_output=True, text=True, check=False, timeout=30
        )
        if done.returncode:
            return f"namespaces of this machine cannot do what pods need: {' '.join(done.stderr.split())[:300]}"
        return "" if built() else unbuildable()
    except (ControlPlaneError, subprocess.TimeoutExpired) as error:
        return str(error)


def built() -> bool:
    """Whether all programs and manifests stand in the cache."""
    root = build.cache_root()
    return manifests.place(root / build.key()).is_dir() and (root / argo_build.key()).is_dir()


def unbuildable() -> str:
    """What stands in the way of building what is not built; empty when nothing does."""
    not_built = "the programs of the control plane are not built, and"
    if shutil.which("go") is None:
        return f"{not_built} there is no `go` to build them: install Go 1.25 or newer"
    version = re.search(r"go(\d+)\.(\d+)", gotool.run(["version"], build.MODULE, until=time.monotonic() + 60))
    wanted = re.findall(r"^go (\d+)\.(\d+)", (build.MODULE / "go.mod").read_text(), re.MULTILINE)[0]
    if version is None or tuple(map(int, version.groups())) < tuple(map(int, wanted)):
        return f"{not_built} `go` is older than {'.'.join(wanted)}"
    free = shutil.disk_usage(_existing(build.cache_root())).free / 2**30
    if free < ROOM_GIB:
        return f"{not_built} the build needs {ROOM_GIB} GiB where the caches lie; there are {free:.1f}"
    try:
        gotool.run(["mod", "download", "-json", SMALL], build.MODULE, until=time.monotonic() + 60)
    except ControlPlaneError as error:
        return f"{not_built} Go's module proxy gives nothing: {error.message[-300:]}"
    return ""


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
