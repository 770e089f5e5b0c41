"""What the containers of one pod share:

Address, volumes, folders, the pod object, and a bell that rings when a status changes.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.controlplane.api import Api, Manifest
from tests.cluster.controlplane.pods import images
from tests.cluster.controlplane.pods.environment import environment, expand
from tests.cluster.controlplane.pods.network import Attachment
from tests.cluster.controlplane.pods.volumes import fetch

ENTER = Path(__file__).with_name("enter.py")


@dataclass(slots=True)
class Sandbox:
    """One pod's shared ground. `pod` carries the pod's address in its status, so that the downward API can read it."""

    api: Api
    pod: Manifest
    folder: Path
    logs: Path
    attachment: Attachment
    volumes: Mapping[str, Path]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    backoff: float = 1.0
    """Seconds before the second restart; doubles with each further one."""

    async def spawn(self, container: Manifest, log: Path, argv: list[str] | None = None) -> asyncio.subprocess.Process:
        """Starts the container's program (or `argv` in its place) inside the pod.

        Raises MissingReferenceError, ImageUnknownError.
        """
        image = images.find(container["image"])
        variables = await environment(self.pod, container, image.environment, self._fetch)
        command = argv or _argv(container, image, variables)
        return await self.launch(container, command, variables, log)

    async def launch(
        self, container: Manifest, command: list[str], variables: Mapping[str, str], log: Path
    ) -> asyncio.subprocess.Process:
        """Runs `command` in the pod's namespaces with the container's mounts; output goes to `log`."""
        root = self.folder / "root" / container["name"]
        root.mkdir(parents=True, exist_ok=True)
        spec = {
            "network": self.attachment.namespace,
            "hostname": self._hostname,
            "root": str(root),
            "mounts": self._mounts(container),
            "read_only_root": bool((container.get("securityContext") or {}).get("readOnlyRootFilesystem")),
            "directory": container.get("workingDir") or "/",
            "argv": command,
        }
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(ENTER), json.dumps(spec)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(variables),
                start_new_session=True,
            )

    async def _fetch(self, kind: str, name: str, optional: bool) -> dict[str, bytes]:
        return await fetch(self.api, kind, self.pod["metadata"]["namespace"], name, optional=optional)

    def _mounts(self, container: Manifest) -> list[dict[str, object]]:
        mounts: list[dict[str, object]] = [
            {"source": str(self.folder / name), "target": f"/etc/{name}", "read_only": True}
            for name in ("resolv.conf", "hosts")
        ]
        mounts += [*images.visible(), *images.find(container["image"]).mounts()]
        for entry in container.get("volumeMounts") or []:
            source = self.volumes[entry["name"]]
            if entry.get("subPath"):
                source = source / entry["subPath"]
                if not source.exists():
                    source.mkdir(parents=True)
            target = entry["mountPath"].rstrip("/") or "/"
            mounts.append({"source": str(source), "target": target, "read_only": bool(entry.get("readOnly"))})
        return mounts

    @property
    def _hostname(self) -> str:
        return str(self.pod["spec"].get("hostname") or self.pod["metadata"]["name"])

    def resolver(self, server: str) -> None:
        """Writes the pod's resolv.conf, and its hosts: a pod finds its own address by its own name."""
        namespace = self.pod["metadata"]["namespace"]
        names = self._hostname
        if subdomain := self.pod["spec"].get("subdomain"):
            names = f"{names}.{subdomain}.{namespace}.svc.cluster.local {names}"
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{self.attachment.address} {names}\n")
        search = f"{namespace}.svc.cluster.local svc.cluster.local cluster.local"
        (self.folder / "resolv.conf").write_text(f"nameserver {server}\nsearch {search}\noptions ndots:5 timeout:2\n")


def exit_code(returncode: int) -> int:
    """A return code as a container runtime reports it: a signal is 128 plus its number."""
    return returncode if returncode >= 0 else 128 - returncode


def signal_of(code: int) -> int | None:
    """The signal behind an exit code, None when there is none."""
    number = code - 128
    return number if number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGINT) else None


def _argv(container: Manifest, image: images.Image, variables: Mapping[str, str]) -> list[str]:
    """Kubernetes' rule: `command` replaces the image's entrypoint and its arguments, `args` only the arguments."""
    command = container.get("command")
    arguments = container.get("args")
    fallback = [*image.entrypoint, *(arguments or image.arguments)]
    argv = [*command, *(arguments or [])] if command else fallback
    if not argv or not (command or image.known):
        raise images.ImageUnknownError(
            f"image {container['image']} has no known entrypoint", cure="give the container a command, or add the image"
        )
    return [expand(part, variables) for part in argv]
