"""Services inside the cluster: a forwarder on every ClusterIP and a DNS server for `*.svc.cluster.local`.

Stands in for kube-proxy and CoreDNS. `Table` is pure: what Services and EndpointSlices say, and what follows from it.
Connections go to the ready endpoints in turn. TCP only; no session affinity, no external names.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import cast

from tests.cluster.controlplane.api import Api, Manifest
from tests.cluster.controlplane.certs import API_SERVICE_IP

DNS_IP = "10.96.0.10"
DOMAIN = "svc.cluster.local"
CHUNK = 65536
Key = tuple[str, str]
"""(namespace, name)."""


@dataclass(slots=True)
class Table:
    """What is known of Services and their endpoints."""

    services: dict[Key, Manifest] = field(default_factory=dict)
    slices: dict[Key, Manifest] = field(default_factory=dict)

    def listeners(self) -> dict[tuple[str, int], tuple[Key, str]]:
        """(cluster IP, port) → the Service and the name of its port."""
        found: dict[tuple[str, int], tuple[Key, str]] = {}
        for key, service in self.services.items():
            address = service["spec"].get("clusterIP") or "None"
            if address == "None" or address == API_SERVICE_IP:
                continue
            for port in service["spec"].get("ports") or []:
                if port.get("protocol", "TCP") == "TCP":
                    found[address, port["port"]] = (key, port.get("name") or "")
        return found

    def endpoints(self, service: Key, port_name: str) -> list[tuple[str, int]]:
        """Ready (address, port) pairs behind one port of a Service, in a stable order."""
        found: list[tuple[str, int]] = []
        for entry in self._slices(service):
            ports = [port["port"] for port in entry.get("ports") or [] if (port.get("name") or "") == port_name]
            found += [(address, port) for address, _ in _ready(entry) for port in ports]
        return sorted(found)

    def resolve(self, name: str) -> list[str] | None:
        """Addresses of a DNS name; None when the name does not exist, empty when it has no address now."""
        labels = name.rstrip(".").removesuffix(f".{DOMAIN}").split(".")
        if not name.rstrip(".").endswith(f".{DOMAIN}") or len(labels) not in (2, 3):
            return None
        key = (labels[-1], labels[-2])
        service = self.services.get(key)
        if service is None:
            return None
        ready = [pair for entry in self._slices(key) for pair in _ready(entry)]
        if len(labels) == 3:
            return sorted(address for address, host in ready if host == labels[0]) or None
        address = service["spec"].get("clusterIP")
        return sorted(address for address, _ in ready) if address == "None" else [address]

    def _slices(self, service: Key) -> Iterable[Manifest]:
        for (namespace, _), entry in self.slices.items():
            if (namespace, entry["metadata"].get("labels", {}).get("kubernetes.io/service-name")) == service:
                yield entry


class ServiceProxy:
    """Keeps a listener open for every port of every Service, and answers DNS."""

    def __init__(self, api: Api, api_port: int) -> None:
        self.table = Table()
        self._api, self._api_port = api, api_port
        self._open: dict[tuple[str, int], asyncio.Server] = {}
        self._turn = itertools.count()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: Dns(self.table), local_addr=(DNS_IP, 53))
        api = await asyncio.start_server(self._to_api, API_SERVICE_IP, 443)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow("/api/v1/services", self.table.services))
                group.create_task(self._follow("/apis/discovery.k8s.io/v1/endpointslices", self.table.slices))
                group.create_task(self._keep_listening())
        finally:
            transport.close()
            for server in (api, *self._open.values()):
                server.close()

    async def _follow(self, path: str, into: dict[Key, Manifest]) -> None:
        async for event in self._api.watch(path):
            if event[0] == "LIST":
                into.clear()
                into.update({_key(entry): entry for entry in event[1]})
            elif event[0] == "DELETED":
                into.pop(_key(event[1]), None)
            else:
                into[_key(event[1])] = event[1]
            self._changed.set()

    async def _keep_listening(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = self.table.listeners()
            for place in self._open.keys() - wanted.keys():
                self._open.pop(place).close()
            for place in wanted.keys() - self._open.keys():
                with contextlib.suppress(OSError):
                    self._open[place] = await asyncio.start_server(self._to_endpoint, *place)

    async def _to_endpoint(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        service, name = self.table.listeners().get(writer.get_extra_info("sockname")[:2], (("", ""), ""))
        targets = self.table.endpoints(service, name)
        if not targets:
            writer.transport.abort()
            return
        await forward(reader, writer, *targets[next(self._turn) % len(targets)])

    async def _to_api(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await forward(reader, writer, "127.0.0.1", self._api_port)


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    """Carries bytes both ways until both sides are done."""
    try:
        there_reader, there_writer = await asyncio.open_connection(host, port)
    except OSError:
        writer.transport.abort()
        return
    await asyncio.gather(_pump(reader, there_writer), _pump(there_reader, writer))


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while chunk := await source.read(CHUNK):
            sink.write(chunk)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
    except OSError:
        sink.transport.abort()


class Dns(asyncio.DatagramProtocol):
    """Answers A questions from the table; other types get an empty answer, unknown names NXDOMAIN (RFC 1035)."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        with contextlib.suppress(IndexError, struct.error, UnicodeDecodeError):
            self._transport.sendto(answer(data, self._table), addr)


def answer(query: bytes, table: Table) -> bytes:
    """The DNS message that answers `query`."""
    labels, offset = list[str](), 12
    while length := query[offset]:
        labels.append(query[offset + 1 : offset + 1 + length].decode())
        offset += length + 1
    kind = struct.unpack_from("!H", query, offset + 1)[0]
    question = query[12 : offset + 5]
    addresses = table.resolve(".".join(labels).lower())
    records = addresses if addresses and kind == 1 else []
    flags = 0x8580 | (3 if addresses is None else 0)
    header = query[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
    tail = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 1, 4) + IPv4Address(entry).packed for entry in records)
    return header + question + tail


def _key(entry: Manifest) -> Key:
    return entry["metadata"]["namespace"], entry["metadata"]["name"]


def _ready(entry: Manifest) -> Iterable[tuple[str, str]]:
    for endpoint in entry.get("endpoints") or []:
        if endpoint.get("conditions", {}).get("ready", True):
            for address in endpoint["addresses"]:
                yield address, endpoint.get("hostname") or ""
