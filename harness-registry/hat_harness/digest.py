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
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import rfc8785

from hat_harness.errors import DigestError
from hat_harness.kept import Kept
from hat_harness.names import skill_folders
from hat_harness.spec import File, Harness, Part

DECIMAL = "$decimal"
_MAX_INTEGER = 2**53 - 1


def digest_bytes(data: bytes) -> str:
    """SHA-256 of raw bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def digest_json(value: Any) -> str:
    """SHA-256 of the value's RFC 8785 text. DigestError for floats, integers beyond 2^53 and what is not JSON."""
    return digest_bytes(canonical_json(value))


def canonical_json(value: Any) -> bytes:
    """The value's RFC 8785 text. Same errors as `digest_json`.

    Where all keys are of the basic plane, sorting by code point is sorting by UTF-16 unit, so that the standard
    library's encoder writes the same bytes ten times as fast (a test holds the two together).
    """
    try:
        if _check(value):
            text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
            return text.encode()
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError, TypeError) as error:
        raise DigestError(f"no canonical JSON: {error}") from None


def _check(value: Any) -> bool:
    """Refuses what has no place in hashed JSON; whether all keys are of the basic plane."""
    if value is None or isinstance(value, str | bool):
        return True
    if isinstance(value, dict):
        basic = True
        for key, inner in value.items():
            basic &= _check_key(key) & _check_inner(key, inner)
        return basic
    if isinstance(value, list | tuple):
        basic = True
        for index, inner in enumerate(value):
            basic &= _check_inner(index, inner)
        return basic
    if isinstance(value, float):
        raise DigestError(f"a float, {value}", cure="use an integer or a decimal string")
    if not isinstance(value, int):
        raise DigestError(f"{type(value).__name__} is not JSON")
    if abs(value) > _MAX_INTEGER:
        raise DigestError("an integer beyond 2^53", cure="use a decimal string")
    return True


def _check_key(key: Any) -> bool:
    if not isinstance(key, str):
        raise DigestError(f"the key {key!r} is no text")
    return key.isascii() or max(key) < "\U00010000"


def _check_inner(step: str | int, value: Any) -> bool:
    """`_check`, with the way down to what it refuses as the error's place."""
    try:
        return _check(value)
    except DigestError as error:
        error.place = f"{step}/{error.place}".rstrip("/")
        raise


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


def _digest(part: Part) -> str:
    if isinstance(part, File):
        return digest_bytes(file_bytes(part))
    if isinstance(part, Harness):
        return digest_json({"format": 1, "parts": part_digests(part)})
    return digest_json(decimals(part.model_dump()))


_KEPT: Kept[Part, str] = Kept(_digest)


def file_bytes(file: File) -> bytes:
    """The raw bytes of a skill's further file."""
    if file.encoding == "utf-8":
        return file.content.encode()
    return base64.b64decode(file.content)


def part_digest(part: Part) -> str:
    """The digest of one part; of a file its raw bytes, of everything else its content as canonical JSON."""
    return _KEPT.of(part)


_LISTS = ("prompts", "skills", "tools", "hooks", "few_shots", "files")


def unset(harness: Harness) -> set[str]:
    """Settings younger than the format that are not used: left out, so that digests from before them stand."""
    return set() if harness.client_tools else {"client_tools"}


def head(harness: Harness) -> dict[str, Any]:
    """What belongs to the harness as a whole: its settings and the order of its parts, by id."""
    settings = harness.model_dump(exclude=set(_LISTS) | unset(harness))
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
    return _KEPT.of(harness)
