"""Requests that leave for an address which somebody else wrote: webhooks and MCP servers.

Always holds: only HTTP and HTTPS, no user name in the URL; every address that the host resolves to must be public, or in
`allowed`, before a byte is sent, and the connection goes to one of the addresses that were checked (no second look-up
that could answer otherwise); redirects are not followed; plain HTTP goes to allowed addresses only; an answer is read
up to a bound. Not here: what is sent (webhooks, mcp_tools).
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from hat_registry.errors import InvalidError, StoreError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
TIMEOUT_S = 10.0
MAX_ANSWER = 4096
_NAT64 = (
    ipaddress.ip_network("64:ff9b::/96"),
    ipaddress.ip_network("64:ff9b:1::/48"),
    ipaddress.ip_network("2002::/16"),
)


@dataclass(frozen=True, slots=True)
class Target:
    """A checked address: `addresses` are what the host resolved to."""

    url: str
    scheme: str
    host: str
    port: int
    path: str
    addresses: tuple[str, ...]


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """CIDR texts (or single addresses) as networks. InvalidError names a bad one."""
    try:
        return tuple(ipaddress.ip_network(text.strip(), strict=False) for text in texts if text.strip())
    except ValueError as error:
        raise InvalidError(f"not a network: {error}", cure="write CIDR, e.g. 10.0.0.0/8") from None


def check(url: str, allowed: Sequence[Network] = (), *, resolve: bool = True) -> Target:
    """The target of `url`. InvalidError where it must not be asked; StoreError when its name does not resolve.

    Without `resolve` only what the text says is checked, so that a name may be registered before it exists.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise InvalidError(f"not an address: {error}", place=url[:120]) from None
    if parts.scheme not in {"http", "https"} or not host or parts.username or any(c.isspace() for c in url):
        raise InvalidError("not an HTTP address", place=url[:120], cure="https://host/path, without user and password")
    port = port or (443 if parts.scheme == "https" else 80)
    literal = _literal(host)
    found = (str(literal),) if literal else _resolved(host, port) if resolve else ()
    for address in found:
        inside = _inside(address, allowed)
        if not inside and not public(address):
            raise InvalidError(
                f"{host} is not a public address", place=url[:120],
                cure="an operator can allow its network with HATSTACK_OUTBOUND_ALLOW",
            )  # fmt: skip
        if not inside and parts.scheme == "http":
            raise InvalidError("plain HTTP leaves only to allowed networks", place=url[:120], cure="use https://")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(url, parts.scheme, host, port, path, found)


def public(address: str) -> bool:
    """Whether an address is on the public internet: not private, loopback, link-local, multicast or a tunnel to those."""
    found = ipaddress.ip_address(address)
    mapped = getattr(found, "ipv4_mapped", None)
    if mapped is not None:
        found = mapped
    if any(found in network for network in _NAT64):
        return False
    return found.is_global and not found.is_multicast


def post(target: Target, body: bytes, headers: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> tuple[int, str]:
    """POST to a checked target: (status, start of the answer). StoreError when nothing answers."""
    connection = _Pinned(target, timeout_s)
    try:
        connection.request("POST", target.path, body=body, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read(MAX_ANSWER).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise StoreError(f"no answer ({type(error).__name__})", place=target.host) from None
    finally:
        connection.close()


class _Pinned(http.client.HTTPConnection):
    """A connection to the addresses that were checked, with TLS for the name that was asked."""

    def __init__(self, target: Target, timeout_s: float) -> None:
        super().__init__(target.host, target.port, timeout=timeout_s)
        self._target = target

    def connect(self) -> None:
        """Connect to the first checked address that answers."""
        failed: OSError = OSError("no address")
        for address in self._target.addresses:
            try:
                self.sock = socket.create_connection((address, self._target.port), self.timeout)
            except OSError as error:
                failed = error
                continue
            if self._target.scheme == "https":
                context = ssl.create_default_context()
                self.sock = context.wrap_socket(self.sock, server_hostname=self._target.host)
            return
        raise failed


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that `host` is, in any of the forms that connect() would take (127.1, 0x7f000001, 2130706433)."""
    try:
        return ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def _resolved(host: str, port: int) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise StoreError(f"{host[:80]} does not resolve", cure="check the name") from None
    return tuple(dict.fromkeys(str(entry[4][0]).split("%")[0] for entry in found))


def _inside(address: str, allowed: Sequence[Network]) -> bool:
    found = ipaddress.ip_address(address)
    mapped = getattr(found, "ipv4_mapped", None)
    return any((mapped or found) in network for network in allowed)
