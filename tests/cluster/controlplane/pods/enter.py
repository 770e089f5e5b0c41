"""Enters a pod's namespaces, builds the container's file system and becomes its program.

Started as `python -I -S enter.py SPEC` (JSON); standard library only, because it runs once per container start. The
file system is an empty root with the machine's own folders bound read-only, fresh /tmp, /mnt and /run, and the pod's
volumes on top: a container can write to its volumes and to nothing that outlives it. Not here: user ids, cgroups,
seccomp.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
FRESH = ("/tmp", "/mnt", "/run", "/media", "/srv")
STAY_WRITABLE = ("/proc", "/sys", "/dev")
CANNOT_START = 128
"""Exit code that the container runtime reports when a program cannot be executed."""

libc = ctypes.CDLL(None, use_errno=True)


class MountAttr(ctypes.Structure):
    """`struct mount_attr` of mount_setattr(2)."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def call(result: int, what: str) -> None:
    """Turns the -1 of a system call into an OSError that names it."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def mount(source: str, target: str, flags: int, kind: str = "", options: str = "") -> None:
    """mount(2)."""
    result = libc.mount(source.encode(), target.encode(), kind.encode() or None, flags, options.encode() or None)
    call(result, f"mount {source} on {target}")


def make_read_only(target: str) -> None:
    """The mount and everything mounted below it."""
    attr = MountAttr(attr_set=MOUNT_ATTR_RDONLY)
    size = ctypes.sizeof(attr)
    result = libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, target.encode(), AT_RECURSIVE, ctypes.byref(attr), size)
    call(result, f"make {target} read-only")


def link_tree(host: Path, root: str, targets: list[str]) -> None:
    """Shows the machine's folder `host` below `root`, opened where a volume will be mounted further down."""
    for entry in host.iterdir():
        name, inside = str(entry), Path(f"{root}{entry}")
        deeper = any(target.startswith(f"{name}/") for target in targets)
        if name in targets:
            continue
        if entry.is_symlink():
            inside.symlink_to(entry.readlink())
        elif name in FRESH or (deeper and entry.is_dir()):
            inside.mkdir()
            inside.chmod(0o1777 if name == "/tmp" else 0o755)
            if name not in FRESH:
                link_tree(entry, root, targets)
        else:
            bind(entry, inside, read_only=not name.startswith(STAY_WRITABLE))


def bind(source: Path, target: Path, *, read_only: bool) -> None:
    """Mounts a file or folder with what is mounted below it."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(str(source), str(target), MS_BIND | MS_REC)
    if read_only:
        make_read_only(str(target))


def build_root(spec: dict[str, Any]) -> None:
    """The container's file system at `spec["root"]`."""
    root = spec["root"]
    mounts = [{**entry, "target": str(Path(entry["target"]).resolve())} for entry in spec["mounts"]]
    mount("tmpfs", root, MS_NOSUID | MS_NODEV, "tmpfs", "mode=755")
    link_tree(Path("/"), root, [entry["target"] for entry in mounts])
    for entry in sorted(mounts, key=lambda entry: str(entry["target"])):
        bind(Path(entry["source"]), Path(root + entry["target"]), read_only=entry["read_only"])
    if spec["directory"] != "/":
        Path(f"{root}{Path(spec['directory']).resolve()}").mkdir(parents=True, exist_ok=True)
    if spec["read_only_root"]:
        mount("", root, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def main() -> int:
    """Never returns when the program starts."""
    spec = json.loads(sys.argv[1])
    try:
        with Path(spec["network"]).open() as network:
            call(libc.setns(network.fileno(), CLONE_NEWNET), "enter the pod's network")
        call(libc.unshare(CLONE_NEWNS | CLONE_NEWUTS), "unshare")
        mount("", "/", MS_REC | MS_PRIVATE)
        socket.sethostname(spec["hostname"])
        build_root(spec)
        os.chroot(spec["root"])
        os.chdir(spec["directory"])
        os.execvp(spec["argv"][0], spec["argv"])
    except OSError as error:
        print(f"cannot start {spec['argv'][:1]}: {error}", file=sys.stderr)
    return CANNOT_START


if __name__ == "__main__":
    sys.exit(main())
