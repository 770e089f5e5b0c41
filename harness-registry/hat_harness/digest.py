"""Digests of bytes, JSON values, harness parts and whole harnesses.

Always holds: a digest is `sha256:` + 64 hex. JSON is hashed as RFC 8785 (JCS) text, in which floats are refused.
Structured parts that need fractions (seconds; bounds in a tool's schema) write them as `{"$decimal": "0.25"}`: the
shortest decimal that reads back as the same double, no exponent. So the hashed text has no floats, 10.0 and 1e1
agree, and 0.5 never meets "0.5". A harness's digest is that of `{"format": 1, "parts": {path: digest}}`. A part is
hashed once: its digest is kept for as long as the (immutable) part lives, so a rewrite hashes what it changed and the
head. Not here: where parts lie in files (load), bindings (outside the digest).
"""

from __future__ import annotations

import base64
import hashlib
import weakref
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import rfc8785

from hat_harness.errors import DigestError
from hat_harness.names import skill_folders
from hat_harness.spec import File, Harness, Part

DECIMAL = "$decimal"


def digest_bytes(data: bytes) -> str:
    """SHA-256 of raw bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def digest_json(value: Any) -> str:
    """SHA-256 of the value's RFC 8785 text. DigestError for floats, integers beyond 2^53 and anything that is not JSON."""
    _refuse_floats(value, "")
    try:
        return digest_bytes(rfc8785.dumps(value))
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise DigestError(f"no canonical JSON: {error}") from None


def _refuse_floats(value: Any, path: str) -> None:
    if isinstance(value, float):
        raise DigestError(f"a float ({value}) at {path or 'the top'}", cure="use an integer or a decimal string")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _refuse_floats(inner, f"{path}/{key}")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _refuse_floats(inner, f"{path}/{index}")


def short(digest: str) -> str:
    """The 12 hex digits that are shown to people and used as metric labels."""
    return digest.removeprefix("sha256:")[:12]


def decimals(value: Any) -> Any:
    """The value with floats written as `{"$decimal": "..."}` and tuples as lists."""
    if isinstance(value, float):
        number = Decimal(repr(value))
        if not number.is_finite():
            raise DigestError(f"{value} is not a number", cure="use a finite number")
        text = format(number.normalize(), "f")
        return {DECIMAL: "0" if text == "-0" else text}
    if isinstance(value, Mapping):
        if DECIMAL in value:
            raise DigestError(f"the key {DECIMAL} is reserved", cure="rename it")
        return {key: decimals(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [decimals(inner) for inner in value]
    return value


class _Kept:
    """Digests by identity of the part; an entry goes when its part does."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[weakref.ref[Part], str]] = {}

    def of(self, part: Part) -> str:
        key = id(part)
        entry = self._found.get(key)
        if entry is not None and entry[0]() is part:
            return entry[1]
        digest = digest_bytes(file_bytes(part)) if isinstance(part, File) else digest_json(decimals(part.model_dump()))
        self._found[key] = (weakref.ref(part, lambda _: self._found.pop(key, None)), digest)
        return digest


_KEPT = _Kept()


def file_bytes(file: File) -> bytes:
    """The raw bytes of a skill's further file."""
    if file.encoding == "utf-8":
        return file.content.encode()
    return base64.b64decode(file.content)


def part_digest(part: Part) -> str:
    """The digest of one part; of a file its raw bytes, of everything else its content as canonical JSON."""
    return _KEPT.of(part)


_LISTS = ("prompts", "skills", "tools", "hooks", "few_shots", "files")


def head(harness: Harness) -> dict[str, Any]:
    """What belongs to the harness as a whole: its settings and the order of its parts, by id."""
    settings = harness.model_dump(exclude=set(_LISTS))
    order = {name: [part.id for part in getattr(harness, name)] for name in _LISTS[:-1]}
    return {**settings, "parts": order}


def part_digests(harness: Harness) -> dict[str, str]:
    """Path of every part → its digest, in the order of a saved folder."""
    folders = skill_folders(harness)
    found = {"harness.yaml": digest_json(decimals(head(harness)))}
    found.update({f"prompts/{part.id}.md": part_digest(part) for part in harness.prompts})
    found.update({f"skills/{folders[part.id]}/SKILL.md": part_digest(part) for part in harness.skills})
    found.update({part.path: part_digest(part) for part in harness.files})
    found.update({f"tools/{part.id}.json": part_digest(part) for part in harness.tools})
    found.update({f"hooks/{part.id}.yaml": part_digest(part) for part in harness.hooks})
    found.update({f"few_shots/{part.id}.jsonl": part_digest(part) for part in harness.few_shots})
    return found


def harness_digest(harness: Harness) -> str:
    """The harness's digest. The same content has the same digest, whoever built it and wherever it came from."""
    return digest_json({"format": 1, "parts": part_digests(harness)})
