"""Addresses of pods: one network namespace per pod, joined to a bridge, held open by a process that only sleeps.

Runs inside the cluster's own network namespace. Addresses go up and are not used again, so that no late connection
meets the wrong pod.
"""

from __future__ import annotations

import asyncio
import ipaddress
from dataclasses import dataclass

from tests.cluster.controlplane.certs import POD_GATEWAY_IP
from tests.cluster.controlplane.errors import StartError

PODS = ipaddress.ip_network("10.244.0.0/16")
SERVICES = "10.96.0.0/16"
BRIDGE = "hatbr0"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A pod's place in the network."""

    address: str
    namespace: str
    """Path of the network namespace below /proc."""
    holder: asyncio.subprocess.Process


class Network:
    """Hands out addresses."""

    def __init__(self) -> None:
        self._next = 1

    async def up(self) -> None:
        """Loopback, the bridge of the pods, and a local route so that any service address can be listened on."""
        await _ip(
            "link set lo up",
            f"link add {BRIDGE} type bridge",
            f"addr add {POD_GATEWAY_IP}/{PODS.prefixlen} dev {BRIDGE}",
            f"link set {BRIDGE} up",
            f"route add local {SERVICES} dev lo",
        )

    async def attach(self) -> Attachment:
        """A new network namespace with the next free address."""
        self._next += 1
        address, link = str(PODS[self._next]), f"pod{self._next}"
        holder = await asyncio.create_subprocess_exec(
            *("unshare", "--net", "sh", "-c", "echo; exec sleep infinity"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert holder.stdout is not None
        await holder.stdout.readline()
        await _ip(f"link add {link} type veth peer name eth0 netns {holder.pid}", f"link set {link} master {BRIDGE} up")
        await _ip(
            "link set lo up",
            f"addr add {address}/{PODS.prefixlen} dev eth0",
            "link set eth0 up",
            f"route add default via {POD_GATEWAY_IP}",
            enter=holder.pid,
        )
        return Attachment(address, f"/proc/{holder.pid}/ns/net", holder)

    async def detach(self, attachment: Attachment) -> None:
        """Lets the namespace go; its link goes with it."""
        if attachment.holder.returncode is None:
            attachment.holder.kill()
        await attachment.holder.wait()


async def _ip(*commands: str, enter: int | None = None) -> None:
    prefix = ("nsenter", "--net", "--target", str(enter)) if enter is not None else ()
    process = await asyncio.create_subprocess_exec(
        *(*prefix, "ip", "-batch", "-"), stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate("\n".join(commands).encode())
    if process.returncode:
        raise StartError(f"ip could not set the network up: {errors.decode().strip()}")
