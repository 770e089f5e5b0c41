"""What an image means here: an entrypoint and environment on the machine's own file system.

No image is pulled. An image that is not in the table runs its container's `command` as it is. Programs that cannot
run without a GPU or another machine have a stand-in below `stand_ins/`; hatstack's own images run hatstack.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hat_harness.errors import Kind
from tests.cluster.controlplane.errors import ControlPlaneError

STAND_INS = Path(__file__).resolve().parent.parent / "stand_ins"
REPOSITORY = Path(__file__).resolve().parents[4]
BASE = {"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}


class ImageUnknownError(ControlPlaneError):
    """A container names no command and its image is not in the table."""

    kind: Kind = "invalid_input"


@dataclass(frozen=True, slots=True)
class Image:
    """`entrypoint` and `arguments` as in an image's configuration; `environment` is all that its process inherits."""

    entrypoint: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=lambda: dict(BASE))
    known: bool = True
    """False: only a container that brings its own command can run it."""
    program: str = ""
    """A program of our own builds that the image has in /bin."""
    build: Literal["argo", "trainer"] = "argo"
    """Which build has it."""

    def mounts(self) -> list[dict[str, object]]:
        """What the image has and the machine has not."""
        if not self.program:
            return []
        from tests.cluster.controlplane import argo_build, trainer_build

        made = argo_build.folder() if self.build == "argo" else trainer_build.folder()
        return [{"source": str(made / "bin" / self.program), "target": f"/bin/{self.program}", "read_only": True}]


WITH_STAND_INS = {**BASE, "PYTHONPATH": str(STAND_INS)}
TABLE = {
    "kserve/storage-initializer": Image((sys.executable, str(STAND_INS / "storage_initializer.py"))),
    "lmsysorg/sglang": Image(environment=WITH_STAND_INS),
    "hatstack/control": Image(),
    "argoproj/argoexec": Image(program="argoexec"),
    "kubeflow/trainer/trainer-controller-manager": Image(program="trainer-controller-manager", build="trainer"),
    "jobset/jobset": Image(program="jobset", build="trainer"),
}
"""Repository, with or without a registry before it → what it runs."""


def find(name: str) -> Image:
    """The image by name; tag, digest and registry do not matter."""
    repository = name.partition("@")[0]
    head, _, last = repository.rpartition("/")
    repository = f"{head}/{last.partition(':')[0]}" if head else last.partition(":")[0]
    for known, image in TABLE.items():
        if repository == known or repository.endswith(f"/{known}"):
            return image
    return Image(known=False)


def visible() -> list[dict[str, object]]:
    """Folders that every container needs even where the machine keeps them below a folder that containers get fresh."""
    from tests.cluster.controlplane.pods.enter import FRESH

    needed = {str(REPOSITORY), sys.prefix, sys.base_prefix}
    hidden = sorted(path for path in needed if path.startswith(tuple(f"{fresh}/" for fresh in FRESH)))
    return [{"source": path, "target": path, "read_only": True} for path in hidden]
