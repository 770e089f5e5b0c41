"""Learning of moves at once: the registry's event stream, and polling where a stream does not get through.

    watch = Watch(client, lambda event: print(event))
    watch.start()   # … client.resolve() answers from memory until the registry says that a pointer moved
    watch.close()

Always holds: an event is told once and in order, also over reconnects (it continues after the last row it saw); when the
registry has no such row any more everything is asked anew; while the registry is away nothing is told and the client's
last good versions stand. Imports only the standard library and this package. Not here: caches (client).
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any, Literal

from hat_harness.errors import PlatformError
from hat_registry.client import Client, ClientError

SILENCE_S = 40.0
"""The server sends something every 15 s; a stream that is silent for longer is dead."""
POLL_S = 2.0
AGAIN_S = 0.5
"""Pause before a stream that ended is opened again."""
TRY_AGAIN_S = 60.0
"""After a stream did not get through: how long to poll before it is tried again."""
MAX_LINE = 65_536


@dataclass(frozen=True, slots=True)
class Event:
    """`pointer`: one moved; `mute`: a room was silenced or may speak again; `reset`: ask everything anew."""

    kind: Literal["pointer", "mute", "reset"]
    seq: int
    """Row of the ledger."""
    data: dict[str, Any]
    """pointer: kind, name, pointer, digest, urgent; mute: room (`*` for all), muted."""


class Watch:
    """Follows a registry in a thread until `close`, keeps the client's pointers fresh and tells `on_event`."""

    def __init__(
        self,
        client: Client,
        on_event: Callable[[Event], None] | None = None,
        *,
        poll_s: float = POLL_S,
        try_again_s: float = TRY_AGAIN_S,
        again_s: float = AGAIN_S,
        stream: bool = True,
    ) -> None:
        self.mode: Literal["off", "stream", "poll", "away"] = "off"
        self._client = client
        self._on_event = on_event
        self._poll_s = poll_s
        self._try_again_s = try_again_s
        self._again_s = again_s
        self._stream = stream
        self._after: int | None = None
        self._stop = threading.Event()
        self._answer: IO[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="registry-watch", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def close(self, timeout_s: float = 10.0) -> None:
        """Stop; what is being told is told to its end."""
        self._stop.set()
        answer = self._answer
        if answer is not None:
            _hang_up(answer)
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                if self._stream:
                    self._follow()
                else:
                    self._poll_for(float("inf"))
                failures = 0
                self._stop.wait(self._again_s)
            except (PlatformError, OSError, ValueError):
                if self._stop.is_set():
                    break
                failures += 1
                try:
                    # A proxy may swallow streams while plain requests get through.
                    self._poll_for(self._try_again_s)
                    failures = 0
                except (PlatformError, OSError, ValueError):
                    self.mode = "away"
                    spread = 1 + random.random() / 2
                    self._stop.wait(min(30.0, self._poll_s * 2 ** min(failures, 4)) * spread)
        self.mode = "off"

    def _follow(self) -> None:
        """Read one stream to its end."""
        path = "/api/v1/watch" + ("" if self._after is None else f"?after={self._after}")
        answer = self._client.open(path, SILENCE_S)
        self._answer = answer
        try:
            for event, identity, data in read_events(answer):
                self.mode = "stream"
                if self._stop.is_set():
                    return
                self._heard(event, identity, data)
        finally:
            self._answer = None
            answer.close()

    def _poll_for(self, seconds: float) -> None:
        """Ask for changes every `poll_s` for some seconds."""
        rounds = max(1, int(min(seconds / max(self._poll_s, 0.01), 1e9)))
        for _ in range(rounds):
            asked = "" if self._after is None else f"?after={self._after}"
            found = json.loads(self._client.get("/api/v1/changes" + asked))
            self.mode = "poll"
            first = self._after is None
            if found["reset"]:
                self._tell(Event("reset", found["next"], {}))
            for one in found["items"]:
                self._heard(one["event"], one["seq"], one)
            self._after = int(found["next"])
            if first:
                self._client.forget_pointers()
            if self._stop.wait(self._poll_s):
                return

    def _heard(self, event: str, seq: int | None, data: dict[str, Any]) -> None:
        if event == "start":
            # What moved before the stream stood is not told: ask anew.
            self._client.forget_pointers()
        elif event in {"pointer", "mute", "reset"}:
            self._tell(Event(event, seq or 0, data))  # type: ignore[arg-type]  # narrowed by the line above
        if seq is not None:
            self._after = seq

    def _tell(self, event: Event) -> None:
        if event.kind == "reset":
            self._client.forget_pointers()
        elif event.kind == "pointer" and event.data.get("kind") == "harness":
            self._client.forget_pointer(str(event.data["name"]), str(event.data["pointer"]))
        if self._on_event is not None:
            self._on_event(event)


def read_events(lines: IO[bytes]) -> Iterator[tuple[str, int | None, dict[str, Any]]]:
    """(event, id, data) of a server-sent event stream whose data are JSON objects. ClientError for anything else."""
    event, identity = "message", None
    data: list[str] = []
    while True:
        line = lines.readline(MAX_LINE)
        if not line:
            return
        if len(line) >= MAX_LINE:
            raise ClientError("the stream holds a line that is too long")
        text = line.decode("utf-8").rstrip("\r\n")
        if not text:
            if data:
                found = json.loads("\n".join(data))
                if not isinstance(found, dict):
                    raise ClientError("the stream holds something else than events")
                yield event, identity, found
            event, data = "message", []
            continue
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            event = value
        elif name == "data":
            data.append(value)
        elif name == "id" and value.isdigit():
            identity = int(value)
        elif name == "" and value.isdigit():
            yield "alive", int(value), {}


def _hang_up(answer: Any) -> None:
    """Wake a thread that waits on the answer's socket: closing the file alone would wait for it."""
    import socket

    try:
        raw = answer.fp.raw._sock
        raw.shutdown(socket.SHUT_RDWR)
    except (AttributeError, OSError):
        return
