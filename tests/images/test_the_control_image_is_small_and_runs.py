"""The control image is built for real, without a daemon: small, no torch, not root, with its labels and its bill."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(3000)]
ROOT = Path(__file__).resolve().parents[2]
LIMIT_MB = 400
"""Of what is pulled: the compressed layers, base included."""
CONF = """\
[storage]
driver = "vfs"
graphroot = "{root}/storage"
runroot = "{root}/run"
"""
HOST_FILES = ("/etc/ssl/certs", "/etc/pip.conf", "/etc/resolv.conf")
"""Of this machine, for the build alone: how it reaches its package index."""
READ_ONLY = """\
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && mount -t tmpfs none "$1/tmp" && mount -t proc none "$1/proc" &&
root=$1 && shift && export PATH=/opt/hatstack/bin:/usr/bin:/bin:/usr/sbin HOME=/tmp &&
exec chroot --userspec=65532:65532 "$root" "$@"
"""
"""Runs a command in a root that nobody can write to, as the charts have it run."""
UNWANTED = ("var/cache", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info")


class Buildah:
    """buildah over a store of its own."""

    def __init__(self, folder: Path) -> None:
        assert shutil.which("buildah"), "buildah is missing: make test-all installs it"
        conf = folder / "storage.conf"
        conf.write_text(CONF.format(root=folder))
        self.environment = {
            **os.environ,
            "CONTAINERS_STORAGE_CONF": str(conf),
            "STORAGE_DRIVER": "vfs",
            "BUILDAH_ISOLATION": "chroot",
        }

    def __call__(self, *argv: str, check: bool = True) -> str:
        done = subprocess.run(
            ["buildah", *argv], env=self.environment, capture_output=True, text=True, check=False, timeout=900
        )
        assert not check or done.returncode == 0, f"{argv}: {done.stderr[-2000:]}"
        return done.stdout.strip() + (done.stderr if not check else "")


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    folder = tmp_path_factory.mktemp("buildah")
    yield Buildah(folder)
    shutil.rmtree(folder, ignore_errors=True)


def base_image(buildah: Buildah, folder: Path) -> str:
    """A Debian with Python from debootstrap, since this may run where no registry of images is reached.

    `HATSTACK_DEBIAN` names a folder that debootstrap has filled before, which saves minutes.
    """
    system = folder / "system"
    before = os.environ.get("HATSTACK_DEBIAN")
    if before:
        subprocess.run(["cp", "-a", before, str(system)], check=True, timeout=300)
    else:
        assert shutil.which("debootstrap"), "debootstrap is missing: make test-all installs it"
        more = "--include=python3,python3-venv,ca-certificates"
        subprocess.run(
            ["debootstrap", "--variant=minbase", more, "bookworm", str(system)],
            check=True,
            capture_output=True,
            timeout=1200,
        )
    for name in UNWANTED:
        shutil.rmtree(system / name, ignore_errors=True)
    archive = folder / "system.tar"
    with tarfile.open(archive, "w") as made:
        for entry in sorted(system.iterdir()):
            if entry.name not in ("proc", "sys", "dev"):
                made.add(entry, arcname=entry.name)
    container = buildah("from", "scratch")
    buildah("add", container, str(archive), "/")
    buildah("commit", "--rm", container, "localhost/debian-python")
    shutil.rmtree(system)
    archive.unlink()
    return "localhost/debian-python"


@pytest.fixture(scope="module")
def image(buildah: Buildah, tmp_path_factory: pytest.TempPathFactory) -> str:
    base = base_image(buildah, tmp_path_factory.mktemp("base"))
    volumes = " ".join(f"--volume {path}:{path}:ro" for path in HOST_FILES if Path(path).exists())
    environment = {
        **buildah.environment, "ENGINE": "buildah", "BASE": base, "PREFIX": "localhost/hatstack-", "TAG": "test",
        "BUILD_ARGS": f"--isolation chroot {volumes}", "PYTHON": str(Path(shutil.which("python3") or "python3")),
    }  # fmt: skip
    done = subprocess.run(
        ["sh", str(ROOT / "serving" / "images" / "build.sh"), "control"], env=environment, capture_output=True, text=True,
        check=False, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-3000:]
    return "localhost/hatstack-control:test"


def inside(root: str, *command: str) -> str:
    """What a command says in a root that nobody may write to."""
    argv = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", root, *command]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    return (done.stdout + done.stderr).strip()


def test_it_is_small_labelled_and_runs_as_nobody(buildah: Buildah, image: str, tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    buildah("push", image, f"oci-archive:{archive}")
    assert archive.stat().st_size < LIMIT_MB * 1_000_000
    archive.unlink()
    config = json.loads(buildah("inspect", "--type", "image", image))["OCIv1"]["config"]
    assert config["User"] == "65532:65532"
    labels = config["Labels"]
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", labels["org.opencontainers.image.revision"])
    assert labels["org.opencontainers.image.base.name"] == "localhost/debian-python"
    for name in ("org.opencontainers.image.base.digest", "dev.hatstack.wheel"):
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", labels[name]), name
    container = buildah("from", image)
    as_built = buildah("run", "--isolation", "chroot", container, "--", "sh", "-c", "id -u; hat doctor")
    assert as_built.startswith("65532\n")
    assert " bad " not in as_built
    root = buildah("mount", container)
    told = inside(root, "hat", "doctor")
    assert re.search(r"^python +ok", told, re.MULTILINE), told
    assert " bad " not in told
    assert inside(root, "hat", "--version").startswith("hatstack ")
    refused = inside(root, "sh", "-c", "touch /opt/x /var/x; touch /tmp/x && echo writable")
    assert refused.count("Read-only file system") == 2
    assert "writable" in refused
    assert "No module named 'torch'" in inside(root, "python", "-c", "import torch")
    served = "import hat_console.app, hat_serving.gateway, hat_serving.canary.controller, hat_pipelines.desk.supervise"
    assert inside(root, "python", "-c", served) == ""
    bill = json.loads(inside(root, "cat", "/opt/hatstack/sbom.json"))
    versions = {one["name"]: one["version"] for one in bill["components"]}
    assert {"hatstack", "mlflow-skinny", "fastapi"} <= versions.keys()
    assert not {"torch", "mlflow", "transformers", "pip", "setuptools"} & versions.keys()
    pins = dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    strange = {name: version for name, version in versions.items() if pins.get(name) != version}
    assert strange.keys() == {"hatstack"}, "every package has the version of constraints.txt"
    buildah("rm", container)
