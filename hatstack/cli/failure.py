"""How a command ends: exit codes by kind of error, and one way of saying what went wrong.

    0 ok · 1 gate or check failed · 2 usage · 3 bad input · 4 conflict or not allowed · 5 unavailable
    6 out of resources · 130 interrupted

Always holds: no traceback reaches a person unless HATSTACK_DEBUG=1; with `--output json` an error is one JSON object
{"kind", "message", "place", "cure"} on stderr. An error that no one foresaw has kind `internal`, exit code 70 as in
sysexits.h, so that it passes for no verdict of a gate, and its traceback in a log file that the message names.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path

from hat_harness.errors import Kind, PlatformError

INTERRUPTED = 130
EXIT_CODES: Mapping[str, int] = {
    "check_failed": 1,
    "usage": 2,
    "invalid_input": 3,
    "conflict": 4,
    "forbidden": 4,
    "unavailable": 5,
    "exhausted": 6,
    "internal": 70,
    "interrupted": INTERRUPTED,
}


class UsageError(PlatformError):
    """The command line does not say what it must."""

    kind: Kind = "usage"


class CheckError(PlatformError):
    """A check that was asked for has a finding."""

    kind: Kind = "check_failed"


class InputError(PlatformError):
    """What the command was given does not exist or cannot be read."""

    kind: Kind = "invalid_input"


class ConflictError(PlatformError):
    """Something stands where the command would write."""

    kind: Kind = "conflict"


class UnavailableError(PlatformError):
    """Something that the command needs does not answer."""

    kind: Kind = "unavailable"


def debug() -> bool:
    """Whether tracebacks are wanted."""
    return os.environ.get("HATSTACK_DEBUG", "") not in ("", "0")


def report(error: BaseException, as_json: bool) -> int:
    """Say on stderr what went wrong; returns the exit code."""
    if debug():
        traceback.print_exception(error)
    if isinstance(error, PlatformError):
        kind = "interrupted" if getattr(error, "interrupted", False) else error.kind
        return _say(kind, error.message, error.place, error.cure, as_json, details=_details(error))
    if isinstance(error, KeyboardInterrupt):
        return _say("interrupted", "interrupted", "", "", as_json)
    if isinstance(error, MemoryError):
        return _say("exhausted", "out of memory", "", "use smaller sizes in the profile", as_json)
    if isinstance(error, OSError) and error.errno in _FULL:
        return _say("exhausted", f"{error.strerror}", str(error.filename or ""), "free some space", as_json)
    log = _log(error)
    return _say(
        "internal",
        f"unexpected {type(error).__name__}: {_first_line(error)}",
        str(log),
        "the log has the details",
        as_json,
    )


def usage(message: str, place: str, cure: str, as_json: bool) -> int:
    """Say that the command line is wrong; returns the exit code."""
    return _say("usage", message, place, cure, as_json)


_FULL = (28, 122)
"""ENOSPC and EDQUOT."""


def _details(error: PlatformError) -> list[str]:
    further = {"log": getattr(error, "log", ""), "then": getattr(error, "resume", "")}
    told = [f"{name}: {value}" for name, value in further.items() if value]
    return [*(str(problem) for problem in getattr(error, "problems", ())), *told]


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:200]


def _say(kind: str, message: str, place: str, cure: str, as_json: bool, details: list[str] | None = None) -> int:
    code = EXIT_CODES[kind]
    if as_json:
        body: dict[str, object] = {"kind": kind, "message": message, "place": place, "cure": cure}
        if details:
            body["problems"] = details
        sys.stderr.write(json.dumps(body, ensure_ascii=False) + "\n")
        return code
    lines = [f"error: {place}: {message}" if place else f"error: {message}"]
    lines += [f"  {detail}" for detail in details or ()]
    if cure:
        lines.append(f"  cure: {cure}")
    sys.stderr.write("\n".join(lines) + "\n")
    return code


def _log(error: BaseException) -> Path:
    """Write the traceback to a file of its own; returns its path."""
    handle, name = tempfile.mkstemp(prefix="hat-error-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write("hat " + " ".join(sys.argv[1:]) + "\n\n")
        traceback.print_exception(error, file=stream)
    return Path(name)
