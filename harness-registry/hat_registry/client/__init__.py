"""A light client of the registry: pointer → digest → harness, with caches that make an outage harmless.

Always holds: what comes out has the digest that was asked for; a digest is fetched once and kept for good; a pointer is
asked again after `ttl_s`, and while the registry is away the last good answer stands, marked stale, and is not asked
for at every call but ever more seldom. What lies damaged in the cache is fetched anew.
Imports only the standard library and hat_harness. Not here: writing (hat_registry.api), change streams (watch).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from hat_harness.digest import harness_digest
from hat_harness.errors import Kind, PlatformError
from hat_harness.load import load_harness
from hat_harness.spec import Harness

TIMEOUT_S = 5.0
AWAY_S = 60.0
"""Longest time for which an unreachable registry is not asked again."""
MAX_ANSWER = 64 * 1024 * 1024
DIGEST = re.compile(r"^sha256:[0-9a-f]{64}$")


class ClientError(PlatformError):
    """The registry cannot answer and nothing is cached, or it answered with an error."""

    kind: Kind = "unavailable"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Where a pointer stands. `stale` is true when the registry could not be asked and the last good answer stands."""

    name: str
    pointer: str
    digest: str
    revision: int
    urgent: bool
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Released:
    """A release that a pointer stands at: its digest, and the digests of model and harness."""

    name: str
    digest: str
    model: str
    harness: str
    harness_name: str
    urgent: bool


class Client:
    """Reads harnesses from a registry at `url`; `cache` is a folder that survives restarts."""

    def __init__(
        self,
        url: str,
        cache: Path,
        *,
        token: str = "",
        ttl_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if urllib.parse.urlsplit(url).scheme not in {"http", "https"}:
            raise ClientError(f"{url[:80]!r} is not an HTTP address", cure="e.g. http://127.0.0.1:8700")
        self._url = url.rstrip("/")
        self._cache = cache
        self._token = token
        self._ttl_s = ttl_s
        self._clock = clock
        self._pointers: dict[tuple[str, str], tuple[float, Resolved]] = {}
        self._harnesses: dict[str, Harness] = {}
        self._failures = 0
        self._again_at = 0.0
        self._lock = threading.Lock()
        cache.mkdir(parents=True, exist_ok=True)

    def resolve(self, name: str, pointer: str) -> Resolved:
        """Where `pointer` of `name` stands; from memory within `ttl_s`."""
        kept = self._pointers.get((name, pointer))
        now = self._clock()
        if kept is not None and now < kept[0]:
            return kept[1]
        return self._ask(name, pointer, now)

    def harness(self, name: str, pointer: str) -> tuple[Resolved, Harness]:
        """The pointer's position and the harness there."""
        resolved = self.resolve(name, pointer)
        return resolved, self.by_digest(name, resolved.digest)

    def by_digest(self, name: str, digest: str) -> Harness:
        """The harness with `digest`; fetched once, checked, kept in memory and on disk."""
        known = self._harnesses.get(digest)
        if known is not None:
            return known
        if not DIGEST.match(digest):
            raise ClientError(f"{digest[:80]!r} is not a digest", place=name)
        folder = self._cache / "harnesses" / digest.removeprefix("sha256:")
        found = _kept(folder, digest) or self._fetch(name, digest, folder)
        self._harnesses[digest] = found
        return found

    def release(self, name: str, pointer: str) -> Released:
        """Where `pointer` of the releases called `name` stands. Asked each time: keep the answer while it serves."""
        path = f"/api/v1/releases/{_quoted(name)}/pointers/{_quoted(pointer)}"
        note = self._cache / "pointers" / f"release-{_quoted(name)}@{_quoted(pointer)}.json"
        try:
            content = self.get(path)
            found = _released(name, content)
            _write(note, content)
        except ClientError as error:
            if error.kind != "unavailable":
                raise
            try:
                return _released(name, note.read_bytes())
            except (OSError, ClientError):
                raise error from None
        return found

    def forget_pointer(self, name: str, pointer: str) -> None:
        """Ask for a pointer anew at its next use."""
        self._pointers.pop((name, pointer), None)
        self._again_at = 0.0

    def forget_pointers(self) -> None:
        """Ask for all pointers anew."""
        self._pointers.clear()
        self._again_at = 0.0

    def _ask(self, name: str, pointer: str, now: float) -> Resolved:
        path = f"/api/v1/harnesses/{_quoted(name)}/pointers/{_quoted(pointer)}"
        note = self._cache / "pointers" / f"{_quoted(name)}@{_quoted(pointer)}.json"
        wait = self._ttl_s
        try:
            if now < self._again_at:
                raise ClientError("the registry did not answer a moment ago", place=self._url)
            resolved = _resolved(name, pointer, self.get(path))
            _write(note, json.dumps(asdict(resolved)).encode())
            self._failures = 0
        except ClientError as error:
            if error.kind != "unavailable":
                raise
            if now >= self._again_at:
                self._failures += 1
                self._again_at = now + min(AWAY_S, max(self._ttl_s, 1.0) * 2 ** min(self._failures - 1, 6))
            try:
                resolved = replace(_resolved(name, pointer, note.read_bytes()), stale=True)
            except (OSError, ClientError):
                raise error from None
            wait = self._again_at - now
        self._pointers[name, pointer] = (now + wait, resolved)
        return resolved

    def _fetch(self, name: str, digest: str, folder: Path) -> Harness:
        # The archive reader lives beside the server's own, so that both refuse the same traps.
        from hat_registry.archive import read_tar

        content = self.get(f"/api/v1/harnesses/{_quoted(name)}/versions/{_quoted(digest)}/archive")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as temporary:
            root = Path(temporary) / "harness"
            for path, data in read_tar(content).items():
                _write(root / path, data)
            found = load_harness(root)
            if harness_digest(found) != digest:
                raise ClientError(f"the registry sent other content than {digest}", place=self._url)
            with self._lock:
                if folder.exists():  # damaged, or put there by another process meanwhile: both are as good as ours now
                    shutil.rmtree(folder, ignore_errors=True)
                if not folder.exists():
                    root.rename(folder)
        return found

    def get(self, path: str) -> bytes:
        """The body of `GET <path>`. ClientError, `unavailable` when the registry does not answer."""
        with self.open(path) as answer:
            try:
                content: bytes = answer.read(MAX_ANSWER)
            except (OSError, ValueError) as error:
                raise self._silent(error) from None
        return content

    def open(self, path: str, timeout_s: float = TIMEOUT_S) -> IO[bytes]:
        """The answer of `GET <path>` as a file; every read waits at most `timeout_s`."""
        request = urllib.request.Request(self._url + path)  # noqa: S310 - the scheme was checked in the constructor
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            answer: IO[bytes] = urllib.request.urlopen(request, timeout=timeout_s)  # noqa: S310 - as above
        except urllib.error.HTTPError as error:
            raise _refused(error, path) from None
        except (OSError, ValueError) as error:
            raise self._silent(error) from None
        return answer

    def _silent(self, error: Exception) -> ClientError:
        reason = getattr(error, "reason", error)
        return ClientError(
            f"the registry does not answer: {reason}", place=self._url, cure="the last good version stays in use"
        )


def _resolved(name: str, pointer: str, content: bytes) -> Resolved:
    """A position as the registry tells it or as it was noted. ClientError, `unavailable`, for anything else."""
    try:
        told = json.loads(content)
        digest, revision, urgent = str(told["digest"]), int(told["revision"]), bool(told["urgent"])
    except (ValueError, KeyError, TypeError):
        raise ClientError("the registry did not answer with a position", place=f"{name}@{pointer}") from None
    if not DIGEST.match(digest):
        raise ClientError("the registry did not answer with a digest", place=f"{name}@{pointer}")
    return Resolved(name, pointer, digest, revision, urgent)


def _released(name: str, content: bytes) -> Released:
    """A release as the registry tells it. ClientError, `unavailable`, for anything else."""
    try:
        told = json.loads(content)
        digest, model, harness = (str(told[key]) for key in ("digest", "model", "harness"))
        found = Released(name, digest, model, harness, str(told["harness_name"]), bool(told["urgent"]))
    except (ValueError, KeyError, TypeError):
        raise ClientError("the registry did not answer with a release", place=name) from None
    if not all(DIGEST.match(one) for one in (digest, model, harness)):
        raise ClientError("the registry did not answer with digests", place=name)
    return found


def _kept(folder: Path, digest: str) -> Harness | None:
    """The harness in `folder` if it is whole and has `digest`."""
    if not folder.is_dir():
        return None
    try:
        found = load_harness(folder)
    except (PlatformError, OSError, ValueError):
        return None
    return found if harness_digest(found) == digest else None


def _refused(error: urllib.error.HTTPError, path: str) -> ClientError:
    try:
        told: dict[str, Any] = json.loads(error.read(65_536))
    except (ValueError, OSError):
        told = {}
    made = ClientError(str(told.get("title", error.reason)), place=path, cure=str(told.get("cure", "")))
    made.kind = told.get("kind", "unavailable") if error.code < 500 else "unavailable"
    return made


def _quoted(part: str) -> str:
    return urllib.parse.quote(part, safe="")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
