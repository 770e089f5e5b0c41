"""What `hat harness explain` and `hat harness render` look at besides the folder: recorded traces,
tokenizers, JSON files.

Always holds: a trace explains hooks only after it was replayed under the very harness that it was recorded under. Not here:
the commands themselves (harness).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatstack.cli.failure import InputError

if TYPE_CHECKING:
    from hat_harness.spec import Harness
    from hat_harness.tape import Told
    from hat_harness.trace import Trace

_MOST = 512 * 1024 * 1024
"""Bytes of a trace file that are read."""


def read_trace(path: Path, session: str | None) -> Trace:
    """The trace in a file: as `tape.dump` writes it, or a session's lines of a gateway's daily file, put together."""
    from hat_harness.tape import parse
    from hat_harness.trace import FORMAT, Trace

    try:
        if path.stat().st_size > _MOST:
            raise InputError(
                "the file is larger than 512 MB", place=str(path), cure="cut the session's lines out of it"
            )
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", place=str(path), cure="check the path") from None
    try:
        first = json.loads(data.split(b"\n", 1)[0] or b"null")
    except ValueError as error:
        raise InputError(f"no trace: {error}", place=f"{path}:1", cure="give a file of traces") from None
    if not isinstance(first, dict) or first.get("format") != FORMAT:
        raise InputError(f"no trace: the first line is no {FORMAT}", place=f"{path}:1", cure="give a file of traces")
    if "entries" not in first:
        return parse(data)
    found: list[Trace] = []
    names: dict[str, None] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            one = Trace.model_validate_json(line)
        except ValueError as error:
            message = str(error).splitlines()[0]
            raise InputError(f"no trace: {message}", place=f"{path}:{number}", cure="give a file of traces") from None
        names[one.session] = None
        if session in (None, one.session):
            found.append(one)
    wanted = session or next(iter(names))
    if wanted not in names or (session is None and len(names) > 1):
        some = ", ".join(list(names)[:5])
        what = f"no session {session!r}" if session else f"{len(names)} sessions"
        raise InputError(what, place=str(path), cure=f"--session with one of: {some}{' …' if len(names) > 5 else ''}")
    entries = tuple(entry for one in found for entry in one.entries)
    return found[0].model_copy(update={"entries": entries, "segments": ()})


def explained(harness: Harness, trace: Trace, place: str) -> list[Told]:
    """Every evaluation of every hook in a recorded session, in order."""
    from hat_harness.digest import harness_digest, short
    from hat_harness.session import Session
    from hat_harness.tape import explain_trace

    if trace.harness != harness_digest(harness):
        both = f"recorded under {trace.harness_name} {short(trace.harness)}, this is {short(harness_digest(harness))}"
        raise InputError(both, place=place, cure=f"hat harness pull {trace.harness_name}@{trace.harness}")
    session = Session(harness, session_id=trace.session, room=trace.room, now=trace.started)
    return list(explain_trace(trace, session))


def counter(tokenizer: Path | None) -> Callable[[str], int]:
    """Tokens of a text: by a tokenizer (`tokenizer.json` or a folder that holds it), else as sessions estimate them."""
    from hat_harness.segments import estimate

    if tokenizer is None:
        return estimate
    from tokenizers import Tokenizer

    path = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    if not path.is_file():
        raise InputError("there is no tokenizer.json", place=str(tokenizer), cure="give it, or a model's folder")
    try:
        found: Any = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise InputError(f"no tokenizer: {str(error)[:200]}", place=str(path), cure="give a tokenizer.json") from None
    return lambda text: len(found.encode(text, add_special_tokens=False).ids)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_float=_number, parse_constant=_number)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", place=str(path)) from None
    except ValueError as error:
        raise InputError(f"not JSON: {error}", place=str(path)) from None
    if not isinstance(data, dict):
        raise InputError("a JSON object is expected", place=str(path))
    return data


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number")
    return number
