"""Startup, readiness and liveness probes: httpGet, tcpSocket, exec. A probe answers yes or no, never with an error.

Periods are capped, so that a test sees within a second what a node shows within ten; thresholds count as written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp

from tests.cluster.controlplane.api import Manifest

PERIOD_CAP = 1.0
"""Longest seconds between two probes."""
EAGER_PERIOD = 0.1
"""Seconds between probes until the first success: a kubelet is eager during start-up too."""
Exec = Callable[[list[str], float], Awaitable[int]]


async def ask(probe: Manifest, container: Manifest, address: str, execute: Exec) -> bool:
    """One probe. `execute` runs a command beside the container and returns its exit code."""
    limit = float(probe.get("timeoutSeconds") or 1)
    try:
        if http := probe.get("httpGet"):
            return await _http(http, container, address, limit)
        if tcp := probe.get("tcpSocket"):
            opening = asyncio.open_connection(tcp.get("host") or address, port(container, tcp["port"]))
            _, writer = await asyncio.wait_for(opening, limit)
            writer.close()
            return True
        if command := probe.get("exec"):
            return await execute(list(command["command"]), limit) == 0
    except (OSError, TimeoutError, aiohttp.ClientError):
        return False
    return True


def period(probe: Manifest) -> float:
    """Seconds until the next probe."""
    return min(float(probe.get("periodSeconds") or 10), PERIOD_CAP)


def delay(probe: Manifest) -> float:
    """Seconds before the first probe."""
    return min(float(probe.get("initialDelaySeconds") or 0), PERIOD_CAP)


def port(container: Manifest, wanted: int | str) -> int:
    """A port by number or by the name that the container gives it."""
    if isinstance(wanted, int):
        return wanted
    for entry in container.get("ports") or []:
        if entry.get("name") == wanted:
            return int(entry["containerPort"])
    return int(wanted)


async def _http(http: Manifest, container: Manifest, address: str, limit: float) -> bool:
    scheme = str(http.get("scheme") or "HTTP").lower()
    path = "/" + str(http.get("path") or "/").lstrip("/")
    url = f"{scheme}://{http.get('host') or address}:{port(container, http['port'])}{path}"
    headers = {entry["name"]: entry["value"] for entry in http.get("httpHeaders") or []}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=limit)) as session,
        session.get(url, headers=headers, ssl=False, allow_redirects=False) as answer,
    ):
        return 200 <= answer.status < 400
