"""Starts, watches and stops the stack's processes; remembers them in `<data>/stack.json`.

Always holds: a start that fails stops what it had started; a process is ended only when its id and start time are those
that were written down; a log holds what a process printed. Not here: what is started (services).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from hat_harness.errors import Kind, PlatformError
from hatstack.stack.services import PORTS, Service

STOP_S = 30.0
"""How long a process may take to end by itself before it is killed."""
POLL_S = 0.1
LOG_LINES = 12
LIVED_S = 1.5
"""After this a process that listens nowhere counts as up."""


class StackError(PlatformError):
    """A service did not come up; the message has the end of its log."""

    kind: Kind = "unavailable"


class RunningError(PlatformError):
    """The stack runs already."""

    kind: Kind = "conflict"


@dataclass(frozen=True, slots=True)
class Started:
    """A process of the stack. `born` is its start time in clock ticks since boot (proc(5) field 22)."""

    name: str
    port: int
    pid: int
    born: int
    log: str

    @property
    def url(self) -> str:
        """Where it answers; "" where it does not."""
        return f"http://127.0.0.1:{self.port}" if self.port else ""


@dataclass(frozen=True, slots=True)
class State:
    """How a process stands now."""

    name: str
    url: str
    pid: int
    state: str
    """`up`, `not answering` or `gone`."""
    log: str


def free_ports(taken: Callable[[int], bool] | None = None) -> dict[str, int]:
    """The contract's ports, each moved to the next free one where it is taken."""
    busy = taken or _taken
    found: dict[str, int] = {}
    for name, wanted in PORTS.items():
        port = wanted
        while busy(port) or port in found.values():
            port += 1
            if port > wanted + 1000:
                raise StackError(f"no free port from {wanted} on for {name}", cure="stop something")
        found[name] = port
    return found


def start(services: Sequence[Service], data: Path, told: Callable[[str], None] = lambda _: None) -> list[Started]:
    """Start all, each once the one before it is up. StackError, with everything stopped again, when one is not."""
    if any(one.state != "gone" for one in status(data)):
        raise RunningError("the stack runs already", place=str(data), cure="hat status shows it, hat down stops it")
    logs = data / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    started: list[Started] = []
    try:
        for service in services:
            told(f"{service.name:<8} starting{' on ' + service.url if service.url else ''}")
            process = _spawn(service, logs / f"{service.name}.log")
            started.append(
                Started(
                    service.name, service.port, process.pid, _born(process.pid) or 0, str(logs / f"{service.name}.log")
                )
            )
            _write(data, started)
            _wait(service, process, logs / f"{service.name}.log")
            told(f"{service.name:<8} up")
    except BaseException:
        _end(started)
        _write(data, [])
        raise
    return started


def status(data: Path, services: Mapping[str, str] | None = None) -> list[State]:
    """How every process that was started stands; empty where none was. `services` maps a name to its health path."""
    paths = services or {}
    return [State(one.name, one.url, one.pid, _state(one, paths.get(one.name, "")), one.log) for one in _read(data)]


def stop(data: Path) -> list[str]:
    """End what runs, last started first; the names of what was ended."""
    known = _read(data)
    alive = [one for one in known if _born(one.pid) == one.born]
    _end(known)
    _write(data, [])
    return [one.name for one in alive]


def _spawn(service: Service, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(
            service.command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **service.environment},
        )


def _wait(service: Service, process: subprocess.Popen[bytes], log: Path) -> None:
    began = time.monotonic()
    while time.monotonic() < began + service.start_s:
        if process.poll() is not None:
            raise StackError(f"{service.name} ended with code {process.returncode}:\n{_tail(log)}", place=str(log))
        if _answers(service.port, service.health) if service.port else time.monotonic() > began + LIVED_S:
            return
        try:
            process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            continue
    raise StackError(f"{service.name} did not come up in {service.start_s:g} s:\n{_tail(log)}", place=str(log))


def _answers(port: int, health: str) -> bool:
    if not health:
        return _taken(port)
    try:
        with urlopen(f"http://127.0.0.1:{port}{health}", timeout=2) as answer:
            return bool(answer.status == 200)
    except (URLError, HTTPError, OSError, ValueError):
        return False


def _state(one: Started, health: str) -> str:
    if _born(one.pid) != one.born:
        return "gone"
    return "up" if not one.port or _answers(one.port, health) else "not answering"


def _end(started: Sequence[Started]) -> None:
    """SIGTERM to each process group, last first; SIGKILL to what has not ended in time."""
    for one in reversed(started):
        _signal(one, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    for one in reversed(started):
        while _born(one.pid) == one.born and time.monotonic() < deadline:
            _reap(one.pid)
            time.sleep(POLL_S)
        _signal(one, signal.SIGKILL)
        _reap(one.pid)


def _signal(one: Started, number: signal.Signals) -> None:
    if _born(one.pid) == one.born:
        try:
            os.killpg(one.pid, number)
        except ProcessLookupError:
            return


def _reap(pid: int) -> None:
    """Collect a child of ours that has ended; nothing to do for a process of an earlier command."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _born(pid: int) -> int | None:
    """Start time of a live process, None for one that is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:]
    return "\n".join(f"  {line}" for line in lines) or "  (it printed nothing)"


def _file(data: Path) -> Path:
    return data / "stack.json"


def _read(data: Path) -> list[Started]:
    try:
        return [Started(**one) for one in json.loads(_file(data).read_text())]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        raise StackError("the stack's record is damaged", place=str(_file(data)), cure="remove it") from error


def _write(data: Path, started: Sequence[Started]) -> None:
    data.mkdir(parents=True, exist_ok=True)
    temporary = data / ".stack.json.new"
    temporary.write_text(json.dumps([asdict(one) for one in started], indent=1))
    temporary.replace(_file(data))
